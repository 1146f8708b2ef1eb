"""Calls of the master to a study on a worker, and the Dask task that runs an attempt."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from distributed import get_worker, secede

from ..orders import AttemptOrder, ProcessOrder, StopOrder
from .announcement import Announcement
from .plugin import StudyPlugin

FileCall = Literal["read", "put", "brought", "taken", "touch", "heard"]
"""Methods of `RemoteStudy` that the master calls."""


class PluginGone(Exception):
    """The worker has left the study, so this attempt cannot begin before the worker joins again."""


async def announcement(plugin: StudyPlugin, dask_worker: Any = None) -> Announcement | None:
    """Return what this worker has announced; None if it is not ready.

    Args:
        plugin: Installed if the worker lacks it.
        dask_worker: Dask's worker.
    """
    name = plugin.name
    if name not in dask_worker.plugins:
        try:
            await dask_worker.plugin_add(plugin=plugin, name=name, catch_errors=False)
        except Exception as error:  # whatever is wrong with this machine
            await dask_worker.plugin_remove(name=name)
            return Announcement.refused(dask_worker, f"hptune cannot start there: {error!r}")
    plugin = dask_worker.plugins.get(name)
    announced: Announcement | None = getattr(plugin, "announcement", None)
    return announced


async def remove_plugin(name: str, dask_worker: Any = None) -> None:
    """Remove a study's plugin from this worker, because the study ends."""
    if name in dask_worker.plugins:
        await dask_worker.plugin_remove(name=name)


def refuse(name: str, announcement: Announcement, dask_worker: Any = None) -> None:
    """Tell this worker's plugin that the master refused it."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        plugin.refuse(announcement)


def run_attempt(name: str, order: AttemptOrder) -> None:
    """Run one attempt; this is its Dask task.

    Raises:
        PluginGone: The plugin has removed itself, as it does when the master seems dead.
    """
    plugin: Any = get_worker().plugins.get(name)
    if plugin is None:
        raise PluginGone
    # The placement limits the attempts on a worker, not its number of threads.
    secede()
    plugin.attempts.run(order)


async def tell_attempt(name: str, order: StopOrder | ProcessOrder, dask_worker: Any = None) -> None:
    """Give an attempt on this worker an order."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        # It may wait while another attempt starts, which must not block Dask's event loop.
        await asyncio.to_thread(plugin.attempts.tell, order)


async def on_files(name: str, method: FileCall, *arguments: object, dask_worker: Any = None) -> Any:
    """Call a method of the study's files on this worker, which does not see its directory.

    Raises:
        OSError: The worker has left the study.
    """
    plugin = dask_worker.plugins.get(name)
    study = None if plugin is None else plugin.attempts.remote
    if study is None:
        raise OSError("the worker has left the study")
    call = getattr(study, method)
    if method == "heard":  # at once, also while all threads wait for a disk
        return call(*arguments)
    # It may wait for a disk, which must not block Dask's event loop.
    return await asyncio.to_thread(call, *arguments)
