"""`ParallelExecutor`: attempts of several processes on any executor.

`parallel_state` decides; this module delivers its events and carries out its instructions.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ..core.attempt import AttemptId, Halt
from ..core.clock import Clock
from ..core.messages import Event
from ..core.notice import Notice
from ..worker.orders import AttemptOrder, MeetOrder, ProcessOrder, StopOrder
from .base import Executor
from .parallel_state import Instructions, ParallelState

_SECRET_BYTES = 32


class ParallelExecutor(Executor):
    """Runs an attempt whose placement has peers as one attempt per rank; others pass through.

    A trace of an attempt of two ranks, as the inner executor sees it and as the study does::

        start(3.0)      inner: start(3.0), start(3.0r1)
        events()        inner: [RankReady(3.0), RankReady(3.0r1)]    -> [AttemptStarted(3.0)]
                        inner: tell(3.0, meet), tell(3.0r1, meet)
        events()        inner: [Reported(3.0), AttemptEnded(3.0r1)]  -> [Reported(3.0)]
        events()        inner: [AttemptEnded(3.0)]                   -> [AttemptEnded(3.0)]

    Args:
        inner: Runs the ranks. It is closed with this one.
        clock: Stamps events that do not come from the inner executor.
    """

    def __init__(self, inner: Executor, clock: Clock) -> None:
        self._inner = inner
        self._clock = clock
        self._state = ParallelState()
        self._events: list[Event] = []

    def open(self) -> None:
        """Open the inner executor."""
        self._inner.open()

    def start(self, order: AttemptOrder) -> None:
        """Start an attempt, or all its ranks."""
        if order.placement.peers:
            secret = secrets.token_bytes(_SECRET_BYTES)
            self._carry_out(self._state.start(order, secret=secret))
        else:
            self._inner.start(order)

    def stop(self, attempt: AttemptId, halt: Halt = Halt.STOP) -> None:
        """Tell an attempt to stop; all its ranks stop at the same step."""
        self._carry_out(self._state.stop(attempt, halt, now=time.monotonic()))

    def tell(self, order: ProcessOrder) -> None:
        """Give an attempt an order; that of a parallel one goes to rank 0, which has its name."""
        self._inner.tell(order)

    def events(self, timeout_seconds: float) -> list[Event]:
        """Return what happened to workers, and to whole attempts, since the last call."""
        deadline = self._state.next_deadline
        if self._events:
            timeout_seconds = 0.0
        elif deadline is not None:
            timeout_seconds = min(timeout_seconds, max(0.0, deadline - time.monotonic()))
        for event in self._inner.events(timeout_seconds):
            self._carry_out(self._state.event(event, now=time.monotonic()))
        self._carry_out(self._state.tick(now=time.monotonic()))
        found, self._events = self._events, []
        return found

    def _carry_out(self, instructions: Instructions) -> None:
        for instruction in instructions:
            match instruction:
                case AttemptOrder():
                    self._inner.start(instruction)
                case StopOrder(attempt, halt):
                    self._inner.stop(attempt, halt)
                case MeetOrder():
                    self._inner.tell(instruction)
                case event:
                    at = event.at or self._clock.now()
                    self._events.append(replace(event, at=at))

    def wake(self) -> None:
        """Make a waiting `events` return at once."""
        self._inner.wake()

    def close(self) -> None:
        """Close the inner executor, which kills all ranks."""
        self._inner.close()

    def drain(self, worker: str, reason: str) -> None:
        """Have a worker take no more attempts."""
        self._inner.drain(worker, reason)

    def notices(self) -> Sequence[Notice]:
        """Return the inner executor's lines for the user."""
        return self._inner.notices()

    @property
    def workers(self) -> Mapping[str, str]:
        """The workers that asked to join, and why each was refused."""
        return self._inner.workers
