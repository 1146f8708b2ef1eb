"""How fast trials train, by what was measured of them."""

from __future__ import annotations

import statistics
from collections import deque

from ..trial import Usage

_REMEMBERED = 32
_MARGIN = 1.5
"""So much longer than measured the next step may take."""


class StepTimes:
    """Foretells how long a trial needs; of trials not measured yet by the others' median."""

    def __init__(self) -> None:
        self._own: dict[int, float] = {}
        self._latest: deque[float] = deque(maxlen=_REMEMBERED)

    def measured(self, trial: int, usage: Usage) -> None:
        """Take note of what an attempt of a trial used."""
        if usage.seconds_per_step is not None:
            self._own[trial] = usage.seconds_per_step
            self._latest.append(usage.seconds_per_step)

    def seconds_per_step(self, trial: int | None = None) -> float:
        """How long a step of a trial (or of any) takes; 0 while nobody knows."""
        if trial is not None and trial in self._own:
            return self._own[trial]
        return statistics.median(self._latest) if self._latest else 0.0

    def seconds(
        self, trial: int | None = None, *, steps_left: int | None = None
    ) -> tuple[float, float]:
        """How long a trial (or any) needs to get any further, and to its end; 0 if unknown."""
        step = self.seconds_per_step(trial)
        soon = _MARGIN * step
        return soon, max(soon, step * (steps_left or 0))
