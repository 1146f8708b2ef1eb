"""What the user's code declares: read once, in a child of the fork server."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..clusters.base import Cluster
from ..clusters.layout import trial_resources
from ..config.plugins import find_executor
from ..config.settings import StudySettings
from ..core.resources import Resources
from ..core.space.completion import completed
from ..core.space.parameters.json_form import JsonEntry
from ..core.space.space import SearchSpace
from ..core.trial import Params, Suggestion
from ..errors import UsageError
from ..registry import shown_name
from ..user_code.model_file import OF_EACH_TRIAL, Found, ObjectiveSource
from ..worker.forkserver.client import ForkServer
from ..worker.orders import ModelOrder, ProbeOrder, SizeOrder


def read_code(source: ObjectiveSource, working_directory: str = "") -> Found:
    """Return what the user's code declares, for no study.

    Args:
        source: The user's code.
        working_directory: Where its relative paths start; empty for here.

    Raises:
        ModelFileError: It cannot be used.
    """
    where = working_directory or str(Path.cwd())
    with contextlib.closing(ForkServer(source)) as fork_server:
        return fork_server.probe(ProbeOrder(source, where, "", cache_bytes=0))


class CodeReader:
    """Runs the user's code in the fork server, to learn what it declares.

    Attributes:
        is_sized: Whether the code computes the resources of each configuration (RESOURCES is a
            function). False until the code is read.
        runs_elsewhere: Whether trials work where their use of the machine is not measured. False
            until the code is read.

    Args:
        settings: What the user asked for.
        fork_server: Runs the code.
        cluster: Limits what a trial can ask for.
    """

    def __init__(self, settings: StudySettings, fork_server: ForkServer, cluster: Cluster) -> None:
        self.is_sized = self.runs_elsewhere = False
        self._settings = settings
        self._fork_server = fork_server
        self._cluster = cluster

    def read(self, directory: Path) -> Found:
        """Return what the user's code declares.

        Raises:
            ModelFileError: It cannot be used.
            UsageError: It computes resources, but the executor's workers cannot differ, or the
                settings leave the resources to hptune.
        """
        settings = self._settings
        order = ProbeOrder(
            settings.source,
            settings.working_directory,
            str(directory),
            cache_bytes=settings.cache_bytes,
            wants_cache=settings.wants_cache,
        )
        found = self._fork_server.probe(order)
        self.runs_elsewhere = found.runs_elsewhere
        if found.constants.get("RESOURCES") != OF_EACH_TRIAL:
            if not self._cluster.is_local:  # a login node need not hold a framework for a week
                self._fork_server.suspend()
            return found
        if not find_executor(settings).shares_workers:
            raise UsageError(
                "RESOURCES is a function, but the workers of --executor "
                f"{shown_name(settings.executor)} are all of one size; give hptune.Resources(…), "
                "or leave the executor out"
            )
        if settings.chooses_split:
            raise UsageError(
                "RESOURCES is a function, which says what each trial holds, but "
                f"{settings.splitting_option} is auto, which chooses it; leave one of them out"
            )
        # The study's usual trial asks for what the default configuration does.
        self.is_sized = True
        space = SearchSpace.from_json(found.space)
        usual = self._declared(space, [completed(space, {})])[0]
        return replace(found, constants={**found.constants, "RESOURCES": usual})

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
                sizes.append(trial_resources(self._settings, each, capacity, is_certain=is_local))
            except UsageError as error:
                values = ", ".join(f"{name}={value!r}" for name, value in params.items())
                raise UsageError(f"RESOURCES(hp) with {values}: {error.message}") from error
        return sizes

    def model_loader(self, path: Path, space: Sequence[JsonEntry], params: Params) -> str:
        """Return what it takes to load a kept model, a `Loader`; empty if that is unknown."""
        source, directory = self._settings.source, self._settings.working_directory
        return self._fork_server.try_model(
            ModelOrder(source, directory, path, tuple(space), params)
        )

    def _declared(
        self, space: SearchSpace, configurations: Sequence[Params]
    ) -> Sequence[Mapping[str, Any]]:
        source, directory = self._settings.source, self._settings.working_directory
        order = SizeOrder(source, directory, tuple(space.to_json()), tuple(configurations))
        return self._fork_server.sizes(order)
