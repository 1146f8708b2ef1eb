"""Samplers by name. A sampler's module is imported only when the sampler is made."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..core.spelling import did_you_mean
from ..core.trial import Direction, Suggestion
from ..errors import UsageError

if TYPE_CHECKING:  # a list of names must not import NumPy
    from ..core.sampler import Sampler
    from ..core.space.earlier_study import EarlierStudy
    from ..core.space.space import SearchSpace
    from ..core.space.user_priors import PriorSpec

AUTO = "auto"
OPTUNA = "optuna:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOptions:
    """Options of all samplers; each sampler takes those it needs.

    Attributes:
        space: The search space.
        seed: The study's seed, 0 or more.
        directions: Directions of the objectives.
        grid_resolution: Values that `grid` takes of a parameter without steps, 2 or more; None
            for 10.
        surrogate: Model of `skopt`; None for "gp".
        start_points: Configurations to try first, possibly incomplete
            (`core.space.completion`). Those outside the space are skipped.
        studies: Earlier studies to learn from.
        priors: Priors on parameters, by name (`core.space.user_priors`).
    """

    space: SearchSpace
    seed: int
    directions: Sequence[Direction]
    grid_resolution: int | None = None
    surrogate: str | None = None
    start_points: Sequence[Mapping[str, object]] = ()
    studies: Sequence[EarlierStudy] = ()
    priors: Mapping[str, PriorSpec] = field(default_factory=dict)


def _tpe(options: SamplerOptions) -> Sampler:
    from .tpe.sampler import TpeSampler

    return TpeSampler(options.space, options.seed, directions=options.directions)


def _bayesian(options: SamplerOptions) -> Sampler:
    from .gp.sampler import BayesianSampler

    return BayesianSampler(options.space, options.seed, directions=options.directions)


def _sobol(options: SamplerOptions) -> Sampler:
    from .sobol import SobolSampler

    return SobolSampler(options.space, options.seed)


def _random(options: SamplerOptions) -> Sampler:
    from .random_search import RandomSampler

    return RandomSampler(options.space, options.seed)


def _grid(options: SamplerOptions) -> Sampler:
    from .grid import DEFAULT_RESOLUTION, GridSampler

    resolution = options.grid_resolution
    return GridSampler(options.space, DEFAULT_RESOLUTION if resolution is None else resolution)


def _skopt(options: SamplerOptions) -> Sampler:
    from .adapters.skopt import SURROGATES, SkoptSampler

    surrogate = options.surrogate or "gp"
    if surrogate not in SURROGATES:
        raise UsageError(
            f"unknown surrogate {surrogate!r}; allowed are {', '.join(SURROGATES)}."
            f"{did_you_mean(surrogate, SURROGATES, likeness=0.5)}"
        )
    return SkoptSampler(
        options.space, options.seed, directions=options.directions, surrogate=surrogate
    )


def _optuna(name: str, options: SamplerOptions) -> Sampler:
    from .adapters.optuna import OptunaSampler

    return OptunaSampler(options.space, options.seed, directions=options.directions, name=name)


@dataclass(frozen=True, slots=True)
class _SearchEntry:
    """A row of the table of searches.

    Attributes:
        summary: One line for help and reference.
        make: Makes the sampler.
        options: Fields of `SamplerOptions` that only this search accepts.
        has_defaults: Whether the search tries the space's defaults first.
        learns: Whether its suggestions depend on the values of trials.
    """

    summary: str
    make: Callable[[SamplerOptions], Sampler]
    options: tuple[str, ...] = ()
    has_defaults: bool = True
    learns: bool = True


_SEARCHES: Mapping[str, _SearchEntry] = {
    # A study's plan replaces it by what `auto.choose` returns; alone it is the most general one.
    AUTO: _SearchEntry("chooses a search by budget, space and parallelism", _tpe),
    "tpe": _SearchEntry("tree-structured Parzen estimator; fast, for any space and budget", _tpe),
    "bayesian": _SearchEntry(
        "Gaussian process; needs the fewest trials, up to a thousand", _bayesian
    ),
    "sobol": _SearchEntry("points that fill the space evenly", _sobol, learns=False),
    "random": _SearchEntry(
        "draws each hyperparameter independently on its own scale", _random, learns=False
    ),
    "grid": _SearchEntry(
        "all combinations of steps and choices; see --grid-points",
        _grid,
        options=("grid_resolution",),
        has_defaults=False,
        learns=False,
    ),
    "skopt": _SearchEntry("scikit-optimize; see --surrogate", _skopt, options=("surrogate",)),
}

SEARCH_NAMES: tuple[str, ...] = tuple(_SEARCHES)
"""Values of `--search`, besides `optuna:` with the name of one of Optuna's samplers."""

