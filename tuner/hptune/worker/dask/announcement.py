"""The first message of a study's plugin: that its worker joined, or why not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from ...core.messages import WorkerJoined, WorkerRefused
from .. import devices
from . import versions
from .offer import granted_by


@dataclass(frozen=True, slots=True)
class Announcement:
    """The first message of a plugin about its worker.

    Attributes:
        event: That the worker joined, or why not.
        versions: The versions of the packages installed there.
        is_of_versions: Whether it was refused for its versions, as other studies will do.
        sees_directory: Whether it sees the study's directory; if not, files travel over the
            connection.
    """

    event: WorkerJoined | WorkerRefused
    versions: Mapping[str, str] = field(default_factory=dict)
    is_of_versions: bool = False
    sees_directory: bool = True

    @classmethod
    def joined(
        cls,
        worker: Any,
        cores: Mapping[object, tuple[int, ...]],
        *,
        sees_directory: bool = True,
    ) -> Self:
        """Return that a Dask worker joined; `cores` is as for `granted_by`."""
        event = devices.joined(worker.address, granted_by(worker, cores))
        return cls(event, versions.installed(), sees_directory=sees_directory)

    @classmethod
    def refused(cls, worker: Any, reason: str, **facts: bool) -> Self:
        """Return why a Dask worker cannot join, with further fields of this class."""
        event = WorkerRefused(0.0, worker.address, devices.node(), reason)
        return cls(event, versions.installed(), **facts)
