"""A Dask cluster on this machine, whose workers obey the master and ignore signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any, ClassVar

from distributed import Client, LocalCluster, Nanny, Status, Worker, WorkerPlugin

from ..errors import DISK_FULL, StudyError
from ..security.certificates import in_memory
from ..worker.dask.connection_limit import limit_connections
from ..worker.dask.dask_settings import quiet_servers, silence
from ..worker.dask.encryption import security
from ..worker.gpus.machine import GIVEN
from ..worker.private_folder import dask_folder
from .dask_client import tried

_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - it is only looked at
_STAY_SECONDS = 120.0
"""How long a worker that received SIGTERM waits for its master, which stops the trials first."""


@contextlib.contextmanager
def own_client(
    cores: Sequence[tuple[int, ...]], gpus: Sequence[str], folder: str | None
) -> Iterator[Client]:
    """Start a cluster and connect to it; both end with the context.

    Args:
        cores: As for `start_cluster`.
        gpus: As for `start_cluster`.
        folder: Where to put the folder of Dask's files; None for the temporary directory.

    Raises:
        StudyError: The cluster cannot be started, or does not answer.
    """
    with contextlib.ExitStack() as stack:
        with _interrupts_held_back():
            cluster = start_cluster(cores, gpus, stack.enter_context(dask_folder(folder)))
            stack.callback(tried, cluster.close, timeout=20)
            try:
                client = Client(cluster, set_as_default=False)
            except OSError as error:  # a TimeoutError is one, too
                raise StudyError(f"the Dask cluster does not answer: {error}") from error
            stack.callback(tried, client.close)
        yield client


def start_cluster(
    cores: Sequence[tuple[int, ...]], gpus: Sequence[str], scratch: Path
) -> LocalCluster:
    """Start a cluster with one worker for each tuple of cores; the caller closes it.

    Args:
        cores: The ids of each worker's cores.
        gpus: The names of the GPUs that the workers share out.
        scratch: A private folder for Dask's files. Dask imports modules that lie there.

    Raises:
        StudyError: It cannot be started.
    """
    silence()
    try:
        with quiet_servers(scratch):
            cluster = LocalCluster(
                n_workers=len(cores),
                threads_per_worker=len(cores[0]),
                processes=True,
                worker_class=_Nanny,
                host="127.0.0.1",
                # Every user of this machine reaches the ports, but not this certificate.
                security=security(in_memory()),
                dashboard_address="127.0.0.1:0",
                scheduler_kwargs={"dashboard": False},  # whose import takes a second and 20 MB
                # Trials are separate processes, which Dask's limit does not measure.
                memory_limit=0,
                silence_logs=logging.CRITICAL,
                plugins=(_OfMaster(),),
                # Other studies on this machine may use other GPUs.
                env={GIVEN: ",".join(gpus)} if gpus else {},
            )
    except (OSError, RuntimeError, TimeoutError) as error:
        raise StudyError(f"the Dask cluster cannot be started: {_cause(error)}") from error
    for each in (cluster.scheduler, *cluster.workers.values()):
        limit_connections(each)
    return cluster


def _cause(error: BaseException) -> str:
    """Return what made the cluster fail; Dask's own error says only which part of it did."""
    while cause := error.__cause__ or error.__context__:
        error = cause
    if getattr(error, "errno", None) not in DISK_FULL:
        return str(error) or type(error).__name__
    # Semaphores between processes are files in shared memory.
    places = {each: os.statvfs(each) for each in (_SHARED_MEMORY, tempfile.gettempdir())}
    full = [each for each, found in places.items() if not (found.f_bavail and found.f_favail)]
    return f"{' and '.join(full) or error} is full; remove files there that are not in use"


class _Nanny(Nanny):
    """Nanny that starts (and restarts) a worker without running the user's script in it.

    A process that Python spawns imports the script that is running. A worker does not need the
    script, and its imports, perhaps a framework, would cost time and memory. A script without
    `if __name__ == "__main__":` would start the whole study again.
    """

    _script: ClassVar[dict[str, Any]] = {}
    _starting: ClassVar[int] = 0

    async def instantiate(self) -> Status:
        main = vars(sys.modules["__main__"])
        if not _Nanny._starting:
            _Nanny._script = {name: main.get(name) for name in ("__file__", "__spec__")}
        _Nanny._starting += 1
        main.pop("__file__", None)
        main["__spec__"] = None
        try:
            return await super().instantiate()
        finally:
            _Nanny._starting -= 1
            if not _Nanny._starting:
                main.update({k: v for k, v in _Nanny._script.items() if v or k == "__spec__"})


class _OfMaster(WorkerPlugin):
    """Plugin of a master's own workers, which strangers cannot flood, and which ignore SIGTERM.

    `timeout` sends SIGTERM to all processes. The master handles it: it tells the trials to write
    checkpoints, and then its workers to leave.
    """

    name = "hptune-of-master"

    def setup(self, worker: Worker) -> None:
        """Leave only if the master has not stopped the worker long after the signal."""
        limit_connections(worker)
        silence()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(
            signal.SIGTERM, lambda: loop.call_later(_STAY_SECONDS, os._exit, 128 + signal.SIGTERM)
        )


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Delay Ctrl-C until a cluster has started, because a half-started one cannot be closed.

    Threads and processes inherit the mask, also when a worker is restarted: only the master
    handles Ctrl-C in their terminal and its hang-up.
    """
    received: list[int] = []
    is_main = threading.current_thread() is threading.main_thread()
    before: dict[int, Any] = {}
    if is_main:
        # The resource tracker ignores the other two signals by itself.
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    # Starting the resource tracker lifts the mask, so it must run before.
    resource_tracker.ensure_running()
    if is_main:
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if before.get(each) is not signal.SIG_IGN:
                earlier = signal.signal(each, lambda number, _: received.append(number))
                before.setdefault(each, earlier)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            # Also if the start failed: SIGTERM to the whole process group ends the workers.
            signal.raise_signal(received[0])
