"""Device hours: how long attempts hold cores and GPUs, and what is left of a budget."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .attempt import Attempt, AttemptId, HeldBefore
from .resources import Placement

_HOUR = 3600.0


class Device(enum.StrEnum):
    """Kind of device that a budget counts."""

    CORE = "core"
    GPU = "gpu"

    def of(self, placement: Placement) -> float:
        """Return how many of these devices all ranks of a placement hold.

        A part of a device counts as a part.
        """
        if self is Device.CORE:
            own = len(placement.cpus) * placement.cpu_share
        else:
            own = len(placement.gpus) * placement.gpu_share
        return own + sum(map(self.of, placement.peers)) if placement.peers else own


@dataclass(frozen=True, slots=True)
class DeviceBudget:
    """Limit of the time for which all attempts together hold devices.

    Attributes:
        device: The devices that count.
        hours: Hours of one device.
    """

    device: Device
    hours: float

    def __str__(self) -> str:
        word = "GPU" if self.device is Device.GPU else "core"
        return f"{self.hours:.12g} {word} hour{'s' * (self.hours != 1)}"


def read_budget(text: str) -> DeviceBudget:
    """Read a budget that a user gave.

    >>> print(read_budget("100gpu-h"), "and", read_budget("0.5 core-hours"))
    100 GPU hours and 0.5 core hours

    Raises:
        ValueError: The text is no budget; the message says what is allowed.
    """
    found = re.fullmatch(
        r"\s*(\d+(?:\.\d+)?)\s*(gpu|core|cpu)s?-?(?:h|hours?)\s*", text, re.IGNORECASE
    )
    if found is None or not float(found[1]):
        raise ValueError(
            f"{text!r} is no budget: allowed are hours of GPUs or of cores, such as 100gpu-h or "
            "40core-h"
        )
    return DeviceBudget(Device.GPU if found[2].lower() == "gpu" else Device.CORE, float(found[1]))


class DeviceHours:
    """Counts how long attempts hold devices, from the start of their processes to their ends.

    The time between two masters does not count: the caller leaves it out.
    """

    def __init__(self) -> None:
        self._spent = dict.fromkeys(Device, 0.0)
        self._held = dict.fromkeys(Device, 0.0)
        self._placements: dict[AttemptId, Placement] = {}

    def pass_time(self, seconds: float) -> None:
        """Charge what is held for an interval."""
        for device, held in self._held.items():
            self._spent[device] += seconds * held

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

    def left_seconds(self, budget: DeviceBudget, *, later_seconds: float = 0.0) -> float:
        """Return for how many seconds one device may still be held.

        Args:
            budget: The budget of the whole study.
            later_seconds: Time from now in which nothing starts or ends, charged as well.
        """
        spent = self._spent[budget.device] + later_seconds * self._held[budget.device]
        return budget.hours * _HOUR - spent


def resized(attempt: Attempt, placement: Placement, *, at: float) -> Attempt:
    """Return the attempt with a new placement; what it has held so far is kept."""
    if attempt.started_at is None:
        return replace(attempt, placement=placement)
    cores, gpus = (held_seconds(attempt, device, now=at) for device in (Device.CORE, Device.GPU))
    until = max(at, attempt.started_at)
    return replace(attempt, placement=placement, before=HeldBefore(until, cores, gpus))


def held_seconds(attempt: Attempt, device: Device, *, now: float) -> float:
    """Return the device seconds that an attempt has held until now."""
    before = attempt.before
    if before is None:
        return (attempt.seconds(now) or 0.0) * device.of(attempt.placement)
    until = now if attempt.ended_at is None else attempt.ended_at
    so_far = before.core_seconds if device is Device.CORE else before.gpu_seconds
    return so_far + max(0.0, until - before.until) * device.of(attempt.placement)


def hours_of(attempts: Iterable[Attempt], device: Device, *, now: float) -> float:
    """Return the device hours that attempts have held until now."""
    return sum(held_seconds(each, device, now=now) for each in attempts) / _HOUR