SEARCH_SUMMARIES: Mapping[str, str] = {name: each.summary for name, each in _SEARCHES.items()} | {
    f"{OPTUNA}NAME": f"a sampler of Optuna, such as {OPTUNA}TPESampler"
}
"""A one-line summary of each search."""


def make_sampler(name: str, options: SamplerOptions) -> Sampler:
    """Make the sampler with this name.

    Its first suggestions are the start points, the best trial of each earlier study and the
    space's defaults (not for the grid), in this order.

    Args:
        name: One of `SEARCH_NAMES`, or `optuna:` with the name of one of Optuna's samplers.
        options: The options.

    Raises:
        UsageError: The sampler does not exist, or does not accept these options.
    """
    search = _search(name)
    for option, flag in (("grid_resolution", "--grid-points"), ("surrogate", "--surrogate")):
        if getattr(options, option) is not None and option not in search.options:
            searches = [each for each, other in _SEARCHES.items() if option in other.options]
            raise UsageError(
                f"{flag} has no effect with --search {name}; it is for {' and '.join(searches)}"
            )
    return _wrapped(search, options)


def learns(name: str) -> bool:
    """Return whether the suggestions of this search depend on the values of trials.

    Raises:
        UsageError: The search does not exist.
    """
    return _search(name).learns


def _wrapped(search: _SearchEntry, options: SamplerOptions) -> Sampler:
    from .wrappers.start_points import StartPoints

    # Priors would change which values the grid takes.
    space = _with_priors(options) if search.has_defaults else options.space
    sampler = search.make(replace(options, space=space))
    if options.studies:
        from .wrappers.warm_start import WarmStart

        sampler = WarmStart(sampler, space, options.studies, directions=options.directions)
    if search.learns and (options.studies or options.priors):
        from .wrappers.guidance_decay import GuidanceDecay

        sampler = GuidanceDecay(sampler, search.make(options))
    points = [*_first_points(search, space, options)]
    return StartPoints(sampler, space, points) if points else sampler


def _with_priors(options: SamplerOptions) -> SearchSpace:
    from ..core.space.user_priors import with_priors

    space = options.space
    for prior in options.priors.items():
        # After a change of the space a prior may no longer fit its parameter.
        with contextlib.suppress(UsageError):
            space = with_priors(space, dict([prior]))
    return space


def _first_points(
    search: _SearchEntry, space: SearchSpace, options: SamplerOptions
) -> Iterator[Suggestion]:
    from ..core.space.completion import completed

    for point in options.start_points:
        # After a change of the space a start point may lie outside.
        with contextlib.suppress(UsageError):
            yield Suggestion(completed(space, point), "start point")
    for study in options.studies:
        if (params := study.best_within(space)) is not None:
            yield Suggestion(params, f"best of {study.name}")
    if search.has_defaults:
        yield Suggestion(completed(space, {}), "defaults")


def _search(name: str) -> _SearchEntry:
    if name in _SEARCHES:
        return _SEARCHES[name]
    if name.startswith(OPTUNA):
        sampler = name.removeprefix(OPTUNA)
        return _SearchEntry("", lambda options: _optuna(sampler, options))
    raise UsageError(
        f"unknown search {name!r}; allowed are {', '.join(SEARCH_SUMMARIES)}."
        f"{did_you_mean(name, SEARCH_NAMES, likeness=0.5)}"
    )
