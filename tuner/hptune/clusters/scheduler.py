"""A Dask scheduler that workers and studies connect to (`hptune scheduler`)."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import math
import os
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Scheduler, SchedulerPlugin

from ..errors import StudyError, UsageError
from ..files.access import replacing
from ..security.certificates import Identity
from ..text import plural
from ..worker.addresses import holds_address
from ..worker.dask.connection_limit import limit_connections
from ..worker.dask.dask_settings import HTTP_SETTINGS, SCRATCH, silence
from ..worker.dask.encryption import security
from ..worker.health import announce, health_folder
from ..worker.private_folder import server_folder

_STUDY = "hptune-"
"""Prefix of the names of studies' clients."""

_CLOSED = "EOF"
"""Part of the words of each OpenSSL for a peer that closed the connection itself, as a worker does
that only looks whether there is a scheduler. Nothing was refused then."""

_REFUSAL_SECONDS = 60.0
"""Seconds between two lines about refused connections of one host."""


class _ConnectionLog(SchedulerPlugin):
    """Reports workers and studies that connect and disconnect.

    Args:
        notify: Takes a line for the user.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        self._notify = notify
        self._studies: set[str] = set()
        self._workers: dict[str, str] = {}

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Report a worker that joined; called by Dask."""
        state = scheduler.workers[worker]
        self._workers[worker] = f"{worker}, {plural(state.nthreads, 'core')}"
        self._report(f"a worker joined ({self._workers[worker]})")

    def remove_worker(self, scheduler: Scheduler, worker: str, **_: object) -> None:
        """Report a worker that left; called by Dask."""
        del scheduler
        self._report(f"a worker is gone ({self._workers.pop(worker, worker)})")

    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """Report a study that connected; called by Dask."""
        del scheduler
        if _STUDY in client:
            self._studies.add(client)
            self._report("a study connected")

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """Report a study that disconnected; called by Dask."""
        del scheduler
        if client in self._studies:
            self._studies.discard(client)
            self._report("a study disconnected")

    def _report(self, what: str) -> None:
        workers, studies = plural(len(self._workers), "worker"), len(self._studies)
        self._notify(f"{what}; now {workers}, {studies} {'study' if studies == 1 else 'studies'}")


class _RefusalLog(logging.Handler):
    """Reports connections without a valid certificate, each host once in a while.

    Args:
        notify: Takes a line for the user.
    """

    def __init__(self, notify: Callable[[str], None]) -> None:
        super().__init__()
        self._notify = notify
        self._reported_at: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Report a warning of Dask's about a failed handshake."""
        found = re.search(
            r"handshake failed with remote '\w+://(.*):\d+': (.*)", record.getMessage()
        )
        if found is None:
            return
        host, reason = found[1], found[2].partition("] ")[2] or found[2]
        if _CLOSED in reason:
            return
        now = time.monotonic()
        if now - self._reported_at.get(host, -math.inf) < _REFUSAL_SECONDS:
            return
        self._reported_at[host] = now
        self._notify(f"refused a connection from {host}: {reason.partition(' (_ssl')[0]}")


@contextlib.contextmanager
def _refusals_to(notify: Callable[[str], None]) -> Iterator[None]:
    """Report refused connections, which Dask writes to its log."""
    logger, handler = logging.getLogger("distributed.comm.tcp"), _RefusalLog(notify)
    before = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.level, logger.propagate = before


def serve(
    *,
    host: str,
    port: int,
    scheduler_file: Path | None,
    identity: Identity | None,
    opened: Callable[[str], None],
    notify: Callable[[str], None] | None = None,
) -> None:
    """Run a scheduler until SIGINT, SIGTERM or SIGHUP; a second one ends the process at once.

    A second SIGHUP does not: a closed terminal sends two.

    Args:
        host: The interface to listen on, as an address or a name.
        port: The port; 0 for any.
        scheduler_file: Where to write the address for machines that share the file system.
        identity: The scheduler's certificate; None for no encryption: then everybody who reaches
            the port can run code as this user.
        opened: Called with the scheduler's address.
        notify: Takes lines on connections for the user; None for no such lines.

    Raises:
        StudyError: It cannot listen on that interface and port, or write the file.
    """
    silence()

    async def run(health: Path) -> None:
        over = asyncio.Event()
        loop = asyncio.get_running_loop()

        def end() -> None:
            if over.is_set():
                os._exit(130)
            over.set()

        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, end)
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(signal.SIGHUP, over.set)
        scheduler = await _listening(host, port, identity)
        limit_connections(scheduler)
        # Dask would remove the file at its end, even if another scheduler has replaced it.
        announced = json.dumps({"address": scheduler.address, "id": scheduler.id}).encode()
        try:
            if scheduler_file is not None:
                _write(scheduler_file, announced)
            announce(health, scheduler.http_server.port)
            opened(scheduler.address)
            if notify is not None:
                scheduler.add_plugin(_ConnectionLog(notify), name="hptune-connection-log")
            closed = asyncio.ensure_future(scheduler.finished())
            asked = asyncio.ensure_future(over.wait())
            await asyncio.wait({closed, asked}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await scheduler.close()
            if scheduler_file is not None:
                with contextlib.suppress(OSError):
                    if scheduler_file.read_bytes() == announced:
                        scheduler_file.unlink()

    with (
        server_folder() as scratch,
        health_folder() as health,
        dask.config.set({SCRATCH: str(scratch), **HTTP_SETTINGS}),
        _refusals_to(notify) if notify else contextlib.nullcontext(),
    ):
        asyncio.run(run(health))


def check_file(file: Path) -> None:
    """Check that a scheduler file replaces nothing but an earlier one, or an empty file.

    Raises:
        UsageError: Something else is there.
    """
    if file.exists() and file.stat().st_size and not holds_address(str(file)):
        raise UsageError(
            f"--scheduler-file is {file}, which exists and holds no scheduler's address, so it is "
            "not replaced; name another file"
        )


def _write(file: Path, contents: bytes) -> None:
    try:
        with replacing(file, has_others=True) as fresh:
            # Who writes there sends workers and studies elsewhere, whatever the umask is.
            opened = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            with os.fdopen(opened, "wb") as stream:
                stream.write(contents)
    except OSError as error:
        raise StudyError(
            f"--scheduler-file is {file}, which cannot be written: {error.strerror}; name another"
        ) from error


async def _listening(host: str, port: int, identity: Identity | None) -> Any:
    """Return Dask's scheduler, which listens."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Dask warns if its HTTP server cannot listen
        try:
            return await Scheduler(
                host=host,
                port=port,
                protocol="tcp://" if identity is None else "tls://",
                security=security(identity),
                # For `/health` alone, which asks for no certificate.
                dashboard_address="127.0.0.1:0",
                dashboard=False,
            )
        except (OSError, RuntimeError, ValueError) as error:
            cause = error.__cause__ or error
            is_taken = isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE
            words = getattr(cause, "strerror", None) or str(cause)
            reason = "another process listens there" if is_taken else words
            raise StudyError(
                f"no scheduler can listen on {host}, port {port}: {reason}. "
                "Choose others with --host and --port (0 for any)."
            ) from error
