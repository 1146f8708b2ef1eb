"""The batch per device from which on several devices are used efficiently."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

from .curve import Range, ScalingCurve
from .points import Point


class Side(enum.StrEnum):
    """Where the batch lies from which on devices are used efficiently."""

    WITHIN = "within"
    BELOW = "below"
    """Efficiency is high at every batch that was measured."""
    ABOVE = "above"
    """Efficiency is low at every batch that was measured."""


@dataclass(frozen=True, slots=True)
class EfficientBatch:
    """The batch per device from which on some devices are used efficiently.

    Attributes:
        devices: Number of devices.
        side: Whether it lies among the batches that were measured.
        batch_per_device: The batch; the smallest measured one if it lies below, the largest if
            above.
    """

    devices: int
    side: Side
    batch_per_device: int


def efficient_batch(curve: ScalingCurve, efficiency: float, devices: int) -> EfficientBatch | None:
    """Return the batch per device at which efficiency reaches a share; None if it is unknown.

    Efficiency at a batch per device is the time of a step on one device divided by that on all. In
    between two measured batches both times are taken as linear. The result is None if the noise of
    the measurements is larger than the difference.

    Args:
        curve: What was measured.
        efficiency: The share, such as 0.8.
        devices: Number of devices, more than one.
    """
    margins = _margins(curve, efficiency, devices)
    enough = [each for each in margins if each.sign > 0]
    little = [each for each in margins if each.sign < 0]
    if enough and enough[0] is margins[0]:
        return EfficientBatch(devices, Side.BELOW, margins[0].batch_per_device)
    if little and little[-1] is margins[-1]:
        return EfficientBatch(devices, Side.ABOVE, margins[-1].batch_per_device)
    if not little or not enough:
        return None
    below = little[-1]
    above = next((each for each in enough if each.batch_per_device > below.batch_per_device), None)
    if above is None:
        return None
    share = -below.seconds / (above.seconds - below.seconds)
    size = below.batch_per_device + share * (above.batch_per_device - below.batch_per_device)
    return EfficientBatch(devices, Side.WITHIN, round(size))


@dataclass(frozen=True, slots=True)
class _Margin:
    """By how much the efficiency at a batch per device exceeds what is asked for.

    Attributes:
        batch_per_device: The batch.
        seconds: Time that a step on all devices could take longer.
        sign: 1 if that is positive by more than the noise, -1 if negative, 0 if unknown.
    """

    batch_per_device: int
    seconds: float
    sign: int


def _margins(curve: ScalingCurve, efficiency: float, devices: int) -> list[_Margin]:
    found = []
    for batch, alone, together in _step_times(curve, devices):
        needed = together.times(efficiency)
        seconds = alone.middle - needed.middle
        is_known = alone.is_known_from(needed)
        found.append(_Margin(batch, seconds, (1 if seconds > 0 else -1) * is_known))
    return found


def efficiency_by_batch(curve: ScalingCurve, devices: int) -> dict[int, Range]:
    """Return the efficiency at each batch per device, the smallest batch first.

    It has the batches that were measured on these devices and on a single one.

    Args:
        curve: What was measured.
        devices: Number of devices, more than one.
    """
    return {batch: alone.ratio(together) for batch, alone, together in _step_times(curve, devices)}


def _step_times(curve: ScalingCurve, devices: int) -> Iterator[tuple[int, Range, Range]]:
    """Yield each batch per device with the time of a step on one device and on all."""
    for point in sorted({each.point for each in curve.samples if each.point.devices == devices}):
        alone = curve.step_seconds(Point(1, point.batch_per_device))
        together = curve.step_seconds(point)
        if alone is not None and together is not None:
            yield point.batch_per_device, alone, together
