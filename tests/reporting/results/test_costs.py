"""Costs of attempts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fake_study import GOALS, attempt, trial
from hptune.core.attempt import Outcome, Usage
from hptune.core.budget import resized
from hptune.core.goals import JOULES_PER_KWH
from hptune.core.trial import TrialState
from hptune.reporting.results.costs import Costs, costs_of
from hptune.reporting.results.summary import status_json
from hptune.reporting.results.view import StudyView

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
    assert costs_of([]) == Costs()
    assert costs_of([ENDED]) == Costs(core_hours=2.0, gpu_hours=1.0, wait_seconds=60.0)
    assert costs_of([ENDED, HALF]) == Costs(4.0, 1.5, 120.0, idle_core_hours=0.5)
    early = replace(HALF, usage=replace(USAGE, seconds=2 * HOUR))
    assert costs_of([early]).idle_core_hours == 0.5
    starved = replace(HALF, usage=replace(USAGE, starved_seconds=0.25 * HOUR))
    assert costs_of([starved]).idle_core_hours == 0.25


@pytest.mark.parametrize(
    ("gpu_kwh", "processor_kwh", "has_gpu", "words"),
    [
        (1.1, 0.1, True, "1.2 kWh (GPUs 1.1 kWh)"),
        (1.1, None, True, "1.1 kWh (GPUs only, processors not readable)"),
        (None, 0.1, True, "0.1 kWh (processors only, GPUs not readable)"),
        (None, 0.05, False, "50 Wh"),
        (None, None, True, ""),
    ],
)
def test_energy_says_what_it_is_of(
    gpu_kwh: float | None, processor_kwh: float | None, has_gpu: bool, words: str
) -> None:
    gpu, processor = (each and each * JOULES_PER_KWH for each in (gpu_kwh, processor_kwh))
    used = replace(USAGE, gpu_joules=gpu, processor_joules=processor)
    placement = ENDED.placement if has_gpu else replace(ENDED.placement, gpus=())
    found = costs_of([replace(ENDED, placement=placement, usage=used)])
    assert found.energy_text == words
    both = costs_of([replace(ENDED, usage=used), ENDED])  # of an old ledger, say
    assert both.energy_kwh == found.energy_kwh
    assert (found.energy_kwh is None) == (not words)


def test_devices_held_before_a_trial_was_packed_count() -> None:
    began = replace(ENDED, ended_at=None, usage=USAGE)
    packed = resized(began, replace(HALF.placement, cpu_share=0.25), at=1060.0 + HOUR / 4)
    assert costs_of([packed], now=1060.0 + HOUR / 4) == costs_of([began], now=1060.0 + HOUR / 4)
    again = resized(packed, replace(packed.placement, gpu_share=0.25), at=1060.0 + HOUR / 2)
    ended = replace(again, ended_at=1060.0 + HOUR)
    found = costs_of([ended])
    assert found.core_hours == pytest.approx(2.0 / 4 + 0.5 * 3 / 4)
    assert found.gpu_hours == pytest.approx(1 / 4 + 0.5 / 4 + 0.25 / 2)
    assert found.idle_core_hours == 0.0


def test_an_attempt_that_never_ran_has_only_waited() -> None:
    waited = attempt(0, waited_seconds=None, ended_at=1030.0, outcome=Outcome.LOST)
    assert costs_of([waited]) == Costs(wait_seconds=30.0)


def test_a_running_attempt_counts_until_now_if_there_is_a_master() -> None:
    runs = attempt(1, waited_seconds=10.0)
    waits = attempt(2, waited_seconds=None)
    assert costs_of([runs, waits]) == Costs()
    assert costs_of([runs, waits], now=1010.0 + HOUR) == Costs(2.0, 0.0, 20.0 + HOUR)


def test_without_a_master_costs_do_not_grow() -> None:
    trials = [trial(0, value=0.5), trial(1, TrialState.RUNNING)]
    view = StudyView("runs/one", "tpe", GOALS, None, trials, [ENDED, attempt(1)])
    first, later = (status_json(view, now=now)["core_hours"] for now in (2000.0, 9e9))
    assert first == later == pytest.approx(2.0)
