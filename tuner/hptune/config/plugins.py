"""What the settings name: sampler, pruner, executor, cluster; also what Python gave a study."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from ..core.pruner import Pruner, PrunerMaker, PrunerSettings
from ..core.trial import Goal
from ..errors import StudyError, UsageError, faults_of_others
from ..pruners.registry import PRUNERS, make_pruner
from ..registry import STORED, Registry, Row, shown_name
from ..samplers.registry import SAMPLERS, SamplerRow
from ..user_code.pickling import pickled, read_pickle, write_pickle
from ..user_code.source import SourceKind
from .places import AUTO, CLUSTERS, EXECUTORS, ClusterRow, ExecutorRow
from .settings import StudySettings

R = TypeVar("R", bound=Row)

_given: dict[str, Any] = {}
"""Rows of what Python gave in this process, by name; it may not be stored yet."""


def find(registry: Registry[R], name: str, settings: StudySettings) -> R:
    """Return the row that the settings mean by a name.

    Raises:
        UsageError: There is no such thing.
    """
    source = settings.source
    if name in _given and Path(source.path).parent == Path():  # the study has no directory yet
        found: R = _given[name]
        return found
    if STORED in name and source.kind is SourceKind.PICKLE:
        return _stored(registry, name, _file(Path(source.path).parent, name))
    folders = [Path(source.path).parent] if source.kind is SourceKind.FILE else []
    return registry.find(name, [*dict.fromkeys((*folders, Path(settings.working_directory)))])


def find_sampler(settings: StudySettings) -> SamplerRow:
    """Return the row of the settings' search.

    Raises:
        UsageError: There is no such search.
    """
    return find(SAMPLERS, settings.search, settings)


def find_executor(settings: StudySettings) -> ExecutorRow:
    """Return the row of the settings' executor.

    Raises:
        UsageError: There is no such executor.
    """
    return find(EXECUTORS, settings.executor, settings)


def chosen_cluster(settings: StudySettings) -> ClusterRow | None:
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
    cluster = chosen_cluster(settings) or CLUSTERS.known(settings.cluster)
    stay = f"the workers keep their devices (`hptune stop {directory}` frees them)"
    return f"running trials continue, and {(cluster and cluster.pauses) or stay}"


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


def pruner_maker(settings: StudySettings) -> PrunerMaker:
    """Return what makes the pruners of a study's runs, for its engine.

    It raises StudyError if one of them cannot be found any more.
    """

    def make(asked: PrunerSettings, objectives: Sequence[Goal]) -> Pruner:
        try:
            row = find(PRUNERS, asked.name, settings)
        except UsageError as error:
            raise StudyError(error.message, error.detail) from error
        return make_pruner(asked, objectives, row)

    return make


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


def _stored(registry: Registry[R], name: str, path: Path) -> R:
    def broken(words: str, _: str) -> UsageError:
        return UsageError(
            f"the study's {registry.what} {shown_name(name)} cannot be loaded from {path}: {words}."
            " Give back that file, or make what it needs importable (PYTHONPATH names its folder)"
        )

    with faults_of_others(broken):  # a module that it needs may be gone
        thing = read_pickle(path)
    return registry.row_of(thing, shown_name(name))
