"""The clock: the only place where the core reads the time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Protocol

TIMES_END = 253_402_214_400.0
"""The last day of the year 9999, in seconds since the epoch: later times have no date."""


class Clock(Protocol):
    """Tells the time, in seconds since the epoch."""

    def now(self) -> float:
        """Return the present time, in seconds since the epoch; it never goes back."""


class SystemClock:
    """The machine's clock. When the system time is set back, it goes at half speed until it agrees.

    So it never goes back, does not stand still, and is right again after a while.
    """

    def __init__(self) -> None:
        self._latest = 0.0, time.monotonic()

    def now(self) -> float:
        """Return the present time, in seconds since the epoch."""
        # Read and written as one: threads share the clock.
        latest, read_at = self._latest
        monotonic = time.monotonic()
        now = max(time.time(), latest + (monotonic - read_at) / 2)
        self._latest = now, monotonic
        return now


def polls(seconds: float, pause_seconds: float) -> Iterator[bool]:
    """Yield for each look at something that is awaited; the value says whether it is the last.

    The time is read before each look: who was stalled, or looks for long, looks once more.

    Args:
        seconds: How long to look; 0 for once.
        pause_seconds: How long to sleep between two looks.
    """
    end, is_last = time.monotonic() + seconds, False
    while not is_last:
        is_last = time.monotonic() >= end
        yield is_last
        if not is_last:
            time.sleep(pause_seconds)
