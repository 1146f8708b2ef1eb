"""Which search to use where nobody said.

The rule follows what was measured (benchmarks/README.md): the Gaussian process finds better
configurations than TPE in the same number of trials, with numbers, steps and words alike, one after
the other as well as many at once; but not where many trials at once meet a space that is mostly
conditional. And its suggestions take longer the more trials there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.space.space import SearchSpace

_MOST_TRIALS = 1_000
"""From there on a Gaussian process knows a part of them only, and each suggestion takes seconds."""

_MOST_DIMENSIONS = 60
"""It was not measured with more."""

_MANY_AT_ONCE = 24
_MOSTLY_CONDITIONAL = 0.5


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
        told = f"all {trials} trials start at once" if trials > 1 else "there is one trial only"
        return Choice("sobol", f"{told}, with nothing to learn from")
    if trials is None or trials > _MOST_TRIALS:
        many = "the number of trials is open" if trials is None else f"{trials} trials are many"
        return Choice("tpe", f"{many}, and it answers at once, however many there are")
    if len(space) > _MOST_DIMENSIONS:
        return Choice("tpe", f"{len(space)} hyperparameters are many")
    conditional = sum(bool(parameter.conditions) for parameter in space)
    if at_once >= _MANY_AT_ONCE and conditional >= _MOSTLY_CONDITIONAL * len(space):
        return Choice(
            "tpe",
            f"{at_once} trials run at once, and {conditional} of {len(space)} hyperparameters are "
            "conditional",
        )
    return Choice("bayesian", f"it needs the fewest trials, and there are {trials}")


def _whole(space: SearchSpace) -> int:
    """The resolution at which a finite space's grid is all of it."""
    return max([2, *(len(p.values) for p in space if p.values is not None)])
