"""Requests to a running study: signals, the users' own, the end of its time or budget."""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from ..core.clock import Clock
from ..core.messages import Event, FinishReason, StopRequested
from ..storage.lock import MasterLock
from ..text import duration

STOP_POLL_SECONDS = 1.0
"""How often the study directory is checked for requests of users."""

_REPEAT_SECONDS = 0.01
"""After how many seconds a signal whose exception was dropped is repeated."""

_REASONS = {
    signal.SIGINT: "by Ctrl-C",
    signal.SIGTERM: "by SIGTERM",
    signal.SIGHUP: "because its terminal was closed (SIGHUP)",
    signal.SIGUSR1: "by SIGUSR1",
}


class StopRequests:
    """Callable that the loop asks regularly whether the study must stop, and what users ask for.

    Args:
        lock: The study's lock, kept fresh.
        clock: The run's clock.
        timeout_seconds: How long masters may work on the study in all; None for no limit.
        counts_from: When they would have begun, in seconds since the epoch, if they had worked on
            it without a break.
        users: Returns the answers to users' requests since its last call, at this time.
        overspent: Returns the request to stop if the budget is spent at this time, else None.
        may_stop: Returns whether to stop now for this signal. Called again and again until it is
            true, and need not return; until then further signals have no effect.
        poll_seconds: Returns how long to wait between two calls of `users`.
    """

    def __init__(
        self,
        lock: MasterLock,
        clock: Clock,
        *,
        timeout_seconds: float | None = None,
        counts_from: float = 0.0,
        users: Callable[[float], Sequence[Event]] = lambda _: (),
        overspent: Callable[[float], StopRequested | None] = lambda _: None,
        may_stop: Callable[[int], bool] | None = None,
        poll_seconds: Callable[[], float] = lambda: STOP_POLL_SECONDS,
    ) -> None:
        self._users = users
        self._poll_seconds = poll_seconds
        self._lock = lock
        self._clock = clock
        self._overspent = overspent
        self._polled_at = -math.inf
        self._is_reported = False
        self._signal: signal.Signals | None = None
        self._may_stop = may_stop
        self._limit = f"the time limit of {duration(timeout_seconds)} is reached"
        self._end = math.inf if timeout_seconds is None else counts_from + timeout_seconds

    def __call__(self) -> Sequence[Event]:
        """Return what users ask for; and the request to stop, once, if there is one."""
        now = self._clock.now()
        self._lock.refresh()
        events: list[Event] = []
        if now >= self._polled_at + self._poll_seconds():
            self._polled_at = now
            events += self._users(now)
        others = tuple(event for event in events if not isinstance(event, StopRequested))
        if self._is_reported:
            return others
        stop = next((event for event in events if isinstance(event, StopRequested)), None)
        stop = stop or self._own(now)
        self._is_reported = stop is not None
        return others if stop is None else (*others, stop)

    def close(self) -> None:
        """Note that nobody asks any more, as the study is over; a second signal then leaves."""
        self._is_reported = True

    def _own(self, now: float) -> StopRequested | None:
        """Return the request to stop that no user wrote; None if there is none."""
        if self._signal is not None:
            if self._may_stop is not None and not self._may_stop(self._signal):
                return None
            reason = f"interrupted {_REASONS[self._signal]}"
            return StopRequested(now, FinishReason.INTERRUPTED, reason)
        if now >= self._end:
            return StopRequested(now, FinishReason.TIME_UP, self._limit)
        return self._overspent(now)

    @contextlib.contextmanager
    def from_signals(
        self, *, wake: Callable[[], None], end_at_once: Callable[[], None]
    ) -> Iterator[None]:
        """Within the context, a signal stops the study, and a second one leaves at once.

        The signals are Ctrl-C, SIGTERM, SIGUSR1 and the hang-up of the terminal, unless hang-ups
        are ignored, as under `nohup`. Further hang-ups have no effect, after the context either.
        Only the main thread receives signals; in another thread this does nothing.

        Args:
            wake: Makes the loop ask at once.
            end_at_once: What a second signal does; may raise.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int) -> None:
            if self._signal is None:
                self._signal = signal.Signals(number)
                wake()
            elif number != signal.SIGHUP and (self._may_stop is None or self._is_reported):
                end_at_once()

        before = _handle(on_signal)
        try:
            yield
        finally:
            for each, handler in before.items():
                # The shell's hang-up may come after the kernel's one has stopped the study.
                is_told = each == signal.SIGHUP == self._signal
                signal.signal(each, signal.SIG_IGN if is_told else handler)


class _Interrupt(KeyboardInterrupt):
    """A KeyboardInterrupt of `interrupt_on_signals`.

    If a plain one passes through an `exec`, with which dataclasses are made, `python -m hptune`
    ends by SIGINT instead of with its exit code, even if the exception is caught.
    """


@contextlib.contextmanager
def interrupt_on_signals(end_at_once: Callable[[], object]) -> Iterator[None]:
    """Within the context, a signal raises KeyboardInterrupt, and a second one leaves at once.

    After it, a signal ends the process: Python at its own end would show a traceback. A closed
    terminal, which sends several signals, does not: the process ends by itself, with its code.

    The signals are those of `StopRequests.from_signals`, which may take them over for a while.
    """
    received: list[int] = []

    def on_signal(number: int) -> None:
        if not received:
            received.append(number)
            raise _Interrupt
        # The kernel and the shell both send SIGHUP when a terminal is closed.
        if number != signal.SIGHUP:
            end_at_once()

    def repeat(*_: object) -> None:
        signal.raise_signal(received.pop())

    def on_unraisable(lost: sys.UnraisableHookArgs) -> None:
        if not issubclass(lost.exc_type, _Interrupt):
            others(lost)
            return
        # In a destructor or a callback of the garbage collector, Python drops an exception. The
        # signal is repeated when that has returned.
        signal.signal(signal.SIGALRM, repeat)
        try:
            signal.setitimer(signal.ITIMER_REAL, _REPEAT_SECONDS)
        except _Interrupt:  # on a busy machine; what this hook raises would be lost
            on_unraisable(lost)

    others, sys.unraisablehook = sys.unraisablehook, on_unraisable
    # Early, so that it comes after what the libraries do at the end of the process.
    atexit.register(_ignore_late_signals)
    _handle(on_signal)
    try:
        yield
    finally:
        _handle(lambda _: end_process())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        sys.unraisablehook = others


def _ignore_late_signals() -> None:
    """Keep a signal from ending a process that ends by itself, with its own code.

    Python forgets its handlers some milliseconds before the end.
    """
    for reason in _REASONS:
        signal.signal(reason, signal.SIG_IGN)


def _handle(on_signal: Callable[[int], None]) -> dict[signal.Signals, Any]:
    """Handle the signals that stop a study, except ignored ones; return the handlers before."""
    return {
        reason: signal.signal(reason, lambda number, _: on_signal(number))
        for reason in _REASONS
        if signal.getsignal(reason) is not signal.SIG_IGN
    }


def end_process() -> NoReturn:
    """End the process now; its workers and trials notice that, and end too."""
    os._exit(130)


def raise_interrupt() -> None:
    """Raise KeyboardInterrupt, so that all callers end their workers and trials."""
    raise KeyboardInterrupt
