"""A meeting point: a Dask scheduler that workers and studies find each other at."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

from distributed import Scheduler, SchedulerPlugin

from ..errors import StudyError

_STUDY = "hptune-"
"""How the names of studies' clients begin."""


class _Doorkeeper(SchedulerPlugin):
    """Says who comes and goes.

    Args:
        say: Is told, in lines.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._studies: set[str] = set()
        self._workers: dict[str, str] = {}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker joined; called by Dask."""
        state = scheduler.workers[worker]
        self._workers[worker] = f"{worker}, {_count(state.nthreads, 'core')}"
        self._tell(f"a worker joined ({self._workers[worker]})")

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: object) -> None:
        """A worker is gone; called by Dask."""
        del scheduler
        self._tell(f"a worker is gone ({self._workers.pop(worker, worker)})")

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """Somebody connected; called by Dask."""
        del scheduler
        if _STUDY in client:
            self._studies.add(client)
            self._tell("a study came")

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Somebody left; called by Dask."""
        del scheduler
        if client in self._studies:
            self._studies.discard(client)
            self._tell("a study left")

    def _tell(self, what: str) -> None:
        workers, studies = _count(len(self._workers), "worker"), len(self._studies)
        self._say(f"{what}; now {workers}, {studies} {'study' if studies == 1 else 'studies'}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def serve(
    *,
    host: str,
    port: int,
    scheduler_file: Path | None,
    opened: Callable[[str, str], None],
    say: Callable[[str], None] | None = None,
) -> None:
    """Keep a scheduler until SIGINT or SIGTERM; a second one ends it at once.

    Args:
        host: The interface to listen on, as an address or a name.
        port: The port; 0 for any.
        scheduler_file: Where to write the address for those who share the file system.
        opened: Is told the scheduler's address, and its dashboard's.
        say: Is told who comes and goes, in lines; None for nobody.

    Raises:
        StudyError: It cannot listen there.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    asyncio.run(_serve(host, port, scheduler_file, opened, say))


async def _serve(
    host: str,
    port: int,
    scheduler_file: Path | None,
    opened: Callable[[str, str], None],
    say: Callable[[str], None] | None,
) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()

    def end() -> None:
        if over.is_set():
            os._exit(130)
        over.set()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, end)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask's, on a dashboard that it cannot have
        try:
            scheduler = await Scheduler(
                host=host,
                port=port,
                dashboard_address=f"{host}:0",
                scheduler_file=None if scheduler_file is None else str(scheduler_file),
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise StudyError(
                f"no scheduler can listen on {host}, port {port}: {error.__cause__ or error}. "
                "Choose others with --host and --port (0 for any)."
            ) from error
    try:
        dashboard = scheduler.services.get("dashboard")
        link = "" if dashboard is None else f"http://{host}:{dashboard.port}/status"
        opened(scheduler.address, link)
        if say is not None:
            scheduler.add_plugin(_Doorkeeper(say), name="hptune-doorkeeper")
        closed = asyncio.ensure_future(scheduler.finished())
        asked = asyncio.ensure_future(over.wait())
        await asyncio.wait({closed, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await scheduler.close()
        if scheduler_file is not None:
            scheduler_file.unlink(missing_ok=True)
