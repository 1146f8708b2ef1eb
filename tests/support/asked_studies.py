"""Studies that programs ask for trials."""

from __future__ import annotations

import time


class Clock:
    """The clock of the calls, which a test sets forward."""

    def __init__(self) -> None:
        self.ahead_seconds = 0.0

    def time(self) -> float:
        """Return the time, in seconds since the epoch."""
        return time.time() + self.ahead_seconds
