"""What follows from a scaling curve: speed-up, efficiency, and the share of communication."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .curve import Range, ScalingCurve
from .points import Mode, Point


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One number of devices, in one mode.

    Attributes:
        backend: Keras's backend.
        mode: What stays the same when devices are added.
        point: What was measured.
        step_seconds: Time of a step; None if it could not be measured.
        throughput: Samples a second.
        speed_up: Throughput relative to that of the smallest number of devices in this mode, which
            is `baseline`.
        baseline: Smallest number of devices that was measured.
        is_distinct: Whether throughput differs from the baseline's by more than the noise.
        communication: Share of a step that one device with the same batch does not need: waiting
            for the others, and exchanging gradients. None if that was not measured, or if the
            difference is less than the noise.
        memory_bytes: Most host memory of all processes together; 0 if unknown.
        gpu_memory_bytes: Most memory on one GPU; None if unknown.
        failure: Why it could not be measured; empty otherwise.
    """

    backend: str
    mode: Mode
    point: Point
    step_seconds: Range | None = None
    throughput: Range | None = None
    speed_up: Range | None = None
    baseline: int = 1
    is_distinct: bool = False
    communication: Range | None = None
    memory_bytes: int = 0
    gpu_memory_bytes: int | None = None
    failure: str = ""

    @property
    def efficiency(self) -> Range | None:
        """Speed-up relative to the ideal one."""
        if self.speed_up is None:
            return None
        return self.speed_up.times(self.baseline / self.point.devices)

    @property
    def device_memory_bytes(self) -> float | None:
        """Most memory on one GPU; without GPUs, the host memory divided by the devices.

        None if it is unknown.
        """
        if self.gpu_memory_bytes:
            return self.gpu_memory_bytes
        return self.memory_bytes / self.point.devices if self.memory_bytes else None


def rows(curve: ScalingCurve, modes: Sequence[Mode] = tuple(Mode)) -> list[Row]:
    """Return what a curve says, by mode and number of devices."""
    found = []
    for mode in modes:
        of_mode = [mode.point(curve.batch, count) for count in curve.devices]
        measured = [each for each in of_mode if curve.step_seconds(each) is not None]
        base = measured[0] if measured else None
        found += [_row(curve, mode, each, base) for each in of_mode]
    return found


def measured_modes(curve: ScalingCurve) -> tuple[Mode, ...]:
    """Return the modes in which several numbers of devices were measured or tried."""
    tried = {each.point for each in curve.samples} | {each.point for each in curve.failures}
    return tuple(
        mode
        for mode in Mode
        if any(mode.point(curve.batch, count) in tried for count in curve.devices[1:])
    )


def _row(curve: ScalingCurve, mode: Mode, point: Point, base: Point | None) -> Row:
    seconds = curve.step_seconds(point)
    if seconds is None or base is None:
        failure = curve.failure(point)
        reason = "not measured" if failure is None else failure.reason
        return Row(backend=curve.backend, mode=mode, point=point, failure=reason)
    throughput, of_base = _throughput(curve, point), _throughput(curve, base)
    samples = [each for each in curve.samples if each.point == point]
    of_gpu = [each.gpu_memory_bytes for each in samples if each.gpu_memory_bytes is not None]
    return Row(
        backend=curve.backend,
        mode=mode,
        point=point,
        step_seconds=seconds,
        throughput=throughput,
        speed_up=throughput.ratio(of_base) if point != base else Range(1, 1, 1, seconds.count),
        baseline=base.devices,
        is_distinct=throughput.is_known_from(of_base),
        communication=_communication(curve, point, seconds),
        memory_bytes=max(each.memory_bytes for each in samples),
        gpu_memory_bytes=max(of_gpu, default=None),
    )


def _throughput(curve: ScalingCurve, point: Point) -> Range:
    seconds = curve.step_seconds(point)
    assert seconds is not None
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
