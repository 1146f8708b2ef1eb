"""A worker without Dask: one place that a joblib backend carries to wherever it runs things."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Client, Connection
from typing import Any

from ..config.model_file import ObjectiveSource
from ..core.messages import Event, WorkerJoined
from . import devices
from .orders import AttemptOrder
from .runner import AttemptRunner

ORPHANED_SECONDS = 1.0
"""A killed process's connections close a moment before its children see that it is gone."""


def serve(
    address: tuple[str, int],
    key: bytes,
    *,
    cpus: tuple[int, ...],
    place: tuple[int, int],
    source: ObjectiveSource,
    warm_address: str | None,
) -> None:
    """Join the master at `address` and run its attempts until it lets go (or is gone).

    Args:
        address: Where the master listens.
        key: The study's secret.
        cpus: The ids of the cores that this seat holds.
        place: The how-manieth of how many seats it is; GPUs and memory are shared out among them.
        source: The user's code.
        warm_address: A warm parent on this machine that may be used.
    """
    parent = os.getppid()
    try:
        with Client(address, authkey=key) as connection, _deaf_to_interrupts():
            _serve(
                connection,
                cpus=cpus,
                place=place,
                source=source,
                warm_address=warm_address,
                parent=parent,
            )
    except (EOFError, OSError):
        _end_if_orphaned(parent)
        raise


def _serve(
    connection: Connection[Any, Any],
    *,
    cpus: tuple[int, ...],
    place: tuple[int, int],
    source: ObjectiveSource,
    warm_address: str | None,
    parent: int,
) -> None:
    node = devices.node()
    lock = threading.Lock()

    def tell(event: Event) -> None:
        # If the master is gone, the loop below sees it.
        with lock, contextlib.suppress(OSError):
            connection.send(event)

    has = devices.share(devices.capacity(), *place)
    name = f"{node}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
    tell(WorkerJoined(0.0, name, node, replace(has, cpus=cpus)))
    runner = AttemptRunner(source, tell, warm_address=warm_address)
    try:
        while True:
            order = connection.recv()
            if order is None:
                return
            if isinstance(order, AttemptOrder):
                runner.start(order)
            else:
                runner.stop(order.attempt, order.halt)
    except (EOFError, OSError):
        runner.outlive_master()
        runner.close()
        _end_if_orphaned(parent)
    finally:
        runner.close()


@contextlib.contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Ctrl-C in the terminal, or its end, is the master's business alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signals = (signal.SIGINT, signal.SIGHUP)
    before = {each: signal.signal(each, signal.SIG_IGN) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _end_if_orphaned(parent: int) -> None:
    """End a process of joblib's own whose master was killed; it would stay for minutes."""
    if not multiprocessing.current_process().name.startswith("LokyProcess"):
        return
    deadline = time.monotonic() + ORPHANED_SECONDS
    while time.monotonic() < deadline:
        if os.getppid() != parent:
            os._exit(1)
        time.sleep(0.05)
