"""The samplers, by the names that users call them. Each is loaded when it is asked for."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..core.completion import completed
from ..core.earlier import EarlierStudy
from ..core.sampler import Sampler
from ..core.space import SearchSpace
from ..core.trial import Direction, Suggestion
from ..errors import UsageError


@dataclass(frozen=True, slots=True)
class SamplerOptions:
    """All that a sampler may want to know; each maker below takes from it what it needs.

    Attributes:
        space: What to search.
        seed: The study's seed, 0 or more.
        direction: Which values are better; None where nobody said, which samplers that look at
            values must refuse.
        grid_resolution: How many values a grid takes of a parameter without steps; None for the
            grid's own default.
    """

    space: SearchSpace
    seed: int
    direction: Direction | None = None
    grid_resolution: int | None = None


def _grid(options: SamplerOptions) -> Sampler:
    from .grid import DEFAULT_RESOLUTION, GridSampler

    resolution = options.grid_resolution
    return GridSampler(
        options.space,
        resolution=DEFAULT_RESOLUTION if resolution is None else resolution,
        seed=options.seed,
    )


def _random(options: SamplerOptions) -> Sampler:
    from .random_search import RandomSampler

    return RandomSampler(options.space, options.seed)


def _tpe(options: SamplerOptions) -> Sampler:
    from .tpe import TpeSampler

    return TpeSampler(options.space, options.seed, direction=_direction("tpe", options))


def _bayesian(options: SamplerOptions) -> Sampler:
    from .bayesian import BayesianSampler

    direction = _direction("bayesian", options)
    return BayesianSampler(options.space, options.seed, direction=direction)


def _direction(name: str, options: SamplerOptions) -> Direction:
    if options.direction is None:
        raise UsageError(
            f"the search {name!r} looks at values, and nobody said which are better; "
            "say --direction max or --direction min"
        )
    return options.direction


_MAKERS: Mapping[str, Callable[[SamplerOptions], Sampler]] = {
    "grid": _grid,
    "random": _random,
    "tpe": _tpe,
    "bayesian": _bayesian,
}

SEARCH_NAMES: tuple[str, ...] = tuple(_MAKERS)
"""What `--search` accepts."""


def make_sampler(
    name: str,
    space: SearchSpace,
    seed: int,
    *,
    direction: Direction | None = None,
    grid_resolution: int | None = None,
    start_points: Sequence[Mapping[str, object]] = (),
    studies: Sequence[EarlierStudy] = (),
) -> Sampler:
    """Make the sampler of this name, which begins with what is known to be worth a trial.

    First come the start points, then the best of each earlier study, then, for every search but
    the grid, the space's defaults.

    Args:
        name: One of `SEARCH_NAMES`.
        space: What to search.
        seed: The study's seed, 0 or more.
        direction: Which values are better; needed by samplers that look at values.
        grid_resolution: How many values a grid takes of a parameter without steps, 2 or more;
            None for 10.
        start_points: What to try first, as far as it lies in the space; see `core.completion`.
        studies: Earlier studies to learn from.

    Raises:
        UsageError: There is no such sampler, or it cannot work with these options.
    """
    if name not in _MAKERS:
        near = difflib.get_close_matches(name.lower(), SEARCH_NAMES, n=1, cutoff=0.5)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UsageError(
            f"there is no search called {name!r}; allowed are {', '.join(SEARCH_NAMES)}.{hint}"
        )
    from .start_points import StartPoints

    options = SamplerOptions(space, seed, direction, grid_resolution)
    sampler = _MAKERS[name](options)
    if studies and direction is not None:
        from .warm_start import WarmStart

        sampler = WarmStart(_MAKERS[name](options), sampler, space, studies, direction=direction)
    points = [
        *_fitting(space, start_points),
        *_best_ones(space, studies),
        *([] if name == "grid" else [Suggestion(completed(space, {}), "defaults")]),
    ]
    return StartPoints(sampler, space, points) if points else sampler


def _fitting(space: SearchSpace, given: Sequence[Mapping[str, object]]) -> Iterator[Suggestion]:
    for point in given:
        # A space that changed since the study began may have no room for it any more.
        with contextlib.suppress(UsageError):
            yield Suggestion(completed(space, point), "start point")


def _best_ones(space: SearchSpace, studies: Sequence[EarlierStudy]) -> Iterator[Suggestion]:
    for study in studies:
        params = study.best_within(space)
        if params is not None:
            yield Suggestion(params, f"best of {study.name}")
