"""Calls of the master to a worker that does not see the study's directory, and their answers."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any

from ..transport.files import FileState, Piece
from ..transport.notices import Change
from ..transport.remote_study import NotSent, RemoteStudy

NO_STUDY = "the worker has left the study"


async def read_files(
    name: str, ticket: int, parts: Sequence[Change], dask_worker: Any = None
) -> list[Piece | None]:
    """Return a piece of each of these files of the worker's copy; None for those that changed."""
    study = _study(name, dask_worker)
    if study is None:
        return [None for _ in parts]
    return await asyncio.to_thread(study.read, ticket, parts)


async def put_files(
    name: str, ticket: int, parts: Sequence[tuple[FileState, Piece]], dask_worker: Any = None
) -> str:
    """Write the next piece of each of these files; return why that failed, or ""."""
    study = _study(name, dask_worker)
    return NO_STUDY if study is None else await asyncio.to_thread(study.put, ticket, parts)


async def files_brought(name: str, ticket: int, error: str, dask_worker: Any = None) -> None:
    """Tell the worker that all files that it wanted are there, or why not."""
    if (study := _study(name, dask_worker)) is not None:
        await asyncio.to_thread(study.brought, ticket, error)


async def files_taken(
    name: str,
    ticket: int,
    paths: Collection[str],
    not_sent: NotSent | None,
    dask_worker: Any = None,
) -> None:
    """Tell the worker which of its files the study has now, and why it lacks the others."""
    if (study := _study(name, dask_worker)) is not None:
        await asyncio.to_thread(study.taken, ticket, paths, not_sent)


async def master_at_work(name: str, ticket: int, dask_worker: Any = None) -> None:
    """Tell the worker that the master works on its request."""
    if (study := _study(name, dask_worker)) is not None:
        await asyncio.to_thread(study.touch, ticket)


def master_lives(name: str, dask_worker: Any = None) -> None:
    """Tell the worker that the study's master is alive."""
    if (study := _study(name, dask_worker)) is not None:
        study.heard()


def _study(name: str, dask_worker: Any) -> RemoteStudy | None:
    """Return a study's files on this worker; None if it has left, or sees the study's directory."""
    plugin = dask_worker.plugins.get(name)
    found: RemoteStudy | None = getattr(plugin, "remote", None)
    return found
