"""Samplers by name. A sampler's module is imported only when the sampler is made."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from ..core.kinds import whole_number
from ..core.table import option
from ..core.trial import Direction, Suggestion
from ..errors import UsageError
from ..registry import Family, Registry, Row, Target, loaded

if TYPE_CHECKING:  # a list of names must not import NumPy
    from ..core.sampler import Sampler
    from ..core.space.earlier_study import EarlierStudy
    from ..core.space.space import SearchSpace
    from ..core.space.user_priors import PriorSpec

AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerRow(Row):
    """A sampler that can be chosen: `factory(space, seed, directions=…, **options)`.

    Attributes:
        learns: Whether its suggestions depend on the values of trials.
        tries_defaults: Whether the space's defaults are tried first.
        takes_seconds: Whether a suggestion may take seconds, so that some are made ahead.
        count: For a sampler that tries a list of configurations of its own: returns its length
            when called as `count(space, **options)`.
    """

    learns: bool = True
    tries_defaults: bool = True
    takes_seconds: bool = False
    count: Target | None = None

    what: ClassVar[str] = "search"
    group: ClassVar[str] = "hptune.samplers"
    arguments: ClassVar[tuple[str, ...]] = ("space", "seed")
    keywords: ClassVar[tuple[str, ...]] = ("directions",)


_TPE = "hptune.samplers.tpe.sampler:TpeSampler"
_OPTUNA = "hptune.samplers.adapters.optuna:"

SAMPLERS = Registry(
    SamplerRow,
    (
        # A study's plan replaces it by what `auto.choose` returns; alone it is the most general.
        SamplerRow(
            name=AUTO, summary="chooses a search by budget, space and parallelism", factory=_TPE
        ),
        SamplerRow(
            name="tpe",
            summary="tree-structured Parzen estimator; fast, for any space and budget",
            factory=_TPE,
        ),
        SamplerRow(
            name="bayesian",
            summary="Gaussian process; needs the fewest trials, up to a thousand",
            factory="hptune.samplers.gp.sampler:BayesianSampler",
            takes_seconds=True,
        ),
        SamplerRow(
            name="sobol",
            summary="points that fill the space evenly",
            factory="hptune.samplers.sobol:SobolSampler",
            learns=False,
        ),
        SamplerRow(
            name="random",
            summary="draws each hyperparameter independently on its own scale",
            factory="hptune.samplers.random_search:RandomSampler",
            learns=False,
        ),
        SamplerRow(
            name="grid",
            summary="all combinations of steps and choices; see --grid-points",
            factory="hptune.samplers.grid:GridSampler",
            options=(
                option(
                    "grid_resolution",
                    whole_number(2, 1_000_000),
                    "number of values of each continuous hyperparameter.",
                    default_text="10",
                    flag="--grid-points",
                ),
            ),
            learns=False,
            tries_defaults=False,
            count="hptune.samplers.grid:grid_size",
        ),
        SamplerRow(
            name="skopt",
            summary="the Gaussian process of scikit-optimize",
            factory="hptune.samplers.adapters.skopt:SkoptSampler",
            needs="skopt",
            takes_seconds=True,
        ),
    ),
    (
        Family(
            row=SamplerRow(
                name="optuna",
                summary="a sampler of Optuna",
                factory=f"{_OPTUNA}OptunaSampler",
                checks=f"{_OPTUNA}check",
                needs="optuna",
                takes_seconds=True,
            ),
            base="optuna.samplers:BaseSampler",
            example="TPESampler",
            without=("BruteForceSampler", "GridSampler", "PartialFixedSampler"),
        ),
    ),
)
"""Values of `--search`."""


def is_listed(search: str) -> bool:
    """Return whether a search tries a list of configurations of its own, and then ends."""
    row = SAMPLERS.known(search)
    return row is not None and row.count is not None


def listed(search: str, space: SearchSpace, given: Mapping[str, object]) -> int | None:
    """Return how many configurations such a search tries; None for any other."""
    row = SAMPLERS.known(search)
    if row is None or row.count is None:
        return None
    count: int = loaded(row.count)(space, **row.read(given))
    return count


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerOptions:
    """What a study's sampler is made with.

    Attributes:
        space: The search space.
        seed: The study's seed, 0 or more.
        directions: Directions of the objectives.
        own: Options of this sampler alone, by name.
        start_points: Configurations to try first, possibly incomplete
            (`core.space.completion`). Those outside the space are skipped.
        studies: Earlier studies to learn from.
        priors: Priors on parameters, by name (`core.space.user_priors`).
    """

    space: SearchSpace
    seed: int
    directions: Sequence[Direction]
    own: Mapping[str, Any] = field(default_factory=dict)
    start_points: Sequence[Mapping[str, object]] = ()
    studies: Sequence[EarlierStudy] = ()
    priors: Mapping[str, PriorSpec] = field(default_factory=dict)


def make_sampler(search: str | SamplerRow, options: SamplerOptions) -> Sampler:
    """Make a sampler.

    Its first suggestions are the start points, the best trial of each earlier study and the
    space's defaults (not for the grid), in this order.

    Args:
        search: The row of the sampler, or its name.
        options: The options.

    Raises:
        UsageError: The sampler does not exist, or does not accept these options.
        StudyError: What a plug-in has made is no sampler.
    """
    from .wrappers.start_points import StartPoints

    row = SAMPLERS.find(search) if isinstance(search, str) else search
    # Priors would change which values the grid takes.
    space = _with_priors(options) if row.tries_defaults else options.space
    sampler = _made(row, space, options)
    if options.studies:
        from .wrappers.warm_start import WarmStart

        sampler = WarmStart(sampler, space, options.studies, directions=options.directions)
    if row.learns and (options.studies or options.priors):
        from .wrappers.guidance_decay import GuidanceDecay

        sampler = GuidanceDecay(sampler, _made(row, options.space, options))
    points = [*_first_points(row, space, options)]
    return StartPoints(sampler, space, points) if points else sampler


def _made(row: SamplerRow, space: SearchSpace, options: SamplerOptions) -> Sampler:
    from .wrappers.checked import CheckedSampler

    return CheckedSampler(
        row.name,
        space,
        lambda: row.make(space, options.seed, directions=options.directions, given=options.own),
    )


def _with_priors(options: SamplerOptions) -> SearchSpace:
    from ..core.space.user_priors import with_priors

    space = options.space
    for prior in options.priors.items():
        # After a change of the space a prior may no longer fit its parameter.
        with contextlib.suppress(UsageError):
            space = with_priors(space, dict([prior]))
    return space


def _first_points(
    row: SamplerRow, space: SearchSpace, options: SamplerOptions
) -> Iterator[Suggestion]:
    from ..core.space.completion import completed

    for point in options.start_points:
        # After a change of the space a start point may lie outside.
        with contextlib.suppress(UsageError):
            yield Suggestion(completed(space, point), "start point")
    for study in options.studies:
        if (params := study.best_within(space)) is not None:
            yield Suggestion(params, f"best of {study.name}")
    if row.tries_defaults:
        yield Suggestion(completed(space, {}), "defaults")
