"""The simulation keeps the executor's contract, and produces what it was configured for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hptune.core.attempt import AttemptId, Cause
from hptune.core.messages import AttemptEnded, Event, Measured, Start, WorkerJoined, WorkerLeft
from hptune.core.resources import Placement
from hptune.executors.base import Executor
from hptune.testing.executors import Stage
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.orders import AttemptLimits, AttemptOrder
from simulated import SimulatedExecutor
from simulated_parts import Faults, Needs, SimulatedWorker
from simulated_suite import SimulatedSuite, curve


@contextmanager
def simulated(*workers: SimulatedWorker) -> Iterator[SimulatedExecutor]:
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: 1.0,
        workers=workers,
        faults=Faults(replaced_after_seconds=3.0),
    )
    executor.open()
    try:
        yield executor
    finally:
        executor.close()


class TestSimulatedExecutor(SimulatedSuite):
    @contextmanager
    def executor(self, stage: Stage, cores: int) -> Iterator[Executor]:
        with simulated(SimulatedWorker(name="w", cores=cores)) as executor:
            yield executor

    @contextmanager
    def executor_without_workers(self, stage: Stage) -> Iterator[Executor]:
        with simulated() as executor:
            yield executor


# --- configured faults and delays happen -----------------------------------------------------


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path, ObjectiveSource(SourceKind.FILE, "objective.py"), "")


def played(
    stage: Stage,
    count: int,
    *,
    faults: Faults | None = None,
    seed: int = 0,
    backwards: bool = False,
    **limits: Any,
) -> dict[int, tuple[Cause, float]]:
    """Run attempts of ten 1-second epochs, on a worker each; return their ends and durations."""
    executor = SimulatedExecutor(
        curve=lambda params, seed: [{"score": 0.5}] * 10,
        seconds_per_epoch=lambda params, worker: 1.0,
        workers=[SimulatedWorker(name=str(number)) for number in range(count)],
        faults=faults,
        seed=seed,
    )
    executor.open()
    executor.events(0.0)
    begun = executor.clock.now()
    for number in sorted(range(count), reverse=backwards):
        executor.start(
            AttemptOrder(
                replace(stage.brief, limits=AttemptLimits(**limits)),
                Start(AttemptId(number, 0), {}, Placement(str(number), (0,)), number),
                (),
            )
        )
    ends: dict[int, tuple[Cause, float]] = {}
    while executor.clock.now() < begun + 200.0:
        for event in executor.events(1.0):
            if isinstance(event, AttemptEnded):
                ends[event.attempt.trial] = (event.ending.cause, event.at - begun)
    return ends


def test_an_attempt_takes_as_long_as_its_epochs(stage: Stage) -> None:
    assert played(stage, 2) == {0: (Cause.RETURNED, 10.0), 1: (Cause.RETURNED, 10.0)}
    assert played(stage, 1, epochs=3) == {0: (Cause.RETURNED, 3.0)}
    assert played(stage, 1, trial_timeout_seconds=4.5) == {0: (Cause.TIMED_OUT, 4.5)}


def test_faults_come_as_often_as_told(stage: Stage) -> None:
    ends = played(stage, 400, faults=Faults(killed_attempts=0.25, stragglers=0.5))
    killed = [seconds for cause, seconds in ends.values() if cause is Cause.KILLED]
    slow = [seconds for cause, seconds in ends.values() if seconds > 10.0]
    assert 70 < len(killed) < 130
    assert {seconds for seconds in killed if seconds <= 5.0} == {1.0, 2.0, 3.0, 4.0, 5.0}
    assert 140 < len(slow) < 260


def test_workers_live_as_long_as_told(stage: Stage) -> None:
    lost = 400 - len(played(stage, 400, faults=Faults(worker_life_seconds=10.0)))
    assert 200 < lost < 300  # 1 - 1/e of them die within ten seconds


def test_luck_follows_from_the_seed_and_not_from_the_order(stage: Stage) -> None:
    faults = Faults(killed_attempts=0.5, stragglers=0.5)
    ends = played(stage, 50, faults=faults)
    assert played(stage, 50, faults=faults, backwards=True) == ends
    assert played(stage, 50, faults=faults, seed=1) != ends


def test_time_moves_no_further_than_the_time_out() -> None:
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: 1.0,
        workers=[SimulatedWorker(name="late", joins_seconds=5.0)],
    )
    executor.open()
    begun = executor.clock.now()
    assert executor.events(2.0) == []
    assert executor.clock.now() == begun + 2.0
    (joined,) = executor.events(100.0)
    assert joined.at == executor.clock.now() == begun + 5.0


def test_what_happens_close_together_is_told_at_once() -> None:
    executor = SimulatedExecutor(
        curve=curve,
        seconds_per_epoch=lambda params, worker: 1.0,
        workers=[SimulatedWorker(name=str(n), joins_seconds=n / 10) for n in range(10)],
        batch_seconds=0.25,
    )
    executor.open()
    assert [len(executor.events(9.0)) for _ in range(4)] == [3, 3, 3, 1]


# --- what attempts use -----------------------------------------------------------------------


def side_by_side(stage: Stage, needs: list[Needs], worker: SimulatedWorker) -> list[Event]:
    """Run attempts of ten epochs of one second, all on one worker; return their events."""
    executor = SimulatedExecutor(
        curve=lambda params, seed: [{"score": 0.5}] * 10,
        seconds_per_epoch=lambda params, worker: 1.0,
        workers=[worker],
        needs=lambda params: needs[int(params["x"] or 0)],
    )
    executor.open()
    found = list(executor.events(0.0))
    for number in range(len(needs)):
        order = AttemptOrder(
            stage.brief,
            Start(AttemptId(number, 0), {"x": number}, Placement(worker.name, (0,)), number),
            (),
        )
        executor.start(order)
    for _ in range(300):
        found += executor.events(1.0)
    return found


def test_cores_that_are_wanted_too_much_make_all_slower(stage: Stage) -> None:
    worker = SimulatedWorker(name="w", cores=2)
    found = side_by_side(stage, [Needs(memory_bytes=5, busy=0.8)] * 5, worker)
    last = [each.usage for each in found if isinstance(each, Measured)][-1]
    assert last.seconds_per_step == pytest.approx(2.0)
    assert last.cpu_seconds == pytest.approx(8.0)
    assert last.seconds == pytest.approx(20.0)
    assert last.peak_memory_bytes == 5


def test_where_memory_runs_out_the_largest_is_killed(stage: Stage) -> None:
    worker = SimulatedWorker(name="w", cores=4, memory_bytes=10)
    found = side_by_side(stage, [Needs(memory_bytes=each) for each in (3, 6, 2)], worker)
    ends = {
        each.attempt.trial: each.ending.cause for each in found if isinstance(each, AttemptEnded)
    }
    assert ends == {0: Cause.RETURNED, 1: Cause.OUT_OF_MEMORY, 2: Cause.RETURNED}


def test_a_worker_says_when_it_must_go_and_goes(stage: Stage) -> None:
    worker = SimulatedWorker(name="w", joins_seconds=0.0, walltime_seconds=7.0)
    found = side_by_side(stage, [Needs()], worker)
    (joined,) = (each for each in found if isinstance(each, WorkerJoined))
    (left,) = (each for each in found if isinstance(each, WorkerLeft))
    assert joined.ends_at == left.at == joined.at + 7.0
