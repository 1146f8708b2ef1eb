"""The estimate of the time that a study still takes, against studies whose end is known."""

from __future__ import annotations

import heapq
import random
import statistics
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_study import GOALS, LivingMaster, attempt, trial
from hptune.core.attempt import AttemptId, Outcome, Report, Usage
from hptune.core.trial import TrialState
from hptune.reporting.results.time_left import RunningTime, left_of, seconds_left
from hptune.reporting.results.view import StudyView

LENGTHS: dict[str, Callable[[random.Random], float]] = {
    "alike": lambda chance: chance.gauss(10.0, 0.3),
    "stopped early": lambda chance: chance.choices([1, 3, 9, 27], [12, 5, 2, 1])[0] * 1.0,
    "of all sizes": lambda chance: chance.lognormvariate(2.0, 0.8),
}


def played(length: Callable[[random.Random], float], places: int, seed: int) -> list[list[float]]:
    """Return the start and the end of each of 200 trials, of which some run at once."""
    chance, free = random.Random(seed), [0.0] * places
    spans = []
    for _ in range(200):
        start = free[0]
        spans.append([start, start + length(chance)])
        heapq.heapreplace(free, spans[-1][1])
    return spans


@pytest.mark.parametrize("part", [0.5, 0.9, 1.0])
@pytest.mark.parametrize("kind", LENGTHS)
def test_the_estimate_is_as_often_too_long_as_too_short(kind: str, part: float) -> None:
    """Also while the last trials run, which is when a mean would say that all is over."""
    ratios = []
    for seed in range(20):
        spans = played(LENGTHS[kind], 8, seed)
        end, last = max(e for _, e in spans), max(s for s, _ in spans)
        now = part * end if part < 1.0 else (last + end) / 2
        ended = [e - s for s, e in sorted(spans, key=lambda span: span[1]) if e <= now]
        running = [RunningTime(now - s) for s, e in spans if s <= now < e]
        to_come = sum(s > now for s, _ in spans)
        left = seconds_left(ended, running, to_come=to_come, places=8)
        ratios.append(left / (end - now))
    assert 0.75 < statistics.median(ratios) < 1.6, ratios


@given(
    ended=st.lists(st.floats(0.1, 100.0), min_size=1, max_size=30),
    running=st.lists(st.floats(0.0, 150.0), max_size=6),
    to_come=st.integers(0, 300),
)
def test_the_rest_takes_no_longer_than_the_longest_trial_in_each_place_would(
    ended: list[float], running: list[float], to_come: int
) -> None:
    places = max(1, len(running))
    left = seconds_left(ended, [*map(RunningTime, running)], to_come=to_come, places=places)
    longest = max(*ended, *running, 0.0)
    assert 0.0 <= left <= longest * (2 + to_come / places) + 1e-6


def test_a_trial_that_takes_longer_than_all_before_is_told_by_its_epochs() -> None:
    left = seconds_left([5.0] * 9, [RunningTime(8.0, rest=12.0)], to_come=0, places=1)
    assert left == pytest.approx(12.0)
    assert seconds_left([5.0] * 9, [RunningTime(8.0)], to_come=0, places=1) == 0.0


def test_what_runs_since_before_this_run_counts_as_places() -> None:
    """Jobs may outlive a master: after the next one took them over, none was begun by it."""
    running = [RunningTime(4.0)] * 20
    left = [seconds_left([10.0] * 9, running, to_come=2000, places=n) for n in (1, 20)]
    assert left == [pytest.approx(1006.0)] * 2


def test_a_study_tells_from_its_ledger_how_long_it_still_takes() -> None:
    """Six trials took 10 s each, two at a time; two of three more have run for 4 s."""
    ended = [attempt(n, placed_at=1000.0 + 10 * (n // 2), ended_at=1010.0 + 10 * (n // 2),
                     outcome=Outcome.FINISHED) for n in range(6)]  # fmt: skip
    running = [attempt(n, placed_at=1030.0) for n in (6, 7)]
    view = StudyView(
        "study", "random", GOALS, 9,
        [*(trial(n, value=0.5) for n in range(6)),
         *(trial(n, TrialState.RUNNING) for n in (6, 7))],
        [*ended, *running],
        master=LivingMaster(),
        epochs=9,
    )  # fmt: skip
    assert left_of(view, 1034.0) == pytest.approx(16.0)
    assert left_of(replace(view, budget_trials=8), 1034.0) == pytest.approx(6.0)
    slow = Usage(peak_memory_bytes=1, cpu_seconds=1.0, seconds=9.0, seconds_per_step=5.0)
    longer = replace(
        view,
        budget_trials=8,
        attempts=[*ended, *(replace(each, usage=slow) for each in running)],
        latest={AttemptId(n, 0): Report(4, {}) for n in (6, 7)},
    )
    assert left_of(longer, 1050.0) == pytest.approx(25.0), "longer than all: five epochs of 5 s"
    assert left_of(replace(view, master=None), 1034.0) is None
    assert left_of(replace(view, paused_by="ada"), 1034.0) is None
    assert left_of(replace(view, budget_trials=None), 1034.0) is None


def test_as_many_trials_as_run_at_once_must_have_ended_or_half_of_all() -> None:
    ended = [attempt(n, placed_at=1000.0, ended_at=1010.0, outcome=Outcome.FINISHED)
             for n in range(4)]  # fmt: skip
    running = [attempt(n, placed_at=1010.0) for n in range(4, 12)]
    trials = [trial(n, value=0.5) for n in range(4)]
    view = StudyView(
        "study", "random", GOALS, 99, trials, [*ended, *running], master=LivingMaster()
    )
    assert left_of(view, 1014.0) is None
    assert left_of(replace(view, budget_trials=8, attempts=ended), 1014.0) == pytest.approx(10.0)
    few = replace(view, trials=trials[:1], attempts=ended[:1], budget_trials=2)
    assert left_of(few, 1014.0) == pytest.approx(10.0)


def test_a_clock_that_was_put_back_makes_no_negative_time() -> None:
    ended = [attempt(n, placed_at=5000.0, ended_at=1010.0, outcome=Outcome.FINISHED)
             for n in range(6)]  # fmt: skip
    trials = [trial(n, value=0.5) for n in range(6)]
    view = StudyView("study", "random", GOALS, 99, trials, ended, master=LivingMaster())
    assert left_of(view, 1034.0) == 0.0
    assert left_of(replace(view, master=LivingMaster(since=9000.0)), 1034.0) == 0.0


def test_a_run_with_fewer_workers_than_the_one_before_takes_longer() -> None:
    """Sixteen trials took 10 s at once, then three one after the other."""
    ended = [attempt(n, placed_at=1000.0, ended_at=1010.0, outcome=Outcome.FINISHED)
             for n in range(16)]  # fmt: skip
    ended += [attempt(16 + n, placed_at=5000.0 + 10 * n, ended_at=5010.0 + 10 * n,
                      outcome=Outcome.FINISHED) for n in range(3)]  # fmt: skip
    trials = [trial(n, value=0.5) for n in range(19)]
    master = LivingMaster(since=4990.0)
    view = StudyView("study", "random", GOALS, 29, trials, ended, master=master)
    assert left_of(view, 5030.0) == pytest.approx(100.0)
