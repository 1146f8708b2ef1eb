"""Warm start: a sampler learns from earlier studies as if it had seen them itself."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ...core.sampler import Sampler
from ...core.space.earlier_study import EarlierStudy
from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Suggestion, Trial, TrialState
from ..common.encoding import Floats

ORIGIN = "warm start"

_FEWEST = 5
"""Trials of the new study before the spread of its values means something."""


@dataclass(frozen=True, slots=True, eq=False)
class _EarlierResults:
    """What fits of one earlier study, and the place of its best trial.

    Attributes:
        configurations: What was tried (n).
        losses: The values (n x objectives); lower is better.
        violations: By how much each breaks the constraints (n).
        best: Which of them is the best by the first objective.
        best_key: The key of its configuration.
        is_same_metric: Whether the values are of the new study's metrics.
    """

    configurations: Sequence[Params]
    losses: Floats
    violations: Floats
    best: int
    best_key: Hashable
    is_same_metric: bool


class WarmStart(Sampler):
    """Tells another sampler the trials of earlier studies, under numbers below 0.

    Their values have to be comparable with the new ones. Whether they are shows at the best
    configuration of the earlier study, which is to be tried first (see `start_points`): if the
    metric is the same one, and the new value is near the old one (within half the distance of
    the quartiles), the values are told as they are. If not (another data set, another metric),
    they are moved so that the old value of this configuration meets the new one, and stretched
    as the distances of the quartiles demand. Nothing is learned then but which of the earlier
    configurations were better than which, and by how much in proportion. With several objectives
    each is looked at by itself, at the configuration that was the best by the first one.

    Args:
        inner: Who learns.
        space: What is searched now.
        studies: What to learn from; trials that have no place in the space, or too few values,
            are left out.
        direction: Which values of the new study are better.
        extra_directions: The same of the objectives after the first.
    """

    def __init__(
        self,
        inner: Sampler,
        space: SearchSpace,
        studies: Sequence[EarlierStudy],
        *,
        direction: Direction,
        extra_directions: Sequence[Direction] = (),
    ) -> None:
        self._inner = inner
        self._space = space
        self._signs = np.array([_sign(each) for each in (direction, *extra_directions)])
        self._studies = [
            results for study in studies if (results := self._results(study)) is not None
        ]
        self._seen: dict[int, tuple[Hashable, Floats]] = {}
        self._told: Floats = np.empty((0, len(self._signs)))

    def tell(self, trial: Trial) -> None:
        """Tell the sampler, and remember the value to compare the earlier ones with."""
        self._seen.pop(trial.number, None)
        if trial.state is TrialState.COMPLETE and len(trial.values) == len(self._signs):
            losses = self._signs * np.array(trial.values)
            if np.isfinite(losses).all():
                self._seen[trial.number] = (self._space.key(trial.params), losses)
        self._inner.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """The sampler's answers, who was told the earlier trials."""
        self._inform()
        return self._inner.ask(numbers)

    def _results(self, study: EarlierStudy) -> _EarlierResults | None:
        trials = [
            trial for trial in study.within(self._space) if len(trial.values) == len(self._signs)
        ]
        if not trials:
            return None
        losses = np.array([trial.values for trial in trials]) * self._signs
        losses[:, 0] *= self._signs[0] * _sign(study.direction)
        violations = np.array([trial.violation for trial in trials])
        best = int(np.lexsort((losses[:, 0], violations))[0])
        return _EarlierResults(
            [trial.params for trial in trials],
            losses,
            violations,
            best,
            self._space.key(trials[best].params),
            study.is_same_metric,
        )

    def _inform(self) -> None:
        if not self._studies:
            return
        seen = [self._seen[number] for number in sorted(self._seen)]
        values = self._signs * np.concatenate([_comparable(each, seen) for each in self._studies])
        if np.array_equal(values, self._told):
            return
        self._told = values
        configurations = [params for study in self._studies for params in study.configurations]
        violations = np.concatenate([study.violations for study in self._studies]).tolist()
        for i, (value, *extra_values) in enumerate(values.tolist()):
            told = Trial(
                -1 - i,
                configurations[i],
                ORIGIN,
                TrialState.COMPLETE,
                value=value,
                extra_values=tuple(extra_values),
                violation=violations[i],
            )
            self._inner.tell(told)


def _comparable(study: _EarlierResults, seen: Sequence[tuple[Hashable, Floats]]) -> Floats:
    """The study's losses on the scales of those seen in the new one."""
    again = next((losses for key, losses in seen if key == study.best_key), None)
    new = np.array([losses for _, losses in seen]).reshape(-1, study.losses.shape[1])
    columns = [
        _moved(
            losses,
            float(losses[study.best]),
            None if again is None else float(again[i]),
            new[:, i],
            is_same_metric=study.is_same_metric,
        )
        for i, losses in enumerate(study.losses.T)
    ]
    return np.column_stack(columns)


def _moved(
    losses: Floats, least: float, again: float | None, new: Floats, *, is_same_metric: bool
) -> Floats:
    """The losses of one objective on the scale of those seen in the new study.

    Args:
        losses: Those of the earlier study.
        least: That of its best trial among them.
        again: What the best trial's configuration gives now, if it was tried.
        new: All losses of the new study.
        is_same_metric: Whether they are of the same metric.
    """
    spread = _spread(losses)
    if is_same_metric and (again is None or abs(again - least) <= spread / 2):
        return losses
    if again is None:
        again = float(new.min()) if len(new) else 0.0
    new_spread = _spread(new) if len(new) >= _FEWEST else 0.0
    stretch = new_spread / spread if new_spread > 0.0 and spread > 0.0 else 1.0
    found: Floats = again + (losses - least) * stretch
    return found


def _spread(losses: Floats) -> float:
    """The distance of the quartiles."""
    low, high = np.quantile(losses, (0.25, 0.75))
    return float(high - low)


def _sign(direction: Direction) -> float:
    return 1.0 if direction is Direction.MIN else -1.0
