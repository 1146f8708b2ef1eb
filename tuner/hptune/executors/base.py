"""The contract of an executor, and the event queue that real executors share."""

from __future__ import annotations

import abc
import queue
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.attempt import AttemptId, Halt
from ..core.clock import Clock
from ..core.messages import Event
from ..core.notice import Notice
from ..user_code.source import ObjectiveSource
from ..worker.orders import AttemptOrder, ProcessOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """Facts about a run that its cluster and its executor need.

    Attributes:
        name: The run's name on the workers.
        source: The user's code.
        clock: Stamps the executor's events.
        fork_server: The address of the fork server on this machine.
    """

    name: str
    source: ObjectiveSource
    clock: Clock
    fork_server: str


class Executor(abc.ABC):
    """Runs attempts on workers, and delivers their events.

    The study's loop is the only caller, from one thread; `wake` alone may be called from a signal
    handler or another thread. `events` returns what happened, in order, stamped with the executor's
    clock:

    - `WorkerJoined` before any attempt is placed on a worker, `WorkerLeft` when it is gone. A
      worker that left and returns has another name, unless it had only given up a master that was
      suspended. Having no worker is a state, never an error. `WorkerLeaving` announces that a
      worker will go; `WorkerRefused` reports one that cannot be used.
    - for each `start`, at most one `AttemptWaits`, then at most one `AttemptStarted`, then any
      number of `Reported`, then exactly one `AttemptEnded`, unless all its workers left before.

    Ctrl-C and a hang-up of the terminal reach all processes that a run starts. Only the master
    reacts, so workers ignore SIGINT and SIGHUP.

    A trace of one attempt that is stopped and of another whose worker dies::

        open()            events() -> [WorkerJoined("w1"), WorkerJoined("w2")]
        start(a on w1)    events() -> [AttemptStarted(a)]
        start(b on w2)    events() -> [AttemptStarted(b), Reported(a, step=1)]
        stop(a)           events() -> [AttemptEnded(a, STOPPED)]
                          events() -> [WorkerLeft("w2")]       # b ended with it
        stop(b)           events() -> []                       # over already: ignored
    """

    @abc.abstractmethod
    def open(self) -> None:
        """Begin to look for workers. Called once, before all other methods.

        Raises:
            StudyError: No worker can ever join, such as when the cluster cannot be started.
        """

    @abc.abstractmethod
    def start(self, order: AttemptOrder) -> None:
        """Start an attempt on the worker that its placement names, without waiting for it."""

    @abc.abstractmethod
    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        """Tell an attempt to stop. It ends with `halt.cause`, or with its result if it had one.

        May be repeated (the first reason counts), and may come too late; both do nothing.
        """

    def tell(self, order: ProcessOrder) -> None:  # noqa: B027 - for executors that run processes
        """Give a running attempt an order that it waits for; too late does nothing.

        `Continue` follows a report at a rung, unless `stop` does. `MeetOrder` tells a rank of a
        parallel attempt where the others are; it comes from `parallel.ParallelExecutor` alone,
        after each rank has sent `RankReady` as its `AttemptStarted`.
        """

    @abc.abstractmethod
    def events(self, timeout_seconds: float) -> list[Event]:
        """Return what happened since the last call; waits up to the time-out if nothing did.

        Raises:
            StudyError: The executor failed, and no worker can join any more.
        """

    @abc.abstractmethod
    def wake(self) -> None:
        """Make a waiting `events` return at once."""

    @abc.abstractmethod
    def close(self) -> None:
        """End all workers that this executor started and all attempts. May be repeated.

        No process, port or temporary file is left. Attempts that still run are killed.
        """

    def drain(self, worker: str, reason: str) -> None:  # noqa: B027 - few need it
        """Have a worker take no more attempts, and report `WorkerLeaving`. May be repeated.

        Its attempts run to their end, but for those of several workers, which the engine stops.
        Executors that own their workers ignore the call.

        Args:
            worker: Its name.
            reason: The reason, for the user when it has left.
        """

    def notices(self) -> Sequence[Notice]:
        """Return lines for the user since the last call."""
        return ()

    @property
    def workers(self) -> Mapping[str, str]:
        """The workers that asked to join, and why each was refused; empty for those that joined."""
        return {}


class EventQueue:
    """Queue of events from many threads, stamped on arrival, for one reader."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: queue.SimpleQueue[Event | Exception | None] = queue.SimpleQueue()
        self._failure: Exception | None = None

    def put(self, event: Event) -> None:
        """Add an event; its time is set to now."""
        self._queue.put(replace(event, at=self._clock.now()))

    def fail(self, error: Exception) -> None:
        """Have the reader raise this error, after all earlier events."""
        self._queue.put(error)

    def wake(self) -> None:
        """Make a waiting reader return; safe in a signal handler."""
        self._queue.put(None)

    def get(self, timeout_seconds: float) -> list[Event]:
        """Return all events in the queue; waits for the first one up to the time-out."""
        events: list[Event] = []
        deadline = time.monotonic() + timeout_seconds
        while self._failure is None:
            try:
                wait = 0.0 if events else max(0.0, deadline - time.monotonic())
                item = self._queue.get(block=wait > 0, timeout=wait)
            except queue.Empty:
                return events
            if item is None:
                deadline = 0.0
            elif isinstance(item, Exception):
                self._failure = item
            else:
                events.append(item)
        if events:
            return events
        raise self._failure
