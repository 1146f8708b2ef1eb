"""Choice of the search for `--search auto`.

The rule follows measurements (benchmarks/README.md). The Gaussian process finds better
configurations than TPE in the same number of trials, in all kinds of spaces, sequentially as well
as in parallel. Its suggestions take longer the more trials there are.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..core.space.space import SearchSpace

_MOST_TRIALS = 1_000
"""Trials; with more, the Gaussian process models only a part and a suggestion takes seconds."""

_MOST_DIMENSIONS = 60
"""Hyperparameters; the Gaussian process was not measured with more."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A search and the reason for choosing it.

    Attributes:
        search: Name of the search.
        why: The reason, as the second half of a sentence.
        grid_resolution: Resolution at which `grid` covers the whole space; None for its default.
    """

    search: str
    why: str
    grid_resolution: int | None = None


def choose(
    space: SearchSpace, *, trials: int | None, parallel_trials: int, is_complete: bool = True
) -> Choice:
    """Choose a search.

    Args:
        space: The search space as it is known now.
        trials: How many trials are planned; None if their number is open.
        parallel_trials: How many of them run at once.
        is_complete: Whether no trial will add a hyperparameter to the space.
    """
    size = space.size() if is_complete else None
    if size is not None and trials is not None and size <= trials:
        whole = "the only configuration" if size == 1 else f"all {size} configurations"
        cover = "trial covers" if trials == 1 else "trials cover"
        return Choice("grid", f"{trials} {cover} {whole}", _whole(space))
    if trials == 1:
        return Choice("sobol", "a single trial has no results to learn from")
    if trials is not None and trials <= parallel_trials:
        return Choice(
            "sobol", f"all {trials} trials run in parallel, with no results to learn from"
        )
    if trials is None or trials > _MOST_TRIALS:
        many = "the number of trials is open" if trials is None else f"{trials} trials are many"
        return Choice("tpe", f"{many}, and its suggestions stay fast")
    if len(space) > _MOST_DIMENSIONS:
        return Choice("tpe", f"{len(space)} hyperparameters are many")
    return Choice("bayesian", f"it needs the fewest trials, and {trials} are planned")


def _whole(space: SearchSpace) -> int:
    """Return the resolution at which the grid of a finite space contains all of it."""
    return max([2, *(len(p.values) for p in space if p.values is not None)])
