"""What a study may still spend of its budget in device hours."""

from __future__ import annotations

import math

from ..budget import Device, DeviceBudget, DeviceHours
from ..messages import Finish, FinishReason
from ..resources import Resources
from ..scheduling.step_times import StepTimes


class BudgetCheck:
    """Weighs what attempts hold, and what a step of another one would cost, against the budget.

    Args:
        pace: How long a step takes.
    """

    def __init__(self, pace: StepTimes) -> None:
        self._pace = pace
        self._budget: DeviceBudget | None = None
        self.hours = DeviceHours()

    def allow(self, budget: DeviceBudget | None) -> None:
        """So much may be spent over the whole study; None for as much as it takes."""
        self._budget = budget

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self._left_seconds <= 0.0

    def finish_after(self, seconds: float) -> Finish | None:
        """How the study ends if so much time has passed with all as it is; None if it goes on."""
        if self._budget is None:
            return None
        is_over = self.hours.left_seconds(self._budget, later_seconds=seconds) <= 0.0
        return self.finish if is_over else None

    def pays_for(self, wanted: Resources) -> bool:
        """Whether the budget pays for a step of a trial that holds so much."""
        if self._budget is None:
            return True
        amount = wanted.cpus if self._budget.device is Device.CORE else wanted.gpus
        price = self._pace.seconds_per_step() * (1 if amount is None else amount)
        return self._left_seconds > price

    @property
    def finish(self) -> Finish:
        """How the study ends by it."""
        return Finish(FinishReason.BUDGET_SPENT, f"the budget of {self._budget} is spent")

    @property
    def _left_seconds(self) -> float:
        return math.inf if self._budget is None else self.hours.left_seconds(self._budget)
