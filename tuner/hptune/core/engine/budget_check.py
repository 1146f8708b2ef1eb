"""The rest of a study's budget in device hours."""

from __future__ import annotations

import math

from ..attempt import AttemptId
from ..budget import Device, DeviceBudget
from ..messages import Finish, FinishReason
from ..resources import Placement, Resources
from ..scheduling.step_times import StepTimes


class BudgetCheck:
    """Counts how long attempts hold devices, and compares that with the budget.

    They hold them from the start of their processes to their ends. The time between two masters
    does not count: the caller leaves it out.

    Attributes:
        limit: The budget of the whole study; None for no limit.
    """

    def __init__(self, step_times: StepTimes) -> None:
        self._step_times = step_times
        self.limit: DeviceBudget | None = None
        self._spent_seconds = dict.fromkeys(Device, 0.0)
        self._held = dict.fromkeys(Device, 0.0)
        self._placements: dict[AttemptId, Placement] = {}

    # --- what is held -----------------------------------------------------------------------

    def pass_time(self, seconds: float) -> None:
        """Charge what is held for an interval."""
        for device, held in self._held.items():
            self._spent_seconds[device] += seconds * held

    def started(self, name: AttemptId, placement: Placement) -> None:
        """Record that an attempt's process runs; a repeated call changes nothing."""
        if name not in self._placements:
            self._placements[name] = placement
            for device in Device:
                self._held[device] += device.of(placement)

    def resized(self, name: AttemptId, placement: Placement) -> None:
        """Replace what an attempt holds; nothing changes if its process does not run."""
        if name in self._placements:
            self.ended(name)
            self.started(name, placement)

    def ended(self, name: AttemptId) -> None:
        """Record the end of an attempt; nothing changes if its process never ran."""
        placement = self._placements.pop(name, None)
        if placement is not None:
            for device in Device:
                # With nothing held, the rounding errors of the sums are cleared as well.
                held = self._held[device] - device.of(placement) if self._placements else 0.0
                self._held[device] = held

    def all_ended(self) -> None:
        """Record that nothing is held any more."""
        self._placements.clear()
        self._held = dict.fromkeys(Device, 0.0)

    def hours(self, device: Device) -> float:
        """Return how many hours of a device attempts have held."""
        return self._spent_seconds[device] / 3600.0

    # --- what is left -----------------------------------------------------------------------

    def is_over(self, later_seconds: float = 0.0) -> bool:
        """Return whether the budget is spent, or will be if nothing changes for a time."""
        return self._left_seconds(later_seconds) <= 0.0

    def pays_for(self, wanted: Resources) -> bool:
        """Return whether the budget pays for a step of a trial with these resources."""
        if self.limit is None:
            return True
        amount = wanted.cpus if self.limit.device is Device.CORE else wanted.gpus
        devices = wanted.processes if amount is None else amount
        price = self._step_times.seconds_per_step() * devices
        return self._left_seconds() > price

    @property
    def finish(self) -> Finish:
        """How the study ends when the budget is spent."""
        return Finish(FinishReason.BUDGET_SPENT, f"the budget of {self.limit} is spent")

    def _left_seconds(self, later_seconds: float = 0.0) -> float:
        if self.limit is None:
            return math.inf
        device = self.limit.device
        spent = self._spent_seconds[device] + later_seconds * self._held[device]
        return 3600.0 * self.limit.hours - spent
