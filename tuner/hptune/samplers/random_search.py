"""Random search without repetitions."""

from __future__ import annotations

from collections.abc import Sequence

from ..core.sampler import Sampler
from ..core.space.space import SearchSpace
from ..core.trial import Direction, Suggestion, Trial
from .common.untried import Untried


class RandomSampler(Sampler):
    """Random search: each parameter is drawn uniformly on its own scale.

    A trial's configuration depends only on the seed and the trial's number, unless that
    configuration was tried before (see `Untried.draw`).
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        directions: Sequence[Direction] = (),  # noqa: ARG002 - it learns nothing from values
    ) -> None:
        self._seed = seed
        self._untried = Untried(space)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return a random untried configuration for each number; fewer once all are tried."""
        return self._untried.suggest(numbers, self._seed, "random")

    def tell(self, trial: Trial) -> None:
        """Mark the trial's configuration as tried."""
        self._untried.mark_tried(trial)
