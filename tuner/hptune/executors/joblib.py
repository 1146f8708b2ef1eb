"""Attempts on the workers of a joblib backend: loky, or the one that the user configured.

joblib does not run trials itself. It runs *workers*, one long call each, which connect back to the
master and run attempts until the study ends. So any backend works, as it only has to run a function
somewhere, and nothing depends on how a backend schedules.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import signal
import socket
import threading
from collections.abc import Sequence
from multiprocessing import AuthenticationError, resource_tracker
from multiprocessing.connection import (
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from ..core.attempt import AttemptId, Halt
from ..core.messages import AttemptEnded, Event, WorkerJoined, WorkerLeft
from ..errors import StudyError
from ..worker.addresses import outward
from ..worker.joblib_worker import MASTERS_SIGNALS, serve
from ..worker.orders import AttemptOrder, ProcessOrder, StopOrder
from ..worker.process_ids import ignored
from .base import EventQueue, Executor, RunContext

_ON_THIS_MACHINE = ("LokyBackend", "MultiprocessingBackend", "ThreadingBackend")
_MAX_RESTARTS = 5

_ACCEPT_AGAIN_SECONDS = 0.1
"""Seconds until connections are accepted again after that failed."""

log = logging.getLogger(__name__)


def _start_tracker() -> None:
    """Start loky's resource tracker so that it survives the hang-up of the terminal.

    The tracker lists what must be cleaned up in the end. If it ended with the terminal, loky would
    start another one, which does not know the entries and complains about each.
    """
    from joblib.externals.loky.backend import resource_tracker

    with ignored(signal.SIGHUP):
        resource_tracker.ensure_running()


class JoblibExecutor(Executor):
    """Runs attempts on the workers of the active joblib backend.

    The backend is the one of `joblib.parallel_config` at the time of construction; loky without.

    Args:
        run: The facts of the run.
        cores: The core ids of each worker.
        gpus: Not used: the workers share out all GPUs of the machine.
    """

    def __init__(
        self, run: RunContext, cores: Sequence[tuple[int, ...]], gpus: tuple[str, ...] = ()
    ) -> None:
        del gpus
        self._queue = EventQueue(run.clock)
        # joblib keeps the user's choice by thread, and another thread starts the workers.
        self._backend = get_active_backend()[0]
        self._backend_name = type(self._backend).__name__
        if self._backend_name == "SequentialBackend":
            self._backend, self._backend_name = "loky", "LokyBackend"
        self._cores = cores
        self._worker_arguments = {
            "source": run.source,
            "fork_server_address": run.fork_server,
            "master_pid": os.getpid(),
        }
        self._key = secrets.token_bytes(32)
        self._listener: Listener | None = None
        self._connections: dict[str, Connection[Any, Any]] = {}
        self._attempts: dict[AttemptId, str] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._restarts = 0

    def open(self) -> None:
        """Listen for workers, and have joblib start them."""
        if self._backend_name == "LokyBackend":
            _start_tracker()
        # Each connection is authenticated in its own thread, so that a stranger who connects and
        # sends nothing delays no worker.
        listener = self._listener = Listener((self._host(), 0))
        for work in (self._accept, self._run_workers):
            name = f"hptune{work.__name__}"
            thread = threading.Thread(target=work, args=(listener,), name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _host(self) -> str:
        if self._backend_name in _ON_THIS_MACHINE:
            return "127.0.0.1"
        return outward() or socket.gethostbyname(socket.gethostname())

    def start(self, order: AttemptOrder) -> None:
        """Send the order to the worker of its placement."""
        with self._lock:
            self._attempts[order.attempt] = order.placement.worker
            self._send(order.placement.worker, order)

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        """Send the order to stop to the attempt's worker."""
        self.tell(StopOrder(attempt, halt))

    def tell(self, order: StopOrder | ProcessOrder) -> None:
        """Send the order to the attempt's worker."""
        with self._lock:
            self._send(self._attempts.get(order.attempt, ""), order)

    def _send(self, worker: str, order: AttemptOrder | StopOrder | ProcessOrder) -> None:
        """Send an order under the lock: a connection that is lost is closed after it."""
        if (connection := self._connections.get(worker)) is not None:
            with contextlib.suppress(OSError):
                connection.send(order)

    def events(self, timeout_seconds: float) -> list[Event]:
        """Return what happened since the last call."""
        events = self._queue.get(timeout_seconds)
        with self._lock:
            for event in events:
                if isinstance(event, AttemptEnded):
                    self._attempts.pop(event.attempt, None)
        return events

    def wake(self) -> None:
        """Make a waiting `events` return at once."""
        self._queue.wake()

    def close(self) -> None:
        """Stop all workers, and wait until joblib's calls have returned."""
        if self._listener is None or self._closing.is_set():
            return
        with self._lock:
            self._closing.set()
            for connection in self._connections.values():
                _stop(connection)
        accepting, running = self._threads
        # A blocked accept does not notice that its socket is closed; a connection ends it.
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.address, timeout=1).close()
        accepting.join(timeout=30)
        # Workers that have not connected yet are refused, and end.
        self._listener.close()
        running.join(timeout=30)
        if self._backend_name == "LokyBackend":
            from joblib.externals.loky import get_reusable_executor

            get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)

    # --- threads ----------------------------------------------------------------------------

    def _run_workers(self, listener: Listener) -> None:
        """Keep the workers running: a backend that loses one of them drops all."""
        if self._backend_name == "LokyBackend":
            # Python's tracker unblocks SIGINT when it starts, which loky would make it do below.
            resource_tracker.ensure_running()
            # loky's processes inherit the mask: a signal to the whole group ends none that starts.
            signal.pthread_sigmask(signal.SIG_BLOCK, MASTERS_SIGNALS)
        call = joblib.delayed(serve)
        while not self._closing.is_set():
            workers = [
                call(
                    listener.address,
                    self._key,
                    cpus=cpus,
                    place=(i, len(self._cores)),
                    **self._worker_arguments,
                )
                for i, cpus in enumerate(self._cores)
            ]
            try:
                with joblib.parallel_config(self._backend, n_jobs=len(workers)):
                    joblib.Parallel(batch_size=1, pre_dispatch="all")(workers)
            except Exception as error:  # whatever a backend raises
                if self._closing.is_set():
                    return
                # Workers that survived end as well; then all are started again.
                with self._lock:
                    for connection in self._connections.values():
                        _stop(connection)
                log.warning("The joblib backend dropped its workers: %r", error)
                self._restarts += 1
                if self._restarts > _MAX_RESTARTS:
                    self._queue.fail(
                        StudyError(
                            f"the joblib backend failed {self._restarts} times; the last time: "
                            f"{error!r}. Finished trials are kept: fix the cause and use `hptune "
                            "resume`"
                        )
                    )
                    return

    def _accept(self, listener: Listener) -> None:
        while not self._closing.is_set():
            try:
                connection: Connection[Any, Any] = listener.accept()
            except Exception:  # a stranger's connection must not stop the listener
                # Where no descriptor is free, the next call fails at once, too.
                self._closing.wait(_ACCEPT_AGAIN_SECONDS)
                continue
            threading.Thread(target=self._listen, args=(connection,), daemon=True).start()

    def _listen(self, connection: Connection[Any, Any]) -> None:
        name = ""
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            while True:
                event: Event = connection.recv()
                if isinstance(event, WorkerJoined):
                    name = event.worker
                    with self._lock:
                        self._connections[name] = connection
                        if self._closing.is_set():
                            _stop(connection)
                    self._restarts = 0
                self._queue.put(event)
        except (EOFError, OSError, AuthenticationError):
            pass
        finally:
            with self._lock:
                self._connections.pop(name, None)
            if name and not self._closing.is_set():
                self._queue.put(WorkerLeft(0.0, name, f"the joblib worker {name} is gone"))
            connection.close()


def _stop(connection: Connection[Any, Any]) -> None:
    with contextlib.suppress(OSError):
        connection.send(None)
