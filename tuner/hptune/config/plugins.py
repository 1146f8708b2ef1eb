"""What the settings name: sampler, pruner, executor, cluster; also what Python gave a study."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..core.goals import Goals
from ..core.kinds import enumerated
from ..core.pruner import Pruner, PrunerMaker, PrunerSettings
from ..core.sampler import Sampler
from ..core.space.space import SearchSpace
from ..core.trial import Goal
from ..errors import StudyError, UsageError, faults_of_others
from ..pruners.registry import PRUNERS, PrunerRow, make_pruner
from ..registry import STORED, Registry, Row, shown_name
from ..samplers.registry import SAMPLERS, SamplerRow
from ..user_code.model_file import SourceKind
from ..user_code.pickling import pickled, read_pickle, write_pickle
from .places import AUTO, CLUSTERS, EXECUTORS, ClusterRow, ExecutorRow
from .settings import SETTINGS, StudySettings

R = TypeVar("R", bound=Row)

_given: dict[str, Any] = {}
"""Rows of what Python gave in this process, by name; it may not be stored yet."""


def find_sampler(settings: StudySettings) -> SamplerRow:
    """Return the row of the settings' search.

    Raises:
        UsageError: There is no such search.
    """
    return _find(SAMPLERS, settings.search, settings)


def find_pruner(settings: StudySettings) -> PrunerRow:
    """Return the row of the settings' pruner.

    Raises:
        UsageError: There is no such pruner.
    """
    return _find(PRUNERS, settings.pruner or "none", settings)


def find_executor(settings: StudySettings) -> ExecutorRow:
    """Return the row of the settings' executor.

    Raises:
        UsageError: There is no such executor.
    """
    return _find(EXECUTORS, settings.executor, settings)


def find_cluster(settings: StudySettings) -> ClusterRow:
    """Return the row of the cluster that the settings name, or that one of its options chooses.

    Raises:
        UsageError: There is no such cluster.
    """
    return _chosen_cluster(settings) or _find(CLUSTERS, settings.cluster, settings)


def _chosen_cluster(settings: StudySettings) -> ClusterRow | None:
    """Return the cluster that one of its options chooses; None if none does."""
    for row in CLUSTERS.built_in.values() if settings.cluster == AUTO else ():
        if row.chosen_by and getattr(settings, row.chosen_by):
            return row
    return None


def pause_text(directory: Path, stored: Mapping[str, Any]) -> str:
    """Return what becomes of the trials and workers of a paused study, in words.

    Args:
        directory: The study's directory.
        stored: Its settings, as the ledger has them.
    """
    settings = StudySettings.from_json(stored)
    # One that the study names by a file is not loaded: the study may be another user's.
    cluster = _chosen_cluster(settings) or CLUSTERS.known(settings.cluster)
    stay = f"the workers keep their devices (`hptune stop {directory}` frees them)"
    return f"running trials go on, and {(cluster and cluster.pauses) or stay}"


def cluster_options(settings: StudySettings, row: ClusterRow) -> dict[str, Any]:
    """Return the options given to a cluster, without those of others that have a flag."""
    known = {option.name for option in row.options} | settings.cluster_options.keys()
    return {n: v for n, v in settings.own_options(row.what).items() if n in known}


def made(
    row: Row,
    kind: type[Any],
    *arguments: object,
    given: Mapping[str, object],
    **keywords: object,
) -> Any:
    """Return what the row's factory makes.

    Args:
        row: The row.
        kind: The class that it must have.
        arguments: The arguments of its factory.
        given: The options that the user gave.
        keywords: The values of the row's `keywords`.

    Raises:
        UsageError: The factory failed, or made something else.
    """
    name = f"--{row.what} is {row.name}, which"
    with faults_of_others(lambda words, more: UsageError(f"{name} failed: {words}", more)):
        thing = row.make(*arguments, given=given, **keywords)
    if not isinstance(thing, kind):
        raise UsageError(f"{name} is no {kind.__name__}, but made {thing!r}")
    return thing


def check_place(settings: StudySettings) -> None:
    """Check where trials run; nothing is made or connected.

    Raises:
        UsageError: There is no such cluster or executor, or they and their options do not fit
            together.
    """
    executor_options = settings.own_options(EXECUTORS.what)
    executor, cluster = find_executor(settings), find_cluster(settings)
    given = cluster_options(settings, cluster)
    if settings.chooses_split and not executor.shares_workers:
        raise UsageError(
            f"{settings.splitting_option} is auto, which chooses the devices of each trial, and "
            f"--executor is {executor.name}; leave one of them out"
        )
    if not cluster.is_local:
        chosen = cluster.chosen_by if settings.cluster == AUTO else CLUSTERS.what
        if settings.workers:
            raise UsageError(settings.one_place(chosen, "workers"))
        if not executor.elsewhere:
            raise UsageError(settings.one_place(chosen, EXECUTORS.what))
    executor.check(executor_options)
    if cluster.chosen_by and cluster.chosen_by not in given:
        raise UsageError(
            f"--cluster is {cluster.name}, which needs {cluster.choice}; see `hptune run --help`"
        )
    cluster.check(given)


def pruner_maker(settings: StudySettings) -> PrunerMaker:
    """Return what makes the pruners of a study's runs, for its engine.

    It raises StudyError if one of them cannot be found any more.
    """

    def make(asked: PrunerSettings, objectives: Sequence[Goal]) -> Pruner:
        try:
            row = _find(PRUNERS, asked.name, settings)
        except UsageError as error:
            raise StudyError(error.message, error.detail) from error
        return make_pruner(asked, objectives, row)

    return make


def check_plug_ins(
    settings: StudySettings, asked: PrunerSettings, goals: Goals, *, space: SearchSpace, seed: int
) -> None:
    """Make a sampler and a pruner of others once, before there is a study that needs them.

    Raises:
        UsageError: One of them cannot be made, such as because it refuses its options.
    """
    sampler, pruner = find_sampler(settings), find_pruner(settings)
    directions = tuple(goal.direction for goal in goals.objectives)
    if sampler.name not in SAMPLERS.built_in:
        own = settings.own_options(SAMPLERS.what)
        made(sampler, Sampler, space, seed, given=own, directions=directions)
    if pruner.name not in PRUNERS.built_in:
        made(pruner, Pruner, given=asked.options, directions=directions, epochs=asked.epochs)


def check_own_options(settings: StudySettings, row: Row) -> None:
    """Check that the built-in options that were given are for this search or pruner.

    Raises:
        UsageError: One is for others.
    """
    known = {option.name for option in row.options}
    for each in SETTINGS:
        is_given = each.owner == row.what and getattr(settings, each.name) is not None
        if is_given and each.name not in known:
            raise UsageError(
                f"{each.flag} is given, but --{row.what} is {row.name}; {each.flag} is for "
                f"{enumerated(*each.owners)}"
            )


class Given:
    """A sampler, pruner, executor or cluster that Python gave; the study stores it in a file.

    Attributes:
        name: What the settings call it: its name in Python, and a digest of its pickle, so that
            runs of a study that were given another one find theirs.
        row: Its row.

    Args:
        registry: Where things of its kind are found.
        thing: The class, function or object.

    Raises:
        UsageError: It makes no sampler or pruner, or it cannot be pickled.
    """

    def __init__(self, registry: Registry[Any], thing: object) -> None:
        self.row: Any = registry.row_of(thing)
        try:
            self._contents = pickled(thing)
        except Exception as error:  # an object that cannot be pickled may raise anything
            raise UsageError(
                f"--{registry.what} is {self.row.name}, which cannot be stored with the study "
                f"({str(error).rstrip('.')}); define it in a Python file, and name it module:Name"
            ) from error
        digest = hashlib.sha256(self._contents).hexdigest()[:8]
        self.name = f"{self.row.name}{STORED}{digest}"
        _given[self.name] = self.row

    def store(self, directory: Path) -> None:
        """Write it into a study's directory."""
        write_pickle(self.file(directory), self._contents)

    def file(self, directory: Path) -> Path:
        """Return the file that `store` writes."""
        return _file(directory, self.name)


def _file(directory: Path, name: str) -> Path:
    return directory / f"{name}.pkl"


def _find(registry: Registry[R], name: str, settings: StudySettings) -> R:
    source = settings.source
    if name in _given and Path(source.path).parent == Path():  # the study has no directory yet
        found: R = _given[name]
        return found
    if STORED in name and source.kind is SourceKind.PICKLE:
        return _stored(registry, name, _file(Path(source.path).parent, name))
    folders = [Path(source.path).parent] if source.kind is SourceKind.FILE else []
    return registry.find(name, [*dict.fromkeys((*folders, Path(settings.working_directory)))])


def _stored(registry: Registry[R], name: str, path: Path) -> R:
    def broken(words: str, _: str) -> UsageError:
        return UsageError(
            f"the study's {registry.what} {shown_name(name)} cannot be loaded from {path}: {words}."
            " Give back that file, or make what it needs importable (PYTHONPATH names its folder)"
        )

    with faults_of_others(broken):  # a module that it needs may be gone
        thing = read_pickle(path)
    return registry.row_of(thing, shown_name(name))
