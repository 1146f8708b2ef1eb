"""What attempts cost, by the attempts table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_study import AIMS, attempt, trial

from tuner.core.budget import resized
from tuner.core.trial import Outcome, TrialState, Usage
from tuner.reporting.results.costs import Costs, books
from tuner.reporting.results.summary import status_json
from tuner.reporting.results.view import StudyView

HOUR = 3600.0
USAGE = Usage(
    peak_memory_bytes=1,
    peak_gpu_memory_bytes=0,
    cpu_seconds=1.5 * HOUR,
    seconds=HOUR,
    seconds_per_step=None,
)
ENDED = attempt(
    0, waited_seconds=60.0, ended_at=1060.0 + HOUR, outcome=Outcome.FINISHED, gpus=("0",)
)
HALF = replace(ENDED, placement=replace(ENDED.placement, gpu_share=0.5), usage=USAGE)


def test_devices_count_while_processes_run() -> None:
    assert books([]) == Costs()
    assert books([ENDED]) == Costs(core_hours=2.0, gpu_hours=1.0, wait_seconds=60.0)
    assert books([ENDED, HALF]) == Costs(4.0, 1.5, 120.0, idle_core_hours=0.5)
    early = replace(HALF, usage=replace(USAGE, seconds=2 * HOUR))
    assert books([early]).idle_core_hours == 0.5
    starved = replace(HALF, usage=replace(USAGE, starved_seconds=0.25 * HOUR))
    assert books([starved]).idle_core_hours == 0.25


def test_what_was_held_before_it_was_packed_counts() -> None:
    began = replace(ENDED, ended_at=None, usage=USAGE)
    packed = resized(began, replace(HALF.placement, cpu_share=0.25), at=1060.0 + HOUR / 4)
    assert books([packed], now=1060.0 + HOUR / 4) == books([began], now=1060.0 + HOUR / 4)
    again = resized(packed, replace(packed.placement, gpu_share=0.25), at=1060.0 + HOUR / 2)
    ended = replace(again, ended_at=1060.0 + HOUR)
    found = books([ended])
    assert found.core_hours == pytest.approx(2.0 / 4 + 0.5 * 3 / 4)
    assert found.gpu_hours == pytest.approx(1 / 4 + 0.5 / 4 + 0.25 / 2)
    assert found.idle_core_hours == 0.0


def test_who_never_ran_has_only_waited() -> None:
    waited = attempt(0, waited_seconds=None, ended_at=1030.0, outcome=Outcome.LOST)
    assert books([waited]) == Costs(wait_seconds=30.0)


def test_who_runs_counts_until_now_if_somebody_knows() -> None:
    runs = attempt(1, waited_seconds=10.0)
    waits = attempt(2, waited_seconds=None)
    assert books([runs, waits]) == Costs()
    assert books([runs, waits], now=1010.0 + HOUR) == Costs(2.0, 0.0, 20.0 + HOUR)


def test_without_a_master_the_books_do_not_grow() -> None:
    trials = [trial(0, value=0.5), trial(1, TrialState.RUNNING)]
    view = StudyView("runs/one", "tpe", AIMS, None, trials, [ENDED, attempt(1)])
    first, later = (status_json(view, now=now)["core_hours"] for now in (2000.0, 9e9))
    assert first == later == pytest.approx(2.0)
