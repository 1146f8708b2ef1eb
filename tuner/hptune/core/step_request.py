"""Steps of training to time instead of a whole training: the request, and what is reported."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import UsageError

BATCH = "batch"
"""Metric of a run: the global batch of the steps."""
STEPS = "steps"
"""Metric of a run: how many steps were timed."""
STEP_SECONDS = "step_seconds"
"""Metric of a run: their median time."""


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
