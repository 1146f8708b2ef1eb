"""The points of a scaling curve: numbers of devices, and batches of each device."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Point:
    """One measurement: some steps on some devices.

    Attributes:
        devices: Number of devices that train one model together.
        batch_per_device: Samples of a step on each of them.
    """

    devices: int
    batch_per_device: int

    @property
    def batch(self) -> int:
        """Samples of a step on all devices together."""
        return self.devices * self.batch_per_device


class Mode(enum.StrEnum):
    """What stays the same when devices are added."""

    STRONG = "strong"
    """The global batch: each device gets a smaller part of it."""
    WEAK = "weak"
    """The batch of each device: the global batch grows."""

    def point(self, global_batch: int, devices: int) -> Point:
        """Return what is measured on some devices.

        Args:
            global_batch: The model's own batch, that of one device.
            devices: Number of devices, which divides it.
        """
        return Point(devices, global_batch if self is Mode.WEAK else global_batch // devices)


def points(devices: Sequence[int], global_batch: int, modes: Sequence[Mode]) -> list[Point]:
    """Return what is measured for strong and weak scaling, the smallest first.

    A step on several devices is compared with one of the same batch per device on a single device,
    which has no communication; so those are measured too, if 1 is among the devices.

    >>> [(p.devices, p.batch_per_device) for p in points([1, 2], 64, list(Mode))]
    [(1, 32), (1, 64), (2, 32), (2, 64)]

    Args:
        devices: Numbers of devices, each of which divides the batch.
        global_batch: The model's own batch.
        modes: Which of them are asked for.
    """
    found = {mode.point(global_batch, count) for mode in modes for count in devices}
    if 1 in devices:
        found |= {Point(1, each.batch_per_device) for each in found}
    return sorted(found)
