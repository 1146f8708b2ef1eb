"""Attempts on the workers of a joblib backend: loky, or whatever the user has configured.

joblib carries no trials: it carries *seats*, one long call each, which connect back to the master
and run attempts until the study is over. So every backend will do (its only task is to run a
function somewhere), places come and go with it, and nothing depends on how a backend schedules.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import signal
import socket
import threading
from multiprocessing import AuthenticationError
from multiprocessing.connection import (
    Connection,
    Listener,
    answer_challenge,
    deliver_challenge,
)
from typing import Any

import joblib
from joblib.parallel import get_active_backend

from ..config.model_file import ObjectiveSource
from ..core.clock import Clock
from ..core.messages import AttemptEnded, Event, WorkerJoined, WorkerLeft
from ..core.trial import AttemptId, Halt
from ..errors import StudyError
from ..worker.addresses import outward
from ..worker.joblib_worker import serve
from ..worker.orders import AttemptOrder, StopOrder
from .base import EventQueue, Executor

_ON_THIS_MACHINE = ("LokyBackend", "MultiprocessingBackend", "ThreadingBackend")
_MAX_RESTARTS = 5

log = logging.getLogger(__name__)


def _start_tracker() -> None:
    """Start loky's helper such that it outlives its terminal, as it does Ctrl-C.

    It keeps the list of what is to be cleaned up in the end. If it goes with the terminal, loky
    starts another one, which knows of nothing and complains of each entry.
    """
    from joblib.externals.loky.backend import resource_tracker

    is_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN) if is_main else None
    try:
        resource_tracker.ensure_running()
    finally:
        if is_main:
            signal.signal(signal.SIGHUP, before)


class JoblibExecutor(Executor):
    """Runs attempts on the workers of the active joblib backend.

    The backend is the one of `joblib.parallel_config` at the time of construction; loky without.

    Args:
        source: The user's code.
        clock: Stamps the events.
        cores: The core ids of each seat.
        warm_address: A warm parent on this machine.
    """

    def __init__(
        self,
        *,
        source: ObjectiveSource,
        clock: Clock,
        cores: list[tuple[int, ...]],
        warm_address: str | None = None,
    ) -> None:
        self._queue = EventQueue(clock)
        # joblib keeps the user's choice by thread, and the seats are called from another one.
        self._backend = get_active_backend()[0]
        self._backend_name = type(self._backend).__name__
        if self._backend_name == "SequentialBackend":
            self._backend, self._backend_name = "loky", "LokyBackend"
        self._cores = cores
        self._seat = {"source": source, "warm_address": warm_address}
        self._key = secrets.token_bytes(32)
        self._listener: Listener | None = None
        self._connections: dict[str, Connection[Any, Any]] = {}
        self._attempts: dict[AttemptId, str] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._restarts = 0

    def open(self) -> None:
        """Listen for seats, and let joblib carry them."""
        if self._backend_name == "LokyBackend":
            _start_tracker()
        # The secret is asked for in each connection's own thread: a stranger who connects and
        # says nothing keeps nobody waiting.
        self._listener = Listener((self._host(), 0))
        for work in (self._accept, self._carry_seats):
            thread = threading.Thread(target=work, name=f"hptune{work.__name__}", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _host(self) -> str:
        if self._backend_name in _ON_THIS_MACHINE:
            return "127.0.0.1"
        return outward() or socket.gethostbyname(socket.gethostname())

    def start(self, order: AttemptOrder) -> None:
        """Send the order to the seat of its placement."""
        with self._lock:
            connection = self._connections.get(order.placement.worker)
            self._attempts[order.attempt] = order.placement.worker
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.send(order)

    def stop(self, attempt: AttemptId, halt: Halt = Halt.LET_GO) -> None:
        """Send the order to stop to the attempt's seat."""
        with self._lock:
            connection = self._connections.get(self._attempts.get(attempt, ""))
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.send(StopOrder(attempt, halt))

    def events(self, timeout_seconds: float) -> list[Event]:
        """What happened since the last call."""
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
        """Let every seat go and wait until joblib has its workers back."""
        if self._listener is None or self._closing.is_set():
            return
        with self._lock:
            self._closing.set()
            for connection in self._connections.values():
                _let_go(connection)
        accepting, carrying = self._threads
        # A blocked accept does not notice that its socket is closed: knock.
        with contextlib.suppress(OSError):
            socket.create_connection(self._listener.address, timeout=1).close()
        accepting.join(timeout=30)
        # Seats that have not been let in yet are turned away, and end.
        self._listener.close()
        carrying.join(timeout=30)
        if self._backend_name == "LokyBackend":
            from joblib.externals.loky import get_reusable_executor

            get_reusable_executor(reuse=True).shutdown(wait=True, kill_workers=True)

    @property
    def dashboard(self) -> str:
        """There is none."""
        return ""

    # --- threads ----------------------------------------------------------------------------

    def _carry_seats(self) -> None:
        """Keep the seats filled: a backend that loses one of its workers drops them all."""
        if self._listener is None:
            return
        call = joblib.delayed(serve)
        while not self._closing.is_set():
            seats = [
                call(
                    self._listener.address,
                    self._key,
                    cpus=cpus,
                    place=(i, len(self._cores)),
                    **self._seat,
                )
                for i, cpus in enumerate(self._cores)
            ]
            try:
                with joblib.parallel_config(self._backend, n_jobs=len(seats)):
                    joblib.Parallel(batch_size=1, pre_dispatch="all")(seats)
            except Exception as error:  # whatever a backend raises
                if self._closing.is_set():
                    return
                # Seats that outlived the others end; a full set takes their places.
                with self._lock:
                    for connection in self._connections.values():
                        _let_go(connection)
                log.warning("The joblib backend dropped its workers: %r", error)
                self._restarts += 1
                if self._restarts > _MAX_RESTARTS:
                    self._queue.fail(
                        StudyError(
                            f"the joblib backend failed {self._restarts} times; "
                            f"the last time: {error!r}"
                        )
                    )
                    return

    def _accept(self) -> None:
        if self._listener is None:
            return
        while not self._closing.is_set():
            try:
                connection: Connection[Any, Any] = self._listener.accept()
            except Exception:  # noqa: S112 - a stranger's knock is no reason to stop listening
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
                            _let_go(connection)
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


def _let_go(connection: Connection[Any, Any]) -> None:
    with contextlib.suppress(OSError):
        connection.send(None)
