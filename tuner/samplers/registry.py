"""The samplers, by the names that users call them. Each is loaded when it is asked for."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:  # nothing heavy is loaded for a list of names
    from ..core.sampler import Sampler
    from ..core.space.earlier_study import EarlierStudy
    from ..core.space.space import SearchSpace
    from ..core.space.user_priors import PriorSpec
    from ..core.trial import Direction, Suggestion

AUTO = "auto"
OPTUNA = "optuna:"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOptions:
    """All that a sampler may want to know; each takes from it what it needs.

    Attributes:
        space: What to search.
        seed: The study's seed, 0 or more.
        direction: Which values are better; None where nobody said, which searches that look at
            values must refuse. With several objectives, of the first one.
        further: Which values are better of the objectives after the first.
        trials: The total number of trials, for `auto`; None if it is not known.
        at_once: How many trials run at once, for `auto`.
        grid_resolution: For `grid`: how many values it takes of a parameter without steps, 2 or
            more; None for 10.
        surrogate: For `skopt`: its model; None for "gp".
        start_points: What to try first, as far as it lies in the space; see `core.completion`.
        studies: Earlier studies to learn from.
        priors: Priors on parameters, by name; see `core.space.user_priors`.
    """

    space: SearchSpace
    seed: int
    direction: Direction | None = None
    further: Sequence[Direction] = ()
    trials: int | None = None
    at_once: int = 1
    grid_resolution: int | None = None
    surrogate: str | None = None
    start_points: Sequence[Mapping[str, object]] = ()
    studies: Sequence[EarlierStudy] = ()
    priors: Mapping[str, PriorSpec] = field(default_factory=dict)


def _auto(options: SamplerOptions) -> Sampler:
    from .auto import choose

    choice = choose(options.space, trials=options.trials, at_once=options.at_once)
    return make_sampler(choice.search, replace(options, grid_resolution=choice.grid_resolution))


def _tpe(options: SamplerOptions) -> Sampler:
    from .tpe.sampler import TpeSampler

    direction = _direction("tpe", options)
    return TpeSampler(options.space, options.seed, direction=direction, further=options.further)


def _bayesian(options: SamplerOptions) -> Sampler:
    from .gp.sampler import BayesianSampler

    direction = _direction("bayesian", options)
    return BayesianSampler(
        options.space, options.seed, direction=direction, further=options.further
    )


def _sobol(options: SamplerOptions) -> Sampler:
    from .sobol import SobolSampler

    return SobolSampler(options.space, options.seed)


def _random(options: SamplerOptions) -> Sampler:
    from .random_search import RandomSampler

    return RandomSampler(options.space, options.seed)


def _grid(options: SamplerOptions) -> Sampler:
    from .grid import DEFAULT_RESOLUTION, GridSampler

    resolution = options.grid_resolution
    return GridSampler(
        options.space,
        resolution=DEFAULT_RESOLUTION if resolution is None else resolution,
    )


def _skopt(options: SamplerOptions) -> Sampler:
    from .adapters.skopt import SURROGATES, SkoptSampler

    surrogate = options.surrogate or "gp"
    if surrogate not in SURROGATES:
        raise UsageError(
            f"there is no surrogate called {surrogate!r}; allowed are {', '.join(SURROGATES)}."
            f"{_meant(surrogate, SURROGATES)}"
        )
    direction = _direction("skopt", options)
    return SkoptSampler(
        options.space,
        options.seed,
        direction=direction,
        further=options.further,
        surrogate=surrogate,
    )


def _optuna(name: str, options: SamplerOptions) -> Sampler:
    from .adapters.optuna import OptunaSampler

    direction = _direction(OPTUNA + name, options)
    return OptunaSampler(
        options.space, options.seed, direction=direction, name=name, further=options.further
    )


def _direction(name: str, options: SamplerOptions) -> Direction:
    if options.direction is None:
        raise UsageError(
            f"the search {name!r} looks at values, and nobody said which are better; "
            "say --direction max or --direction min"
        )
    return options.direction


@dataclass(frozen=True, slots=True)
class _Search:
    words: str
    make: Callable[[SamplerOptions], Sampler]
    heeds: tuple[str, ...] = ()
    has_defaults: bool = True
    learns: bool = True


_SEARCHES: Mapping[str, _Search] = {
    AUTO: _Search("picks one by budget, space and parallelism, and says which and why", _auto),
    "tpe": _Search("densities of good and bad trials; at once, for any space and budget", _tpe),
    "bayesian": _Search("a Gaussian process; the fewest trials, up to a thousand", _bayesian),
    "sobol": _Search("points that fill the space evenly", _sobol, learns=False),
    "random": _Search("each hyperparameter drawn on its own scale", _random, learns=False),
    "grid": _Search(
        "all steps and choices, see --grid-points",
        _grid,
        heeds=("grid_resolution",),
        has_defaults=False,
        learns=False,
    ),
    "skopt": _Search("scikit-optimize, see --surrogate", _skopt, heeds=("surrogate",)),
}

SEARCH_NAMES: tuple[str, ...] = tuple(_SEARCHES)
"""What `--search` accepts, besides `optuna:` with the name of one of Optuna's samplers."""

