"""The clock: the only place where the core reads the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Tells the time, in seconds since the epoch."""

    def now(self) -> float:
        """Return the present time, in seconds since the epoch; it never goes back."""


class SystemClock:
    """The machine's clock; it stands still while the system time is set back."""

    def __init__(self) -> None:
        self._latest = 0.0

    def now(self) -> float:
        """Return the present time, in seconds since the epoch."""
        self._latest = max(self._latest, time.time())
        return self._latest
