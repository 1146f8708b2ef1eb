"""How well the jobs of each shape do, and when no more of a shape are submitted."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass

FAILURES_IN_A_ROW = 3
"""How many jobs in a row may fail until no more of their shape are submitted."""

REFUSED_SECONDS = 60.0
"""How long no job of a shape is submitted after Slurm has refused one."""


@dataclass(slots=True)
class ShapeHealth:
    """Successes and failures of the jobs of one shape.

    Attributes:
        failures: How many in a row were not useful.
        message: The line for the user on them.
        most_at_once: How many jobs to submit at once at most.
    """

    failures: int = 0
    message: str = ""
    most_at_once: int = sys.maxsize
    _refused_until: float = 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether no more jobs are submitted, unless one of them proves useful."""
        return self.failures >= FAILURES_IN_A_ROW

    @property
    def is_open(self) -> bool:
        """Whether jobs may be submitted now."""
        return not self.is_given_up and time.monotonic() >= self._refused_until

    def refused(self) -> None:
        """Submit none for a while: Slurm has refused one."""
        self._refused_until = time.monotonic() + REFUSED_SECONDS

    def failed(self, words: str) -> bool:
        """Count a job that was not useful; returns whether the shape is given up by that.

        Args:
            words: What went wrong, to follow "3 jobs in a row".
        """
        self.failures += 1
        self.message = f"{self.failures} jobs in a row {words}"
        return self.failures == FAILURES_IN_A_ROW
