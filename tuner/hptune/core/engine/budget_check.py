"""The rest of a study's budget in device hours."""

from __future__ import annotations

import math

from ..budget import Device, DeviceBudget, DeviceHours
from ..messages import Finish, FinishReason
from ..resources import Resources
from ..scheduling.step_times import StepTimes


class BudgetCheck:
    """Compares what attempts hold, and what a step of another one would cost, with the budget.

    Attributes:
        limit: The budget of the whole study; None for no limit.
        hours: The device hours that attempts have held.
    """

    def __init__(self, step_times: StepTimes) -> None:
        self._step_times = step_times
        self.limit: DeviceBudget | None = None
        self.hours = DeviceHours()

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self._left_seconds <= 0.0

    def finish_after(self, seconds: float) -> Finish | None:
        """Return how the study ends if nothing changes for a time; None if it continues."""
        if self.limit is None:
            return None
        is_over = self.hours.left_seconds(self.limit, later_seconds=seconds) <= 0.0
        return self.finish if is_over else None

    def pays_for(self, wanted: Resources) -> bool:
        """Return whether the budget pays for a step of a trial with these resources."""
        if self.limit is None:
            return True
        amount = wanted.cpus if self.limit.device is Device.CORE else wanted.gpus
        devices = wanted.processes if amount is None else amount
        price = self._step_times.seconds_per_step() * devices
        return self._left_seconds > price

    @property
    def finish(self) -> Finish:
        """How the study ends when the budget is spent."""
        return Finish(FinishReason.BUDGET_SPENT, f"the budget of {self.limit} is spent")

    @property
    def _left_seconds(self) -> float:
        return math.inf if self.limit is None else self.hours.left_seconds(self.limit)
