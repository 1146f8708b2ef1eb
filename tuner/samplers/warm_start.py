"""Warm start: a sampler learns from earlier studies as if it had seen them itself."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ..core.earlier import EarlierStudy
from ..core.sampler import Sampler
from ..core.space import SearchSpace
from ..core.trial import Direction, Params, Suggestion, Trial, TrialState
from .axes import Floats

ORIGIN = "warm start"

_FEWEST = 5
"""Trials of the new study before the spread of its values means something."""


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """What fits of one earlier study: losses (lower is better), and the best one's place."""

    configurations: Sequence[Params]
    losses: Floats
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
    configurations were better than which, and by how much in proportion.

    Args:
        inner: Who learns.
        space: What is searched now.
        studies: What to learn from; trials that have no place in the space are left out.
        direction: Which values of the new study are better.
    """

    def __init__(
        self,
        inner: Sampler,
        space: SearchSpace,
        studies: Sequence[EarlierStudy],
        *,
        direction: Direction,
    ) -> None:
        self._inner = inner
        self._space = space
        self._sign = _sign(direction)
        self._studies = [known for study in studies if (known := self._known(study)) is not None]
        self._seen: dict[int, tuple[Hashable, float]] = {}
        self._told: Floats = np.empty(0)

    def tell(self, trial: Trial) -> None:
        """Tell the sampler, and remember the value to compare the earlier ones with."""
        self._seen.pop(trial.number, None)
        if trial.state is TrialState.COMPLETE and trial.value is not None:
            loss = self._sign * trial.value
            if math.isfinite(loss):
                self._seen[trial.number] = (self._space.key(trial.params), loss)
        self._inner.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """The sampler's answers, who was told the earlier trials."""
        self._inform()
        return self._inner.ask(numbers)

    def _known(self, study: EarlierStudy) -> _Known | None:
        trials = study.within(self._space)
        if not trials:
            return None
        losses = _sign(study.direction) * np.array([trial.value for trial in trials])
        best = int(losses.argmin())
        return _Known(
            [trial.params for trial in trials],
            losses,
            best,
            self._space.key(trials[best].params),
            study.is_same_metric,
        )

    def _inform(self) -> None:
        if not self._studies:
            return
        seen = [self._seen[number] for number in sorted(self._seen)]
        values = self._sign * np.concatenate([_comparable(each, seen) for each in self._studies])
        if np.array_equal(values, self._told):
            return
        self._told = values
        configurations = (params for study in self._studies for params in study.configurations)
        for i, (params, value) in enumerate(zip(configurations, values.tolist(), strict=True)):
            self._inner.tell(Trial(-1 - i, params, ORIGIN, TrialState.COMPLETE, value=value))


def _comparable(study: _Known, seen: Sequence[tuple[Hashable, float]]) -> Floats:
    """The study's losses on the scale of those seen in the new one."""
    again = next((loss for key, loss in seen if key == study.best_key), None)
    spread = _spread(study.losses)
    least = float(study.losses[study.best])
    if study.is_same_metric and (again is None or abs(again - least) <= spread / 2):
        return study.losses
    new = np.array([loss for _, loss in seen])
    if again is None:
        again = float(new.min()) if len(new) else 0.0
    new_spread = _spread(new) if len(new) >= _FEWEST else 0.0
    stretch = new_spread / spread if new_spread > 0.0 and spread > 0.0 else 1.0
    found: Floats = again + (study.losses - least) * stretch
    return found


def _spread(losses: Floats) -> float:
    """The distance of the quartiles."""
    low, high = np.quantile(losses, (0.25, 0.75))
    return float(high - low)


def _sign(direction: Direction) -> float:
    return 1.0 if direction is Direction.MIN else -1.0
