"""Warm start: a sampler learns from the trials of earlier studies."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...core.sampler import Sampler
from ...core.space.earlier_study import EarlierStudy
from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Suggestion, Trial, TrialState
from ..common.encoding import Floats
from ..common.observations import bounded

ORIGIN = "warm start"

_MIN_TRIALS = 5
"""Trials of the new study from which the spread of its values is estimated."""


@dataclass(frozen=True, slots=True, eq=False)
class _EarlierResults:
    """The trials of an earlier study that fit the new space.

    Attributes:
        configurations: The configurations (n).
        losses: Their values (n x objectives); lower is better.
        violations: Their constraint violations (n).
        best_key: Key of the best configuration by the first objective.
        best_losses: The means of its values (objectives).
        is_same_metric: Whether the values are of the new study's metrics.
    """

    configurations: Sequence[Params]
    losses: Floats
    violations: Floats
    best_key: Hashable
    best_losses: Floats
    is_same_metric: bool


class WarmStart(Sampler):
    """Tells another sampler the trials of earlier studies, with numbers below 0.

    The values of an earlier study must be comparable with the new ones. This is decided at its
    best configuration, which the new study tries first (`start_points`):

    - If the metric is the same and the new value is within half the interquartile range of the
      old one, the values are told unchanged.
    - Otherwise (another data set, another metric) they are shifted so that the old value of this
      configuration equals the new one, and scaled to the interquartile range of the new values.
      Then the sampler learns only their order and relative distances.

    Several objectives are compared separately, at the best configuration by the first one.

    Args:
        inner: The wrapped sampler.
        space: The space of the new study.
        studies: The earlier studies. Trials outside the space or with missing values are left
            out.
        directions: Directions of the new study's objectives.
    """

    def __init__(
        self,
        inner: Sampler,
        space: SearchSpace,
        studies: Sequence[EarlierStudy],
        *,
        directions: Sequence[Direction],
    ) -> None:
        self._inner = inner
        self._space = space
        self._signs = np.array([direction.sign for direction in directions])
        self._studies = [
            results for study in studies if (results := self._results(study)) is not None
        ]
        self._seen: dict[int, tuple[Hashable, Floats]] = {}
        self._known_values: Floats = np.empty((0, len(self._signs)))

    def tell(self, trial: Trial) -> None:
        """Tell the wrapped sampler, and keep the values for comparison."""
        self._seen.pop(trial.number, None)
        if trial.state is TrialState.COMPLETE and len(trial.values) == len(self._signs):
            losses = bounded(self._signs * np.array(trial.values))
            if np.isfinite(losses).all():
                self._seen[trial.number] = (self._space.key(trial.params), losses)
        self._inner.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Tell the wrapped sampler the earlier trials if their values changed, and ask it."""
        self._tell_earlier_trials()
        return self._inner.ask(numbers)

    def _results(self, study: EarlierStudy) -> _EarlierResults | None:
        trials = [
            trial for trial in study.within(self._space) if len(trial.values) == len(self._signs)
        ]
        best = replace(study, trials=trials).best_within(self._space)
        if best is None:
            return None
        losses = bounded(np.array([trial.values for trial in trials]) * self._signs)
        losses[:, 0] *= self._signs[0] * study.direction.sign
        violations = np.array([trial.violation for trial in trials])
        best_key = self._space.key(best)
        return _EarlierResults(
            [trial.params for trial in trials],
            losses,
            violations,
            best_key,
            losses[[self._space.key(each.params) == best_key for each in trials]].mean(axis=0),
            study.is_same_metric,
        )

    def _tell_earlier_trials(self) -> None:
        if not self._studies:
            return
        seen = [self._seen[number] for number in sorted(self._seen)]
        values = self._signs * np.concatenate(
            [_comparable_losses(each, seen) for each in self._studies]
        )
        if np.array_equal(values, self._known_values):
            return
        self._known_values = values
        configurations = [params for study in self._studies for params in study.configurations]
        violations = np.concatenate([study.violations for study in self._studies]).tolist()
        for i, (value, *extra_values) in enumerate(values.tolist()):
            earlier = Trial(
                -1 - i,
                configurations[i],
                ORIGIN,
                TrialState.COMPLETE,
                value=value,
                extra_values=tuple(extra_values),
                violation=violations[i],
            )
            self._inner.tell(earlier)


def _comparable_losses(study: _EarlierResults, seen: Sequence[tuple[Hashable, Floats]]) -> Floats:
    """Return the earlier losses on the scales of the new study."""
    repeated = next((losses for key, losses in seen if key == study.best_key), None)
    new = np.array([losses for _, losses in seen]).reshape(-1, study.losses.shape[1])
    columns = [
        _rescaled(
            losses,
            float(study.best_losses[i]),
            None if repeated is None else float(repeated[i]),
            new[:, i],
            is_same_metric=study.is_same_metric,
        )
        for i, losses in enumerate(study.losses.T)
    ]
    return np.column_stack(columns)


def _rescaled(
    losses: Floats, best: float, repeated: float | None, new: Floats, *, is_same_metric: bool
) -> Floats:
    """Return the earlier losses of one objective on the scale of the new study.

    Args:
        losses: The losses of the earlier study.
        best: The loss of its best configuration.
        repeated: The loss of that configuration in the new study; None if it was not tried.
        new: All losses of the new study.
        is_same_metric: Whether both studies measured the same metric.
    """
    spread = _spread(losses)
    if is_same_metric and (repeated is None or abs(repeated - best) <= spread / 2):
        return losses
    if repeated is None:
        repeated = float(new.min()) if len(new) else 0.0
    new_spread = _spread(new) if len(new) >= _MIN_TRIALS else 0.0
    distances = losses - best
    with np.errstate(over="ignore"):
        if new_spread > 0.0 and spread > 0.0:
            distances = distances / spread * new_spread
        return bounded(repeated + distances)


def _spread(losses: Floats) -> float:
    """Return the interquartile range."""
    low, high = np.quantile(losses, (0.25, 0.75))
    return float(high - low)
