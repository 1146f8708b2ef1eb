"""Regularised evolution (Real et al. 2019), without its steady state."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from hptune import UsageError
from hptune.core.sampler import Sampler
from hptune.core.space.completion import completed
from hptune.core.space.space import SearchSpace
from hptune.core.trial import Direction, Params, Suggestion, Trial, TrialState
from hptune.samplers.common.untried import Keyed, Untried

_CHANGED = 0.3
"""Share of the hyperparameters that a child does not inherit."""
_CHILDREN = 16
"""Children that are tried until one is new."""


class EvolutionSampler(Sampler):
    """Changes some values of the best of a few of the newest complete trials."""

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        directions: Sequence[Direction],
        population: int = 20,
    ) -> None:
        self._space = space
        self._seed = seed
        self._sign = directions[0].sign
        self._population = population
        self._untried = Untried(space)
        self._complete: dict[int, Trial] = {}

    def tell(self, trial: Trial) -> None:
        self._untried.mark_tried(trial)
        if trial.state is TrialState.COMPLETE and trial.value is not None:
            self._complete[trial.number] = trial
        else:
            self._complete.pop(trial.number, None)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        return self._untried.suggest(numbers, self._seed, "evolution", self._child)

    def _child(
        self, _number: int, rng: np.random.Generator, pending: Mapping[Hashable, Params]
    ) -> Keyed | None:
        newest = [self._complete[number] for number in sorted(self._complete)][-self._population :]
        if len(newest) < 2:
            return None  # a random configuration
        some = [newest[i] for i in rng.integers(len(newest), size=max(2, len(newest) // 4))]
        parent = min(some, key=lambda trial: self._sign * (trial.value or 0.0))
        children = (self._changed(parent.params, rng) for _ in range(_CHILDREN))
        return self._untried.first_untried(children, pending)

    def _changed(self, parent: Params, rng: np.random.Generator) -> Params:
        fresh = self._space.sample(rng)
        kept = {name: parent.get(name, fresh[name]) for name in fresh if rng.random() > _CHANGED}
        try:
            return completed(self._space, {**fresh, **kept})
        except UsageError:  # the values that were kept activate other hyperparameters
            return fresh
