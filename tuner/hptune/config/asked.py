"""The first of three moments: what the options say among themselves. No code of the user is read.

`resolved` comes next, with the user's code, and then `master/plan`, with the machine. Each returns
a value that only it makes and the next one takes, so that each rule has one place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.data_parallel import StrategyChoice
from ..core.goals import Goals
from ..core.kinds import enumerated
from ..core.trial import Direction
from ..errors import UsageError
from ..pruners.registry import PRUNERS, PrunerRow
from ..registry import Row, shown_name
from ..samplers.registry import SAMPLERS, SamplerRow
from ..user_code.source import SourceKind
from . import kinds
from .objectives import check_objectives
from .places import AUTO, CLUSTERS, EXECUTORS, ClusterRow, ExecutorRow
from .plugins import chosen_cluster, find, find_executor, find_sampler
from .settings import SETTINGS, SOURCES, StudySettings, option

PLENTY = 1_000_000
"""More epochs than anybody trains; used while their number is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Settings that fit together, and what they name.

    Attributes:
        settings: The settings.
        sampler: The row of their search.
        pruner: The row of their pruner.
        executor: The row of their executor.
        cluster: The row of the cluster that they name, or that one of its options chooses.
    """

    settings: StudySettings
    sampler: SamplerRow
    pruner: PrunerRow
    executor: ExecutorRow
    cluster: ClusterRow


def asked(
    settings: StudySettings, *, goals: Goals | None = None, epochs: int | None = None
) -> Asked:
    """Return settings with what they name, after checking what they say among themselves.

    Args:
        settings: What the user asks for.
        goals: The goals of a study that is resumed; None for a new one.
        epochs: The full training of such a study's trials; None if unknown.

    Raises:
        UsageError: They do not fit together, or name something that there is not.
    """
    _check_source(settings)
    check_objectives(settings.objectives, settings.constraints)
    _check_confirmations(settings)
    _check_place(settings)
    _check_split(settings)
    found = Asked(
        settings=settings,
        executor=find_executor(settings),
        cluster=chosen_cluster(settings) or find(CLUSTERS, settings.cluster, settings),
        sampler=find_sampler(settings),
        pruner=find(PRUNERS, settings.pruner or "none", settings),
    )
    for row in (found.sampler, found.pruner, found.executor, found.cluster):
        _check_flags(settings, row)
    _check_workers(found)
    for each in (found.sampler, found.pruner, found.cluster):
        _check_own_options(settings, each)
    _check_priors(settings, found.sampler)
    if goals is not None:
        check_methods(found, [goal.direction for goal in goals.objectives], epochs)
    else:  # only what the options say; `resolved` knows the rest
        directions = [Direction.MAX] * max(1, len(settings.objectives))
        known = settings if settings.epochs else replace(settings, brackets=None)
        check_methods(replace(found, settings=known), directions, settings.epochs or PLENTY)
    return found


def check_methods(asked: Asked, directions: Sequence[Direction], epochs: int | None) -> None:
    """Check that search and pruner can work with these objectives and epochs.

    Raises:
        UsageError: One cannot.
    """
    settings = asked.settings
    asked.sampler.check(settings.own_options(SAMPLERS.what), directions=tuple(directions))
    own = settings.own_options(PRUNERS.what)
    asked.pruner.check(own, directions=tuple(directions), epochs=epochs)


def _check_priors(settings: StudySettings, sampler: SamplerRow) -> None:
    """Check that a search uses the priors that are given.

    Raises:
        UsageError: It ignores them.
    """
    if sampler.count is not None and settings.priors:
        raise UsageError(
            f"--search {sampler.name} tries every value and ignores priors; leave --prior out"
        )


def cluster_options(settings: StudySettings, row: ClusterRow) -> dict[str, Any]:
    """Return the options given to a cluster, without those of others that have a flag."""
    known = {each.name for each in row.options}
    given = settings.own_options(row.what)
    return {n: v for n, v in given.items() if n in known or f"{row.what}.{n}" in settings.options}


def _check_source(settings: StudySettings) -> None:
    for name in ("entry", "python"):
        if (value := getattr(settings, name)) and settings.source.kind is SourceKind.PICKLE:
            raise UsageError(
                f"{option(name)} is {value!r}, but it needs a model file, and Tuner is given "
                "what to tune; leave it out"
            )


def _check_confirmations(settings: StudySettings) -> None:
    if settings.confirm_repeats is not None and not settings.confirm:
        raise UsageError(
            f"--confirm-repeats is {settings.confirm_repeats}, but --confirm is 0, so nothing is "
            "trained again; say how many of the best configurations are, such as --confirm 3, or "
            "leave --confirm-repeats out"
        )


def _check_place(settings: StudySettings) -> None:
    row = CLUSTERS.built_in.get(settings.cluster)
    given = [name for name in (*SOURCES, "workers") if getattr(settings, name)]
    if settings.cluster != AUTO:  # one of the user's own is checked when it is found
        allowed = ("workers",) if row is None or row.is_local else (row.chosen_by,)
        given = ["cluster", *(name for name in given if name not in allowed)]
    if len(given) > 1:
        raise _one_place(settings, *given[:2])


def _one_place(settings: StudySettings, one: str, other: str) -> UsageError:
    """Return that two settings do not fit together that both say where workers are."""
    shown = []
    for name in (one, other):
        value = getattr(settings, name)
        shown_value = shown_name(value) if isinstance(value, str) else value
        shown.append(f"{option(name)} is {shown_value!r}")
    return UsageError(f"{' and '.join(shown)}, but workers come from one place; give one of them")


def _check_split(settings: StudySettings) -> None:
    """Check that nothing else says how many devices a trial has if they are chosen."""
    if not settings.chooses_split:
        return
    others = ("gpus_per_trial", "processes_per_trial", "nodes_per_trial")
    wrong = [each for each in others if getattr(settings, each) not in (None, 0, kinds.AUTO)]
    if settings.cpus_per_trial is not None and settings.cpus_per_trial < 1:
        wrong.append("cpus_per_trial")
    if settings.strategy is StrategyChoice.NONE:
        wrong.append("strategy")
    if settings.fixed_processes == 1:
        raise UsageError(
            "--gpus-per-trial is auto, which gives each GPU a process of its own, and "
            "--processes-per-trial is 1; leave that out, or measure one process by `hptune "
            "scaling --one-process` and give its number of GPUs"
        )
    if wrong:
        raise UsageError(
            f"{settings.splitting_option} is auto, which chooses the devices of each trial, and "
            f"{option(wrong[0])} is {getattr(settings, wrong[0])}; leave one of them out"
        )


def _check_workers(asked: Asked) -> None:
    """Check that cluster and executor fit together, and have the options that are given."""
    settings, cluster, executor = asked.settings, asked.cluster, asked.executor
    if settings.chooses_split and not executor.shares_workers:
        raise UsageError(
            f"{settings.splitting_option} is auto, which chooses the devices of each trial, and "
            f"--executor is {executor.name}; leave one of them out"
        )
    if not cluster.is_local:
        chosen = cluster.chosen_by if settings.cluster == AUTO else CLUSTERS.what
        if settings.workers:
            raise _one_place(settings, chosen, "workers")
        if not executor.elsewhere:
            raise _one_place(settings, chosen, EXECUTORS.what)
    executor.check(settings.own_options(EXECUTORS.what))
    given = cluster_options(settings, cluster)
    if cluster.chosen_by and cluster.chosen_by not in given:
        raise UsageError(
            f"--cluster is {cluster.name}, which needs {cluster.choice}; "
            "`hptune run --help-all` explains it"
        )
    cluster.check(given)
    if settings.first and (settings.min_workers or 0) > 1:
        raise UsageError(
            f"--first is {settings.first}, whose trials run in one job, and --min-workers is "
            f"{settings.min_workers}, for which they would wait; leave one of them out"
        )


def _check_flags(settings: StudySettings, row: Row) -> None:
    """Check that an option that has a flag is given by it: of two ways, one would not count."""
    for each in SETTINGS:
        name = f"{row.what}.{each.name}"
        if each.owner == row.what and row.name in each.owners and name in settings.options:
            raise UsageError(
                f"--option {name} is given, but it is {each.flag} of --{row.what} {row.name}; give "
                f"{each.flag} instead"
            )


def _check_own_options(settings: StudySettings, row: Row) -> None:
    """Check that the built-in options that were given are for this search, pruner or cluster."""
    known = {option.name for option in row.options}
    built_in = CLUSTERS.built_in if row.what == CLUSTERS.what else {}
    choices = {name: built_in[name].choice for name in built_in}
    choice = choices.get(row.name, row.name)
    place = f"so is {choice}" if choice.startswith("--") else f"--{row.what} is {choice}"
    for each in SETTINGS:
        is_given = each.owner == row.what and getattr(settings, each.name) is not None
        if is_given and each.name not in known:
            names = [choices.get(name, name) for name in each.owners]
            raise UsageError(
                f"{each.flag} is given, but {place}; {each.flag} is for {enumerated(*names)}"
            )
