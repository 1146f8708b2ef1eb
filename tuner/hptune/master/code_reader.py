"""What the user's code declares: read once, in a child of the fork server."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..clusters.base import Cluster
from ..clusters.layout import trial_resources
from ..config.asked import Asked
from ..core.resources import Resources
from ..core.space.completion import completed
from ..core.space.parameters.json_form import JsonEntry
from ..core.space.space import SearchSpace
from ..core.trial import Params, Suggestion
from ..errors import UsageError
from ..reporting.terminal.display import progress_on, progress_stream
from ..user_code.source import OF_EACH_TRIAL, Found, ObjectiveSource, SourceKind
from ..worker.forkserver.client import Busy, ForkServer
from ..worker.orders import ModelOrder, ProbeOrder, SizeOrder


def reading(source: ObjectiveSource, directory: Path | None = None) -> str:
    """Return what users are told when their code is read, for the study in a directory or none."""
    if source.kind is not SourceKind.FILE:
        return "reading the model function"
    path = Path(source.path)
    is_command = path.parent == directory  # the file that runs the user's command
    return "reading the search space of the command" if is_command else f"reading {path.name}"


def read_code(source: ObjectiveSource, *, quiet: bool = False) -> Found:
    """Return what the user's code declares, for no study; meanwhile the user sees what it does.

    Args:
        source: The user's code.
        quiet: Whether to show nothing.

    Raises:
        ModelFileError: It cannot be used.
    """
    order, words = ProbeOrder(source, "", cache_bytes=0), reading(source)
    with contextlib.ExitStack() as stack:
        busy = stack.enter_context(progress_on(progress_stream(), quiet=quiet)).busy
        fork_server = ForkServer(source)
        stack.callback(fork_server.rest)
        return fork_server.probe(order, lambda what: busy(what or words))


class CodeReader:
    """Runs the user's code in the fork server, to learn what it declares.

    Attributes:
        is_sized: Whether the code computes the resources of each configuration (RESOURCES is a
            function). False until the code is read.
        runs_elsewhere: Whether trials work where their use of the machine is not measured. False
            until the code is read.

    Args:
        asked: What the user asked for.
        fork_server: Runs the code.
        cluster: Limits what a trial can ask for.
    """

    def __init__(self, asked: Asked, fork_server: ForkServer, cluster: Cluster) -> None:
        self.is_sized = self.runs_elsewhere = False
        self._asked = asked
        self._settings = asked.settings
        self._fork_server = fork_server
        self._cluster = cluster

    def read(self, directory: Path, busy: Busy) -> Found:
        """Return what the user's code declares.

        Args:
            directory: The study's directory.
            busy: Called several times a second with what the user waits for.

        Raises:
            ModelFileError: It cannot be used.
        """
        settings = self._settings
        order = ProbeOrder(
            settings.source,
            str(directory),
            cache_bytes=settings.cache_bytes,
            wants_cache=settings.wants_cache,
        )
        words = reading(settings.source, directory)
        found = self._fork_server.probe(order, lambda what: busy(what or words))
        self.runs_elsewhere = found.runs_elsewhere
        self.is_sized = found.constants.get("RESOURCES") == OF_EACH_TRIAL
        if not self.is_sized and not self._cluster.is_local:
            self._fork_server.suspend()  # a login node need not hold a framework for a week
        return found

    def usual(self, found: Found) -> Mapping[str, Any]:
        """Return the constants of the code, with the resources of its default configuration."""
        if not self.is_sized:
            return found.constants
        space = SearchSpace.from_json(found.space)
        usual = self._declared(space, [completed(space, {})])[0]
        return {**found.constants, "RESOURCES": usual}

    def sized(self, space: SearchSpace, suggestions: Sequence[Suggestion]) -> list[Suggestion]:
        """Return the suggestions with the resources that they ask for; unchanged unless `is_sized`.

        May be called from any thread.

        Raises:
            UsageError: The user's RESOURCES failed, or asks for more than this machine has.
        """
        if not self.is_sized or not suggestions:
            return list(suggestions)
        sizes = self._sizes(space, [suggestion.params for suggestion in suggestions])
        return [
            replace(each, resources=size) for each, size in zip(suggestions, sizes, strict=True)
        ]

    def _sizes(self, space: SearchSpace, configurations: Sequence[Params]) -> list[Resources]:
        sizes = []
        capacity, is_local = self._cluster.capacity, self._cluster.is_local
        declared = self._declared(space, configurations)
        for params, each in zip(configurations, declared, strict=True):
            try:
                sizes.append(trial_resources(self._asked, each, capacity, is_certain=is_local))
            except UsageError as error:
                values = ", ".join(f"{name}={value!r}" for name, value in params.items())
                raise UsageError(f"RESOURCES(hp) with {values}: {error.message}") from error
        return sizes

    def model_loader(self, path: Path, space: Sequence[JsonEntry], params: Params) -> str:
        """Return what it takes to load a kept model, a `Loader`; empty if that is unknown."""
        order = ModelOrder(self._settings.source, path, tuple(space), params)
        return self._fork_server.try_model(order)

    def _declared(
        self, space: SearchSpace, configurations: Sequence[Params]
    ) -> Sequence[Mapping[str, Any]]:
        order = SizeOrder(self._settings.source, tuple(space.to_json()), tuple(configurations))
        return self._fork_server.sizes(order)
