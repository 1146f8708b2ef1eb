"""Grid search: every combination, in a fixed order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from ..core.sampler import Sampler
from ..core.space.space import SearchSpace
from ..core.trial import Params, Suggestion, Trial

DEFAULT_RESOLUTION = 10


class GridSampler(Sampler):
    """Goes through a space's grid in the order of `core.configurations.Configurations`.

    A combination that was tried already, by whomever, is passed over.

    Args:
        space: What to search.
        resolution: How many values to take of a parameter without steps, both ends included.

    Raises:
        SpaceError: The resolution is below 2.
    """

    def __init__(
        self,
        space: SearchSpace,
        *,
        resolution: int = DEFAULT_RESOLUTION,
    ) -> None:
        self._space = space
        self._grid = space.grid_configurations(resolution)
        self._rest = iter(self._grid)
        self._ahead: list[tuple[Hashable, Params]] = []  # taken from the grid, and not tried yet
        self._tried: set[Hashable] = set()

    @property
    def size(self) -> int:
        """How many trials the whole grid takes."""
        return self._grid.count

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """The next combinations of the grid, one for each number."""
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
        """Pass this trial's combination over from now on."""
        if trial.number >= 0:
            self._tried.add(self._space.key(trial.params))
