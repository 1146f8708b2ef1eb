"""A meeting point: a Dask scheduler that workers and studies find each other at."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

from distributed import Scheduler

from .errors import StudyError


def serve(
    *, host: str, port: int, scheduler_file: Path | None, opened: Callable[[str, str], None]
) -> None:
    """Keep a scheduler until SIGINT or SIGTERM; a second one ends it at once.

    Args:
        host: The interface to listen on, as an address or a name.
        port: The port; 0 for any.
        scheduler_file: Where to write the address for those who share the file system.
        opened: Is told the scheduler's address, and its dashboard's.

    Raises:
        StudyError: It cannot listen there.
    """
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    asyncio.run(_serve(host, port, scheduler_file, opened))


async def _serve(
    host: str, port: int, scheduler_file: Path | None, opened: Callable[[str, str], None]
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
                f"No scheduler can listen on {host}, port {port}: {error}. Choose others with "
                "--host and --port (0 for any)."
            ) from error
    try:
        dashboard = scheduler.services.get("dashboard")
        link = "" if dashboard is None else f"http://{host}:{dashboard.port}/status"
        opened(scheduler.address, link)
        closed = asyncio.ensure_future(scheduler.finished())
        asked = asyncio.ensure_future(over.wait())
        await asyncio.wait({closed, asked}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await scheduler.close()
        if scheduler_file is not None:
            scheduler_file.unlink(missing_ok=True)
