"""The points of a scaling curve: numbers of devices, and batches of each device."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import UsageError

BATCH = "batch"
"""Metric of a run: the global batch of the steps."""
STEPS = "steps"
"""Metric of a run: how many steps were timed."""
STEP_SECONDS = "step_seconds"
"""Metric of a run: their median time."""


class Mode(enum.StrEnum):
    """What stays the same when devices are added."""

    STRONG = "strong"
    """The global batch: each device gets a smaller part of it."""
    WEAK = "weak"
    """The batch of each device: the global batch grows."""

    def batch_per_device(self, global_batch: int, devices: int) -> int:
        """Return the batch of each device.

        Args:
            global_batch: The model's own batch, that of one device.
            devices: Number of devices, which divides it.
        """
        return global_batch if self is Mode.WEAK else global_batch // devices


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


@dataclass(frozen=True, slots=True)
class StepRequest:
    """The request to measure steps of a model instead of training it to its end.

    Attributes:
        batch_per_device: Samples of a step on each device; None for the model's own batch, divided
            among the devices.
        must_divide: Numbers of devices that must divide the model's own batch.
        seconds: How long to measure, after the steps that compile and warm up.
        host_devices: Devices that a process without GPUs divides its cores into.
    """

    batch_per_device: int | None = None
    must_divide: tuple[int, ...] = ()
    seconds: float = 1.0
    host_devices: int = 1


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
    found = {
        Point(count, mode.batch_per_device(global_batch, count))
        for mode in modes
        for count in devices
    }
    if 1 in devices:
        found |= {Point(1, each.batch_per_device) for each in found}
    return sorted(found)


def check_divides(global_batch: int, devices: Sequence[int]) -> None:
    """Check that each number of devices divides a batch equally.

    Raises:
        UsageError: One does not; names batches that all of them divide.
    """
    wrong = [count for count in devices if global_batch % count]
    if not wrong:
        return
    step = math.lcm(*devices)
    below = global_batch // step * step
    near = [str(size) for size in (below, below + step) if size]
    raise UsageError(
        f"the batch size is {global_batch}, which does not divide by {wrong[0]} devices; use "
        f"--batch-size {' or '.join(near)}, other --devices, or --mode weak"
    )
