"""The joblib worker: a task of a joblib backend that runs attempts until the study ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Client, Connection
from typing import Any

from ..core.clock import polls
from ..core.messages import Event
from ..user_code.source import ObjectiveSource
from . import devices
from .orders import AttemptOrder, StopOrder
from .process_ids import ignored
from .runner import AttemptRunner

ORPHANED_SECONDS = 1.0
"""Seconds to wait for a master's exit after its connection has closed."""

MASTERS_SIGNALS = (signal.SIGINT, signal.SIGHUP)
"""Signals of the terminal, Ctrl-C and hang-up, to which only the master reacts."""


def serve(
    address: tuple[str, int],
    key: bytes,
    *,
    cpus: tuple[int, ...],
    place: tuple[int, int],
    source: ObjectiveSource,
    fork_server_address: str | None,
    master_pid: int,
) -> None:
    """Connect to the master and run its attempts until it sends None or is gone.

    Args:
        address: The master's address.
        key: The study's secret.
        cpus: The ids of this worker's cores.
        place: This worker's index and the number of workers, which share GPUs and memory evenly.
        source: The user's code.
        fork_server_address: A fork server on this machine that may be used; None if there is none.
        master_pid: The master's process, which is the parent of a process of loky's.
    """
    with _connected(address, key, master_pid) as connection, ignored(*MASTERS_SIGNALS):
        # A process of loky's starts with them blocked; what this worker starts must not.
        if threading.current_thread() is threading.main_thread():
            signal.pthread_sigmask(signal.SIG_UNBLOCK, MASTERS_SIGNALS)
        lock = threading.Lock()

        def send(event: Event) -> None:
            # If the master is gone, the loop below notices.
            with lock, contextlib.suppress(OSError):
                connection.send(event)

        has = devices.share(devices.capacity(), *place)
        name = f"{devices.node()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        send(devices.joined(name, replace(has, cpus=cpus)))
        runner = AttemptRunner(source, send, fork_server_address=fork_server_address)
        try:
            while True:
                order = connection.recv()
                if order is None:
                    return
                if isinstance(order, AttemptOrder):
                    runner.start(order)
                elif isinstance(order, StopOrder):
                    runner.stop(order.attempt, order.halt)
                else:
                    runner.tell(order)
        except (EOFError, OSError):
            runner.outlive_master()
            runner.close()
            _end_if_orphaned(master_pid)
        finally:
            runner.close()


@contextlib.contextmanager
def _connected(
    address: tuple[str, int], key: bytes, master_pid: int
) -> Iterator[Connection[Any, Any]]:
    try:
        with Client(address, authkey=key) as connection:
            yield connection
    except (EOFError, OSError):
        _end_if_orphaned(master_pid)
        raise


def _end_if_orphaned(master_pid: int) -> None:
    """End a process of joblib's whose master was killed; it would stay for minutes."""
    if not multiprocessing.current_process().name.startswith("LokyProcess"):
        return
    for _ in polls(ORPHANED_SECONDS, 0.05):
        # Not compared with an earlier parent: the master may have died before this worker began.
        if os.getppid() != master_pid:
            os._exit(1)
