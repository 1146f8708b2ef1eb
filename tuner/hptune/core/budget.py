"""Device hours: how long attempts hold cores and GPUs, and what is left of a budget."""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .attempt import Attempt, HeldBefore
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
    return sum(held_seconds(attempt, device, now=now) for attempt in attempts) / _HOUR
