"""Grid search: every combination, in a fixed order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..core.sampler import Sampler
from ..core.space.space import SearchSpace
from ..core.trial import Direction, Params, Suggestion, Trial

DEFAULT_RESOLUTION = 10


class GridSampler(Sampler):
    """Grid search in the order of `core.space.enumeration.Configurations`.

    Combinations that were tried already, by any trial of the study, are skipped.

    Args:
        space: The search space.
        seed: Of no effect, as the grid has no random numbers.
        directions: Of no effect.
        grid_resolution: Number of values of a parameter without steps, both ends included.

    Raises:
        SpaceError: The resolution is below 2.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int = 0,  # noqa: ARG002 - as for all samplers
        *,
        directions: Sequence[Direction] = (),  # noqa: ARG002 - as for all samplers
        grid_resolution: int = DEFAULT_RESOLUTION,
    ) -> None:
        self._space = space
        self._grid = space.grid(grid_resolution)
        self._rest = iter(self._grid)
        self._ahead: list[tuple[Hashable, Params]] = []  # taken from `_rest`, not tried
        self._tried: set[Hashable] = set()

    @property
    def size(self) -> int:
        """Number of combinations in the grid."""
        return self._grid.count

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return the next untried combinations, one for each number."""
        self._ahead = [entry for entry in self._ahead if entry[0] not in self._tried]
        while len(self._ahead) < len(numbers):
            params = next(self._rest, None)
            if params is None:
                break
            key = self._space.key(params)
            if key not in self._tried:
                self._ahead.append((key, params))
        return [Suggestion(params, "grid") for _, params in self._ahead[: len(numbers)]]

    def tell(self, trial: Trial) -> None:
        """Mark the trial's combination as tried."""
        if trial.number >= 0:
            self._tried.add(self._space.key(trial.params))


def grid_size(space: SearchSpace, grid_resolution: int = DEFAULT_RESOLUTION) -> int:
    """Return the number of combinations in the grid of a space."""
    return space.grid(grid_resolution).count
