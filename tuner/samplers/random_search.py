"""Random search: every configuration drawn anew, none of them twice."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.sampler import Sampler
from ..core.space.space import SearchSpace
from ..core.trial import Suggestion, Trial
from .common.untried import Untried


class RandomSampler(Sampler):
    """Draws each parameter evenly on its own scale.

    A trial's configuration depends on the seed and the trial's number alone, except where it has
    to differ from one that was tried before (see `Untried.draw`).

    Args:
        space: What to search.
        seed: The study's seed.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._seed = seed
        self._untried = Untried(space)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """One random configuration for each number; fewer once all are tried."""
        return self._untried.suggest(numbers, self._seed, "random")

    def tell(self, trial: Trial) -> None:
        """Remember that this configuration is tried."""
        self._untried.mark_tried(trial)
