"""Measuring of a scaling curve: what is said if the time is up."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest

from hptune.config.asked import asked
from hptune.config.settings import StudySettings
from hptune.core.attempt import Cause, Ending
from hptune.core.step_request import StepRequest
from hptune.master.scaling import ScalingRequest, measured_curve
from hptune.scaling.curve import Mode, Point, Sample, ScalingCurve
from hptune.scaling.measurer import MeasuringPlan
from hptune.user_code.source import ObjectiveSource, SourceKind

BATCH = 8


def measured(runs: int, *, too_large: int = 0, lost: int = 0, repeats: int = 3) -> ScalingCurve:
    """Measure 1 and 2 devices for as long as some runs take, the last of which is cut off.

    Args:
        runs: How many are done.
        too_large: Number of devices whose memory does not hold the model.
        lost: How many runs lose their worker before the first one is done.
        repeats: How often each point is to be measured.
    """
    now = 0.0

    def run(devices: int, request: StepRequest, until: float) -> Sample | Ending:
        nonlocal now, lost
        if lost:
            lost -= 1
            return Ending(Cause.WORKER_LOST, reason="its worker is gone")
        if devices == too_large:
            return Ending(Cause.OUT_OF_MEMORY)
        now += 1.0
        if now > until:
            return Ending(Cause.STOPPED)
        return Sample(Point(devices, BATCH), step_seconds=0.1, steps=8)

    source = ObjectiveSource(SourceKind.FILE, "/model.py")
    request = ScalingRequest(
        asked=asked(StudySettings(source=source, working_directory="/")),
        plan=MeasuringPlan(
            devices=(1, 2), modes=(Mode.WEAK,), repeats=repeats, seconds=runs, batch=BATCH
        ),
    )
    runner: Any = mock.Mock(device="core", run=run, wants_stop=False)
    clock = mock.Mock(monotonic=lambda: now)
    with (
        mock.patch("hptune.master.scaling.time", clock),
        mock.patch("hptune.scaling.measurer.time", clock),
    ):
        return measured_curve(runner, request, backend="jax", note=lambda _: None)


@pytest.mark.parametrize(("runs", "least"), [(1, 0), (2, 1), (3, 1), (4, 2), (5, 2)])
def test_a_point_that_was_not_reached_counts_among_those_that_lack_runs(
    runs: int, least: int
) -> None:
    curve = measured(runs)
    assert len(curve.samples) == runs
    (note,) = curve.notes
    assert note.startswith(f"the time was up after {least} of 3 runs of each point; ")


def test_no_time_is_missed_if_all_is_measured_that_can_be() -> None:
    assert measured(6).notes == ()
    curve = measured(3, too_large=2)
    assert len(curve.samples) == 3
    assert curve.notes == ()
    assert measured(2, too_large=2).notes[0].startswith("the time was up after 2 of 3 runs")


def test_a_lost_worker_is_a_note_and_no_failure_of_the_model() -> None:
    curve = measured(6, lost=1)
    assert curve.notes == ("1 core: its worker is gone",)
    assert not curve.failures
    assert [each.point.devices for each in curve.samples] == [2, 2, 1, 1, 2]
