"""Time comes in through this door only."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, in seconds since the epoch."""

    def now(self) -> float:
        """The present time in seconds since the epoch; never goes back."""


class SystemClock:
    """The machine's clock, kept from going back when an administrator turns it back."""

    def __init__(self) -> None:
        self._latest = 0.0

    def now(self) -> float:
        """The present time in seconds since the epoch."""
        self._latest = max(self._latest, time.time())
        return self._latest
