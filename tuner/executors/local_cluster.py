"""A Dask cluster on this machine, whose workers heed the master and nobody's signals."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import resource_tracker
from typing import Any, ClassVar

import dask
from distributed import LocalCluster, Nanny, Status, Worker, WorkerPlugin

from ..errors import StudyError

_STAY_SECONDS = 120.0
"""A worker that was told to end by a signal waits so long for its master, which lets go first."""


def start_cluster(cores: Sequence[tuple[int, ...]], gpus: Sequence[str]) -> LocalCluster:
    """Start a cluster of one worker for each of these; whoever asks for it closes it.

    Args:
        cores: The ids of each worker's cores.
        gpus: The GPUs that they share out, as CUDA_VISIBLE_DEVICES names them.

    Raises:
        StudyError: It cannot be started.
    """
    silence()
    # Nobody looks at these histories, and each worker's would grow by megabytes in an hour.
    without = {
        "distributed.worker.profile.enabled": False,
        "distributed.admin.system-monitor.log-length": 600,
    }
    try:
        with dask.config.set(without):
            return LocalCluster(
                n_workers=len(cores),
                threads_per_worker=len(cores[0]),
                processes=True,
                worker_class=_Nanny,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                # Trials are processes of their own, which Dask's limit does not see.
                memory_limit=0,
                silence_logs=logging.ERROR,
                plugins=(_Stays(),),
                # Studies beside this one may have others.
                env={"CUDA_VISIBLE_DEVICES": ",".join(gpus)} if gpus else {},
            )
    except (OSError, RuntimeError, TimeoutError) as error:
        raise StudyError(f"the Dask cluster cannot be started: {error}") from error


def silence() -> None:
    """Dask logs every worker and scheduler that goes as an error; we tell of ours."""
    for name in ("distributed", "distributed.client"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class _Nanny(Nanny):
    """Starts (and restarts) a worker without running the user's script in it.

    Python's way of starting a process imports the script that is running. A worker needs nothing
    of it, and would pay for its imports, a framework perhaps, in time and memory; and a script
    without `if __name__ == "__main__":` would start the whole study again.
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


class _Stays(WorkerPlugin):
    """SIGTERM to all of a command's processes, as `timeout` sends it, is the master's business.

    It tells the trials to write checkpoints, and only then its workers to leave.
    """

    name = "hptune-stays"

    def setup(self, worker: Worker) -> None:
        """Leave only if nobody has said so for long after the signal."""
        del worker
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(
            signal.SIGTERM, lambda: loop.call_later(_STAY_SECONDS, os._exit, 128 + signal.SIGTERM)
        )


@contextlib.contextmanager
def interrupts_held_back() -> Iterator[None]:
    """A cluster that is half started cannot be closed, so Ctrl-C waits until it has started.

    Threads and processes inherit the mask, now and when a worker is started again: Ctrl-C in
    their terminal, or its end, is the master's business alone.
    """
    came: list[int] = []
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # Python's own helper cares for the other two by itself.
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for each in (signal.SIGINT, signal.SIGTERM):
            before[each] = signal.signal(each, lambda number, _: came.append(number))
    # Starting that helper lifts the mask, so it must be there before.
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        signal.raise_signal(came[0])
