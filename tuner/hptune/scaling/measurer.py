"""The measurer: times training steps on each number of devices, several times."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass, replace

from ..core.attempt import FROM_OUTSIDE, Cause, Ending
from ..core.step_request import StepRequest
from .curve import Failure, Mode, Point, Sample, ScalingCurve, points
from .step_runner import StepRunner

NOT_OF_THE_MODEL = (*FROM_OUTSIDE, Cause.RELEASED, Cause.STOPPED, Cause.NO_ROOM)
"""Causes that do not depend on the number of devices; the next round measures it again."""

OnResult = Callable[[Point, Sample | Ending], None]
"""Takes the result of each run; it may raise to end the measuring. The batch of the point is 0
where the model's own batch is not known yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuringPlan:
    """What to measure.

    Attributes:
        devices: Numbers of devices, increasing.
        modes: Strong scaling, weak scaling, or both.
        repeats: How often each point is measured.
        seconds: How long all of it may take.
        steps_seconds: How long the steps of one run are timed.
        batch: The global batch; None for the model's own.
        is_for_trials: Whether only the times of trials matter: numbers of devices that do not
            divide the batch are left out, and no parts of it are measured on a single device. If
            not, such numbers are an error.
    """

    devices: tuple[int, ...]
    modes: tuple[Mode, ...]
    repeats: int
    seconds: float
    steps_seconds: float = 1.0
    batch: int | None = None
    is_for_trials: bool = False

    @property
    def divisors(self) -> tuple[int, ...]:
        """Numbers that must divide the batch; none if every device has a whole one."""
        return self.devices if Mode.STRONG in self.modes and not self.is_for_trials else ()

    @property
    def must_divide(self) -> tuple[int, ...]:
        """Numbers of devices that must divide the model's own batch."""
        return () if self.is_for_trials else self.divisors or self.devices[:1]

    def can_divide(self, batch: int, devices: int) -> bool:
        """Return whether a batch can be measured on some devices."""
        return Mode.STRONG not in self.modes or batch % devices == 0

    def points(self, batch: int) -> list[Point]:
        """Return what is measured if this is the model's batch, the smallest first."""
        if not self.is_for_trials:
            return points(self.devices, batch, self.modes)
        devices = [device for device in self.devices if self.can_divide(batch, device)]
        return [mode.point(batch, device) for mode in self.modes for device in devices]


def measure_curve(
    runner: StepRunner, plan: MeasuringPlan, *, backend: str, on_result: OnResult
) -> tuple[ScalingCurve, bool]:
    """Measure all points, as often as asked for and as the time allows.

    The points of one round follow each other, and the next round goes through them in the opposite
    order, so that a machine that becomes slower does not favour one of them. If the model's own
    batch is measured, the fewest devices that hold it tell the batch.

    Args:
        runner: Runs the attempts.
        plan: What to measure.
        backend: Keras's backend.
        on_result: Gets each result.

    Returns:
        The curve, and whether the time was up before everything was measured. The curve also ends
        early if the runner's study is to stop.
    """
    until = time.monotonic() + plan.seconds
    curve = ScalingCurve(
        backend=backend, device=runner.device, batch=plan.batch or 0, devices=plan.devices
    )
    for number in range(plan.repeats):
        tried: set[Point] = set()
        while (point := next(_left(plan, curve, number, tried), None)) is not None:
            if runner.wants_stop or time.monotonic() > until:
                return curve, not runner.wants_stop
            tried.add(point)
            if curve.batch:
                step = StepRequest(point.batch_per_device, seconds=plan.steps_seconds)
            else:
                step = StepRequest(must_divide=plan.must_divide, seconds=plan.steps_seconds)
            result = runner.run(point.devices, step, until)
            on_result(point, result)
            if isinstance(result, Sample):
                curve = replace(curve.with_result(result), batch=curve.batch or result.point.batch)
                tried.add(result.point)
            elif result.cause not in NOT_OF_THE_MODEL:
                curve = curve.with_result(Failure.of(point, result))
    return curve, time.monotonic() > until


def _left(
    plan: MeasuringPlan, curve: ScalingCurve, number: int, tried: Set[Point]
) -> Iterator[Point]:
    """Yield what is still to be measured in a round, numbered from 0."""
    if curve.batch:
        order = plan.points(curve.batch)
        order = order if number % 2 == 0 else order[::-1]
    else:
        order = [Point(devices, 0) for devices in plan.devices]
    for point in order:
        is_done = sum(sample.point == point for sample in curve.samples) > number
        if not is_done and point not in tried and curve.failure(point) is None:
            yield point
