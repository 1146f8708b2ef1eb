"""A measured scaling curve: what was timed on how many devices, and the file that keeps it."""

from __future__ import annotations

import enum
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import cattrs

from ..core.attempt import Cause, Ending
from ..files.access import atomic_write, read_whole

FILE = "scaling.json"
"""The file in a study's directory with its model's curves."""

_CONVERTER = cattrs.Converter(detailed_validation=False)


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


@dataclass(frozen=True, slots=True)
class Range:
    """A value that was measured several times.

    Attributes:
        low: The smallest.
        middle: The median.
        high: The largest.
        count: How many there are.
    """

    low: float
    middle: float
    high: float
    count: int = 1

    @classmethod
    def of(cls, *values: float) -> Self:
        """Return the range of some values, at least one."""
        return cls(min(values), statistics.median(values), max(values), len(values))

    def ratio(self, to: Range) -> Range:
        """Return the range of quotients: with each the noise of both.

        >>> Range.of(2.0, 4.0).ratio(Range.of(1.0, 2.0))
        Range(low=1.0, middle=2.0, high=4.0, count=2)
        """
        count = min(self.count, to.count)
        return Range(self.low / to.high, self.middle / to.middle, self.high / to.low, count)

    def times(self, factor: float) -> Range:
        """Return all values multiplied by a positive factor."""
        return Range(self.low * factor, self.middle * factor, self.high * factor, self.count)

    def is_known_from(self, other: Range) -> bool:
        """Return whether the two differ by more than their spread.

        Each must have been measured at least twice: nothing is known of the noise of one run.

        >>> Range.of(1.0, 1.2).is_known_from(Range.of(1.3, 1.4))
        True
        >>> Range.of(1.0, 1.2).is_known_from(Range.of(1.1, 1.4))
        False
        >>> Range.of(1.0).is_known_from(Range.of(9.0))
        False
        """
        is_apart = self.high < other.low or other.high < self.low
        return is_apart and min(self.count, other.count) > 1


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one point.

    Attributes:
        point: What was measured.
        step_seconds: Median time of its steps.
        steps: How many steps were timed.
        memory_bytes: Most host memory of all its processes together.
        gpu_memory_bytes: Most memory on one of its GPUs; None if unknown.
    """

    point: Point
    step_seconds: float
    steps: int
    memory_bytes: int = 0
    gpu_memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    """A point that could not be measured.

    Attributes:
        point: What failed.
        reason: Why, in one line.
        is_too_large: Whether memory ran out, of the host or of a device.
    """

    point: Point
    reason: str
    is_too_large: bool = False

    @classmethod
    def of(cls, point: Point, ending: Ending) -> Self:
        """Return the failure of a run that ended without a measurement."""
        is_too_large = ending.cause in (Cause.OUT_OF_MEMORY, Cause.DEVICE_OUT_OF_MEMORY)
        return cls(point, "out of memory" if is_too_large else ending.reason, is_too_large)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingCurve:
    """The measurements of one backend.

    Attributes:
        backend: Keras's backend.
        device: What a device is: "core", "GPU" or "process".
        batch: The model's own batch; 0 if it is unknown, as nothing could be measured.
        devices: The numbers of devices that were asked for.
        samples: What was measured.
        failures: What could not be.
        notes: Lines on how to read it.
    """

    backend: str
    device: str
    batch: int
    devices: tuple[int, ...]
    samples: tuple[Sample, ...] = ()
    failures: tuple[Failure, ...] = ()
    notes: tuple[str, ...] = ()

    def runs(self, point: Point) -> list[Sample]:
        """Return the runs that measured a point."""
        return [sample for sample in self.samples if sample.point == point]

    def step_seconds(self, point: Point) -> Range | None:
        """Return the time of a step; None if it was not measured."""
        found = [run.step_seconds for run in self.runs(point)]
        return Range.of(*found) if found else None

    def failure(self, point: Point) -> Failure | None:
        """Return why a point has no time; None if it was not tried, or could be measured."""
        return next((each for each in self.failures if each.point == point), None)

    def with_result(self, result: Sample | Failure) -> Self:
        """Return the curve with one more run."""
        if isinstance(result, Failure):
            return replace(self, failures=(*self.failures, result))
        return replace(self, samples=(*self.samples, result))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> Self:
        """Return the curve that `to_json` wrote; what it does not know is ignored."""
        return _CONVERTER.structure(plain, cls)


def write_curves(study: Path, curves: Sequence[ScalingCurve]) -> None:
    """Keep the curves in a study's directory, in place of earlier ones.

    Raises:
        StorageFullError: There is no space, or writing is forbidden.
    """
    content = json.dumps([curve.to_json() for curve in curves], indent=2)
    atomic_write(study / FILE, f"{content}\n".encode())


def read_curves(study: Path) -> tuple[ScalingCurve, ...]:
    """Return the curves in a study's directory; empty if it has none that can be read."""
    try:
        content = json.loads(read_whole(study / FILE))
        return tuple(map(ScalingCurve.from_json, content))
    except Exception:  # another version wrote it, or a hand: each wrong type has its own error
        return ()
