"""What follows from a scaling curve: speed-up, communication, and from which batch on it pays."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .curve import Mode, Point, Range, ScalingCurve


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of devices, in one mode.

    Attributes:
        backend: Keras's backend.
        mode: What stays the same when devices are added.
        devices: Number of devices that train one model together.
        batch_per_device: Samples of a step on each of them.
        step_seconds: Time of a step; None if it could not be measured.
        samples_per_second: Throughput.
        speed_up: Throughput relative to that of the smallest number of devices in this mode.
        speed_up_relative_to: Smallest number of devices that was measured.
        is_distinguishable: Whether throughput differs from theirs by more than the noise.
        efficiency: Speed-up relative to the ideal one.
        communication: Share of a step that one device with the same batch does not need: waiting
            for the others, and exchanging gradients. None if that was not measured, or if the
            difference is less than the noise.
        memory_bytes: Most host memory of all processes together; 0 if unknown.
        gpu_memory_bytes: Most memory on one GPU; None if unknown.
        failure: Why it could not be measured; empty otherwise.
    """

    backend: str
    mode: Mode
    devices: int
    batch_per_device: int
    step_seconds: Range | None = None
    samples_per_second: Range | None = None
    speed_up: Range | None = None
    speed_up_relative_to: int = 1
    is_distinguishable: bool = False
    efficiency: Range | None = None
    communication: Range | None = None
    memory_bytes: int = 0
    gpu_memory_bytes: int | None = None
    failure: str = ""

    @property
    def is_base(self) -> bool:
        """Whether it is the smallest number of devices, which others are compared with."""
        return self.devices == self.speed_up_relative_to

    @property
    def device_memory_bytes(self) -> float:
        """Most memory on one GPU; without GPUs, the host memory divided by the devices."""
        return self.gpu_memory_bytes or self.memory_bytes / self.devices


def rows(curve: ScalingCurve, modes: Sequence[Mode] = tuple(Mode)) -> list[Row]:
    """Return what a curve says, by mode and number of devices; empty if its batch is unknown."""
    found = []
    for mode in modes if curve.batch else ():
        points = [mode.point(curve.batch, count) for count in curve.devices]
        base = next((point for point in points if curve.runs(point)), None)
        found += [_row(curve, mode, point, base) for point in points]
    return found


def measured_modes(curve: ScalingCurve) -> tuple[Mode, ...]:
    """Return the modes in which several numbers of devices were measured or tried."""
    tried = {sample.point for sample in curve.samples} | {
        failure.point for failure in curve.failures
    }
    return tuple(
        mode
        for mode in Mode
        if any(mode.point(curve.batch, count) in tried for count in curve.devices[1:])
    )


def _row(curve: ScalingCurve, mode: Mode, point: Point, base: Point | None) -> Row:
    seconds = curve.step_seconds(point)
    alone = None if base is None else curve.step_seconds(base)
    if seconds is None or base is None or alone is None:
        failure = curve.failure(point)
        return Row(
            backend=curve.backend,
            mode=mode,
            devices=point.devices,
            batch_per_device=point.batch_per_device,
            failure="not measured" if failure is None else failure.reason,
        )
    throughput, of_base = _throughput(point, seconds), _throughput(base, alone)
    speed_up = Range(1, 1, 1, seconds.count) if point == base else throughput.ratio(of_base)
    runs = curve.runs(point)
    of_gpu = [run.gpu_memory_bytes for run in runs if run.gpu_memory_bytes is not None]
    return Row(
        backend=curve.backend,
        mode=mode,
        devices=point.devices,
        batch_per_device=point.batch_per_device,
        step_seconds=seconds,
        samples_per_second=throughput,
        speed_up=speed_up,
        speed_up_relative_to=base.devices,
        is_distinguishable=throughput.is_known_from(of_base),
        efficiency=speed_up.times(base.devices / point.devices),
        communication=_communication(curve, point, seconds),
        memory_bytes=max(run.memory_bytes for run in runs),
        gpu_memory_bytes=max(of_gpu, default=None),
    )


def _throughput(point: Point, seconds: Range) -> Range:
    batch = point.batch
    return Range(batch / seconds.high, batch / seconds.middle, batch / seconds.low, seconds.count)


def _communication(curve: ScalingCurve, point: Point, seconds: Range) -> Range | None:
    if point.devices == 1:
        return Range(0.0, 0.0, 0.0, seconds.count)
    alone = curve.step_seconds(Point(1, point.batch_per_device))
    if alone is None or not seconds.is_known_from(alone):
        return None
    needed = alone.ratio(seconds)
    low, middle, high = (
        max(0.0, 1.0 - share) for share in (needed.high, needed.middle, needed.low)
    )
    return Range(low, middle, high, needed.count)


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


def efficient_batches(curve: ScalingCurve, efficiency: float) -> list[EfficientBatch]:
    """Return the batch from which on each number of devices is efficient, if it is known."""
    found = (efficient_batch(curve, efficiency, device) for device in curve.devices if device > 1)
    return [each for each in found if each is not None]


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
    margins: dict[int, float] = {}
    enough, little = list[int](), list[int]()
    for batch, alone, together in _step_times(curve, devices):
        needed = together.times(efficiency)
        margins[batch] = alone.middle - needed.middle
        if alone.is_known_from(needed):
            (enough if margins[batch] > 0 else little).append(batch)
    if enough and enough[0] == min(margins):
        return EfficientBatch(devices, Side.BELOW, enough[0])
    if little and little[-1] == max(margins):
        return EfficientBatch(devices, Side.ABOVE, little[-1])
    below = little[-1] if little else None
    above = next((each for each in enough if below is not None and each > below), None)
    if below is None or above is None:
        return None
    share = -margins[below] / (margins[above] - margins[below])
    return EfficientBatch(devices, Side.WITHIN, round(below + share * (above - below)))


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
    for point in sorted(
        {sample.point for sample in curve.samples if sample.point.devices == devices}
    ):
        alone = curve.step_seconds(Point(1, point.batch_per_device))
        together = curve.step_seconds(point)
        if alone is not None and together is not None:
            yield point.batch_per_device, alone, together
