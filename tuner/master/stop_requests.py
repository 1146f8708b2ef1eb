"""What comes from outside while a study runs: Ctrl-C, `hptune stop`, the end of its time."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import NoReturn

from ..core.clock import Clock
from ..core.messages import Event, Finish, FinishReason, StopRequested
from ..reporting.text import duration
from ..storage.directory import StudyDirectory
from ..storage.lock import MasterLock

STOP_POLL_SECONDS = 1.0

_NAMES = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "the end of its terminal (SIGHUP)",
    signal.SIGUSR1: "SIGUSR1",
}


class Requests:
    """Asked by the loop, again and again, whether the study is to let go.

    Args:
        directory: Where `hptune stop` leaves its request.
        lock: The study's lock, kept fresh.
        clock: The run's clock.
        timeout_seconds: How long the study may work in all; None for ever.
        worked_seconds: How long it has worked before.
        overspent: How the study is to finish as its budget is spent at this time, if it is.
        may_let_go: Whether to let go now, as this signal asks for; called again and again until
            it is so, and need not return. Until then further signals change nothing.
    """

    def __init__(
        self,
        directory: StudyDirectory,
        lock: MasterLock,
        clock: Clock,
        *,
        timeout_seconds: float | None,
        worked_seconds: float,
        overspent: Callable[[float], Finish | None] = lambda _: None,
        may_let_go: Callable[[int], bool] | None = None,
    ) -> None:
        self._directory = directory
        self._lock = lock
        self._clock = clock
        self._overspent = overspent
        self._next_poll = 0.0
        self._told = False
        self._signal: signal.Signals | None = None
        self._may_let_go = may_let_go
        limit = timeout_seconds
        self._limit = "" if limit is None else f"the time limit of {duration(limit)} is reached"
        self._end = None if limit is None else clock.now() - worked_seconds + limit

    def __call__(self) -> Sequence[Event]:
        """The request to stop, once, when there is one."""
        now = self._clock.now()
        self._lock.refresh()
        if self._told:
            return ()
        event = None
        if self._signal is not None:
            if self._may_let_go is not None and not self._may_let_go(self._signal):
                return ()
            reason = f"interrupted by {_NAMES[self._signal]}"
            event = StopRequested(now, FinishReason.INTERRUPTED, reason)
        elif self._end is not None and now >= self._end:
            event = StopRequested(now, FinishReason.TIME_UP, self._limit)
        elif (finish := self._overspent(now)) is not None:
            event = StopRequested(now, finish.finish_reason, finish.reason)
        elif now >= self._next_poll:
            self._next_poll = now + STOP_POLL_SECONDS
            if asked := self._directory.stop_requested():
                event = StopRequested(now, FinishReason.INTERRUPTED, asked)
        if event is None:
            return ()
        self._told = True
        return (event,)

    @contextlib.contextmanager
    def from_signals(
        self, *, wake: Callable[[], None], leave_at_once: Callable[[], None]
    ) -> Iterator[None]:
        """Within, Ctrl-C, SIGTERM or a terminal that goes lets go; a second one leaves at once.

        Where hang-ups are ignored, as under `nohup`, they stay so.

        Only the main thread gets signals; in another one this does nothing.

        Args:
            wake: Makes the loop ask at once.
            leave_at_once: What a second signal does; may raise.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - Python's
            if self._signal is None:
                self._signal = signal.Signals(number)
                wake()
            elif self._may_let_go is None or self._told:
                leave_at_once()

        before = {
            each: signal.signal(each, on_signal)
            for each in _NAMES
            if signal.getsignal(each) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def end_process() -> NoReturn:
    """End the process now; workers and trials notice and end too."""
    os._exit(130)


def raise_interrupt() -> None:
    """Go up through all callers, ending workers and trials on the way."""
    raise KeyboardInterrupt
