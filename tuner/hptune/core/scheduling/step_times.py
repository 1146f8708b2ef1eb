"""The time of a step of a trial, from measurements."""

from __future__ import annotations

import statistics
from collections import deque

from ..attempt import Usage

_REMEMBERED = 32
"""Latest measurements whose median is used for trials that were not measured yet."""

_MARGIN = 1.5
"""The factor by which the next step may take longer than measured."""


class StepTimes:
    """The time of a step of each trial; for trials not measured yet, the median of the latest."""

    def __init__(self) -> None:
        self._own: dict[int, float] = {}
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)

    def observe(self, trial: int, usage: Usage) -> None:
        """Observe what an attempt of a trial used."""
        if usage.seconds_per_step is not None:
            self._own[trial] = usage.seconds_per_step
            self._latest.append(usage.seconds_per_step)

    def seconds_per_step(self, trial: int | None = None) -> float:
        """Return the time of a step of a trial (None: of a usual one); 0 if unknown."""
        if trial is not None and trial in self._own:
            return self._own[trial]
        return statistics.median(self._latest) if self._latest else 0.0

    def seconds(
        self, trial: int | None = None, *, steps_left: int | None = None
    ) -> tuple[float, float]:
        """Return how long the next step of a trial may take, and the trial to its end.

        Args:
            trial: The trial; None for a usual one.
            steps_left: The steps to its end; None if unknown.

        Returns:
            Both in seconds; 0 if unknown.
        """
        step = self.seconds_per_step(trial)
        soon = _MARGIN * step
        return soon, max(soon, step * (steps_left or 0))
