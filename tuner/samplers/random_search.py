"""Random search: every configuration drawn anew, none of them twice."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from ..core.sampler import Sampler
from ..core.seeds import Purpose, generator
from ..core.space import SearchSpace
from ..core.trial import Params, Suggestion, Trial
from .unseen import Unseen

_DRAWS = 64
_Keyed = tuple[Hashable, Params]


class RandomSampler(Sampler):
    """Draws each parameter evenly on its own scale.

    A trial's configuration depends on the seed and the trial's number alone, except where it has
    to differ from one that was tried before. Such a draw is repeated; if that does not help
    either, the choice is even among all untried configurations. In an infinite space, where a
    repetition is next to impossible, a draw is taken as it comes after some repetitions.

    Args:
        space: What to search.
        seed: The study's seed.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._space = space
        self._seed = seed
        self._unseen = Unseen(space)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """One random configuration for each number; fewer once all are tried."""
        answers: list[Suggestion] = []
        pending: set[Hashable] = set()
        for number in numbers:
            drawn = self._draw(generator(self._seed, Purpose.SUGGESTION, number), pending)
            if drawn is None:
                break
            key, params = drawn
            pending.add(key)
            answers.append(Suggestion(params, "random"))
        return answers

    def tell(self, trial: Trial) -> None:
        """Remember that this configuration is tried."""
        self._unseen.note(trial.params)

    def _draw(self, rng: np.random.Generator, pending: set[Hashable]) -> _Keyed | None:
        for _ in range(_DRAWS):
            params = self._space.sample(rng)
            key = self._space.key(params)
            if key not in pending and not self._unseen.is_tried(key):
                return key, params
        return (key, params) if self._unseen.endless else self._unseen.pick(rng, pending)