SEARCH_WORDS: Mapping[str, str] = {name: each.words for name, each in _SEARCHES.items()} | {
    f"{OPTUNA}NAME": f"a sampler of Optuna's, such as {OPTUNA}TPESampler"
}
"""What each of them is, in one line."""


def make_sampler(name: str, options: SamplerOptions) -> Sampler:
    """Make the sampler of this name, which begins with what is known to be worth a trial.

    First come the start points, then the best of each earlier study, then, for every search but
    the grid, the space's defaults.

    Args:
        name: One of `SEARCH_NAMES`, or `optuna:` with the name of one of Optuna's samplers.
        options: What it should know.

    Raises:
        UsageError: There is no such sampler, or it cannot work with these options.
    """
    search = _search(name)
    for option, flag in (("grid_resolution", "--grid-points"), ("surrogate", "--surrogate")):
        if getattr(options, option) is not None and option not in search.heeds:
            heeding = [each for each, other in _SEARCHES.items() if option in other.heeds]
            raise UsageError(
                f"{flag} means nothing to --search {name}; it is for {' and '.join(heeding)}"
            )
    return search.make(options) if name == AUTO else _beginning(search, options)


def learns(name: str) -> bool:
    """Whether the search of this name proposes by what trials came to.

    Raises:
        UsageError: There is no such search.
    """
    return _search(name).learns


def _beginning(search: _Search, options: SamplerOptions) -> Sampler:
    from ..core.space.completion import completed
    from ..core.trial import Suggestion
    from .wrappers.start_points import StartPoints

    # A grid takes the values of a space as they are.
    space = _believed(options) if search.has_defaults else options.space
    sampler = search.make(replace(options, space=space))
    if options.studies and options.direction is not None:
        from .wrappers.warm_start import WarmStart

        sampler = WarmStart(
            sampler,
            space,
            options.studies,
            direction=options.direction,
            further=options.further,
        )
    if search.learns and (options.studies or options.priors):
        from .wrappers.guidance_decay import GuidanceDecay

        sampler = GuidanceDecay(sampler, search.make(options))
    points = [*_fitting(space, options.start_points), *_best_ones(space, options.studies)]
    if search.has_defaults:
        points.append(Suggestion(completed(space, {}), "defaults"))
    return StartPoints(sampler, space, points) if points else sampler


def _believed(options: SamplerOptions) -> SearchSpace:
    from ..core.space.user_priors import with_priors

    space = options.space
    for prior in options.priors.items():
        # A space that changed since the study began may leave no room for it.
        with contextlib.suppress(UsageError):
            space = with_priors(space, dict([prior]))
    return space


def _fitting(space: SearchSpace, given: Sequence[Mapping[str, object]]) -> Iterator[Suggestion]:
    from ..core.space.completion import completed
    from ..core.trial import Suggestion

    for point in given:
        # A space that changed since the study began may have no room for it any more.
        with contextlib.suppress(UsageError):
            yield Suggestion(completed(space, point), "start point")


def _best_ones(space: SearchSpace, studies: Sequence[EarlierStudy]) -> Iterator[Suggestion]:
    from ..core.trial import Suggestion

    for study in studies:
        params = study.best_within(space)
        if params is not None:
            yield Suggestion(params, f"best of {study.name}")


def _search(name: str) -> _Search:
    if name in _SEARCHES:
        return _SEARCHES[name]
    if name.startswith(OPTUNA):
        sampler = name.removeprefix(OPTUNA)
        return _Search("", lambda options: _optuna(sampler, options))
    raise UsageError(
        f"there is no search called {name!r}; allowed are {', '.join(SEARCH_WORDS)}."
        f"{_meant(name, SEARCH_NAMES)}"
    )


def _meant(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name.lower(), list(names), n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else ""
