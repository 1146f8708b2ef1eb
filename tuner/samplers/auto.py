"""Which search to use where nobody said."""

from __future__ import annotations

from dataclasses import dataclass

from ..core.space import SearchSpace


@dataclass(frozen=True, slots=True)
class Choice:
    """A search, and why it was chosen.

    Attributes:
        search: Its name.
        why: The reason, as the second half of a sentence.
        grid_resolution: What `grid` needs to have the whole space; None for its default.
    """

    search: str
    why: str
    grid_resolution: int | None = None


def choose(space: SearchSpace, *, trials: int | None, at_once: int) -> Choice:
    """Choose a search.

    Args:
        space: What to search.
        trials: The total number of trials; None if it is not known.
        at_once: How many of them run at once.
    """
    size = space.size()
    if size is not None and trials is not None and size <= trials:
        return Choice("grid", f"{trials} trials cover all {size} configurations", _whole(space))
    if trials is not None and trials <= at_once:
        return Choice("sobol", f"all {trials} trials start at once, with nothing to learn from")
    return Choice("tpe", "it learns from trials of any kind")


def _whole(space: SearchSpace) -> int:
    """The resolution at which a finite space's grid is all of it."""
    return max([2, *(len(p.values) for p in space if p.values is not None)])
