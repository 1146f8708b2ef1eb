"""Limits of a study: memory, the time left on a worker, and budgets."""

from __future__ import annotations

import pytest

from engine_driver import FIRST, EngineDriver, returned
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Usage
from hptune.core.budget import Device, DeviceBudget
from hptune.core.messages import Ask, Finish, FinishReason, Stop, StopRequested, Tell
from hptune.core.pruner import PrunerSettings
from hptune.core.resources import Amount, Capacity, Resources
from hptune.core.trial import TrialState

FOUR_CORES = Capacity((0, 1, 2, 3), memory_bytes=100)
HOUR = 3600.0


def usage(seconds_per_step: float | None = None, memory_bytes: int = 10) -> Usage:
    return Usage(
        peak_memory_bytes=memory_bytes,
        cpu_seconds=1.0,
        seconds=2.0,
        seconds_per_step=seconds_per_step,
    )


# --- memory ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("granted", "used", "then"),
    [(10, 10, 20), (10, 30, 60), (0, 20, 40), (60, 60, 100), (0, 0, 0)],
)
def test_a_trial_that_runs_out_of_memory_gets_twice_as_much_and_then_fails(
    driver: EngineDriver, granted: int, used: int, then: int
) -> None:
    driver.open(1, resources=Resources(memory_bytes=granted))
    driver.join_with("w", FOUR_CORES)
    driver.suggest()
    if used:
        driver.measure(FIRST, usage(memory_bytes=used))
    driver.end(FIRST, Ending(Cause.OUT_OF_MEMORY, reason="killed at 10 bytes"))
    assert driver.starts[0].attempt == AttemptId(0, 1)
    assert driver.starts[0].placement.memory_bytes == then
    driver.end(AttemptId(0, 1), Ending(Cause.OUT_OF_MEMORY, reason="killed at 20 bytes"))
    assert driver.trial(0).state is TrialState.FAILED
    assert driver.trial(0).reason == "killed at 20 bytes"
    driver.check_replay()


def test_it_waits_until_there_is_as_much_memory_free(driver: EngineDriver) -> None:
    driver.open(2, resources=Resources(memory_bytes=50))
    driver.join_with("w", FOUR_CORES)
    driver.suggest()
    driver.end(FIRST, Ending(Cause.OUT_OF_MEMORY))
    assert driver.trial(0).state is TrialState.WAITING
    driver.end(AttemptId(1, 0), returned(0.5))
    assert driver.starts[0].placement.memory_bytes == 100


@pytest.mark.parametrize(
    ("asked", "granted"),
    [
        (Resources(memory_bytes=90), 90),
        (Resources(memory_bytes=97), 95),
        (Resources(memory_bytes=100), 95),
        (Resources(memory_bytes=110), None),
        (Resources(2, processes=2, memory_bytes=100), 2 * 47),
        (Resources(4, processes=4, nodes=2, memory_bytes=200), 4 * 47),
        (Resources(2, processes=2, nodes=2, memory_bytes=220), None),
    ],
)
def test_a_trial_may_ask_for_all_of_a_worker_that_keeps_memory_back(
    driver: EngineDriver, asked: Resources, granted: int | None
) -> None:
    """As in a job that was made for it, where trials of other sizes are measured."""
    driver.open(1, measured=(Amount.MEMORY,))
    for number in range(asked.nodes):
        driver.join_with(f"w{number}", FOUR_CORES)
    driver.suggest(resources=lambda _: asked)
    placed = [each.placement for each in driver.starts.values()]
    found = [sum(rank.memory_bytes for rank in each.ranks) for each in placed]
    assert found == ([] if granted is None else [granted])
    driver.check_replay()


def test_it_asks_for_no_larger_worker_than_there_may_be(driver: EngineDriver) -> None:
    usual = Resources(memory_bytes=60)
    driver.open(1, resources=usual)
    driver.join_with("w", FOUR_CORES)
    driver.suggest()
    driver.end(FIRST, Ending(Cause.OUT_OF_MEMORY))
    assert driver.engine.snapshot.sizes == {Resources(memory_bytes=100): 1}
    driver.leave()
    assert driver.engine.snapshot.sizes == {usual: 1}
    driver.join_with("v", FOUR_CORES)
    assert driver.starts[0].placement.memory_bytes == 100
    driver.check_replay()


def test_who_shared_a_gpu_and_ran_out_of_its_memory_gets_a_whole_one(driver: EngineDriver) -> None:
    driver.open(1, resources=Resources(gpus=0.25))
    driver.join_with("w", Capacity((0, 1), ("A",)))
    driver.suggest()
    assert driver.starts[0].placement.gpu_share == 0.25
    driver.end(FIRST, Ending(Cause.DEVICE_OUT_OF_MEMORY))
    assert driver.starts[0].placement.gpu_share == 1.0


# --- the end of a worker --------------------------------------------------------------------


def test_nothing_starts_where_it_would_not_reach_its_next_step(driver: EngineDriver) -> None:
    driver.open(9)
    driver.join_with("ends", Capacity((0, 1)), ends_at=driver.at + 100.0)
    driver.suggest()
    driver.measure(FIRST, usage(seconds_per_step=80.0))
    driver.report(FIRST, 1, score=0.5)
    commands = driver.end(FIRST, returned(0.5))
    assert not any(isinstance(each, Ask) for each in commands), "a step takes some 120 s"
    driver.end(AttemptId(1, 0), Ending(Cause.KILLED))
    assert driver.trial(1).state is TrialState.WAITING
    driver.join_with("stays", Capacity((0,)), ends_at=driver.at + 1_000.0)
    assert driver.starts[1].placement.worker == "stays"


def test_rather_a_worker_that_stays_until_the_trial_is_through(driver: EngineDriver) -> None:
    driver.open(9, pruner=PrunerSettings(epochs=10))
    driver.join_with("ends", Capacity((0,)), ends_at=driver.at + 300.0)
    driver.suggest()
    driver.measure(FIRST, usage(seconds_per_step=60.0))
    driver.join("stays")
    driver.suggest()
    driver.end(FIRST, Ending(Cause.RELEASED))
    assert driver.starts[0].placement.worker == "ends", "there it gets further, at least"
    driver.end(AttemptId(1, 0), returned(0.5))
    driver.end(AttemptId(0, 1), Ending(Cause.RELEASED))
    assert driver.starts[0].placement.worker == "stays"


# --- a budget in device hours ---------------------------------------------------------------


def test_the_study_lets_go_when_its_budget_is_spent(driver: EngineDriver) -> None:
    driver.open(9, resources=Resources(cpus=2), budget=DeviceBudget(Device.CORE, 4.0))
    driver.join(cores=4)
    driver.suggest()
    driver.at += HOUR  # nothing runs yet: its processes are being started
    driver.started(FIRST)
    driver.at += HOUR
    assert driver.report(FIRST, 1, score=0.5) == []
    driver.at += HOUR
    assert driver.report(FIRST, 2, score=0.5) == [
        Stop(AttemptId(0, 0), Halt.STOP),
        Stop(AttemptId(1, 0), Halt.STOP),
    ]
    driver.end(FIRST, Ending(Cause.STOPPED))
    assert driver.end(AttemptId(1, 0), Ending(Cause.STOPPED)) == [
        Finish(FinishReason.BUDGET_SPENT, "the budget of 4 core hours is spent")
    ]
    driver.check_replay()


def test_a_budget_is_spent_by_time_alone(driver: EngineDriver) -> None:
    driver.open(1, resources=Resources(cpus=2), budget=DeviceBudget(Device.CORE, 4.0))
    driver.join(cores=4)
    driver.suggest()
    assert driver.engine.overspent(driver.at + 99 * HOUR) is None  # nothing runs yet
    driver.started(FIRST)
    assert driver.engine.overspent(driver.at + 1.9 * HOUR) is None
    at, reason = driver.at + 2.0 * HOUR, "the budget of 4 core hours is spent"
    assert driver.engine.overspent(at) == StopRequested(at, FinishReason.BUDGET_SPENT, reason)


def test_the_time_between_two_masters_is_paid_by_nobody(driver: EngineDriver) -> None:
    budget = DeviceBudget(Device.GPU, 1.5)
    driver.open(1, resources=Resources(gpus=0.5), budget=budget)
    driver.join(gpus=1)
    driver.suggest()
    driver.started(FIRST)
    driver.at += HOUR
    driver.report(FIRST, 1, score=0.5)
    before = driver.at
    driver.at += 99 * HOUR
    driver.open(1, resources=Resources(gpus=0.5), budget=budget)
    assert driver.attempt(FIRST).ended_at == pytest.approx(before, abs=5.0)
    driver.join(gpus=1)
    driver.started(AttemptId(0, 1))
    driver.at += 1.9 * HOUR
    assert driver.report(AttemptId(0, 1), 2, score=0.5) == []
    driver.at += 0.2 * HOUR
    assert driver.report(AttemptId(0, 1), 3, score=0.5) == [Stop(AttemptId(0, 1), Halt.STOP)]


def test_nothing_starts_that_cannot_be_paid_for_one_step(driver: EngineDriver) -> None:
    driver.open(9, budget=DeviceBudget(Device.CORE, 1.5))
    driver.join()
    driver.suggest()
    driver.started(FIRST)
    driver.at += HOUR
    driver.measure(FIRST, usage(seconds_per_step=HOUR))
    commands = driver.end(FIRST, returned(0.5))
    assert commands[-1] == Finish(
        FinishReason.BUDGET_SPENT, "the budget of 1.5 core hours is spent"
    )


def test_a_step_is_priced_by_the_cores_that_a_trial_with_a_gpu_gets(driver: EngineDriver) -> None:
    driver.open(9, budget=DeviceBudget(Device.CORE, 12.0))
    driver.join_with("w", Capacity(tuple(range(8)), ("A",)))
    driver.suggest()
    driver.started(FIRST)
    driver.at += HOUR
    driver.measure(FIRST, usage(seconds_per_step=HOUR))
    commands = driver.end(FIRST, returned(0.5))
    assert commands[-1] == Finish(
        FinishReason.BUDGET_SPENT, "the budget of 12 core hours is spent"
    ), "four hours are left, half a step"
    driver.check_replay()


def test_a_step_is_priced_by_what_the_trial_itself_holds(driver: EngineDriver) -> None:
    driver.open(3, budget=DeviceBudget(Device.CORE, 4.0), resources=Resources(cpus=1))
    driver.join(cores=4)
    driver.suggest(resources=lambda number: Resources(cpus=4) if number == 1 else None)
    driver.started(FIRST)
    driver.at += HOUR
    driver.measure(FIRST, usage(seconds_per_step=HOUR))
    driver.end(FIRST, returned(0.5))
    assert [*driver.running] == [AttemptId(2, 0)], "three hours are left"
    driver.started(AttemptId(2, 0))
    driver.at += HOUR
    commands = driver.end(AttemptId(2, 0), returned(0.5))
    assert commands[-1] == Finish(FinishReason.BUDGET_SPENT, "the budget of 4 core hours is spent")
    driver.check_replay()


def test_what_is_suggested_after_the_end_waits_for_more_budget(driver: EngineDriver) -> None:
    driver.open(9, budget=DeviceBudget(Device.CORE, 6.0), resources=Resources(cpus=4))
    driver.join(cores=4)
    driver.suggest()
    driver.join("other", cores=4)
    assert driver.ask is not None
    driver.started(FIRST)
    driver.at += HOUR
    driver.measure(FIRST, usage(seconds_per_step=HOUR))
    assert isinstance(driver.end(FIRST, returned(0.5))[-1], Finish)
    # What is left would pay for a step of this one.
    commands = driver.suggest(resources=lambda _: Resources(cpus=1))
    assert [type(command) for command in commands] == [Tell]
    driver.open(9, budget=DeviceBudget(Device.CORE, 99.0), resources=Resources(cpus=4))
    driver.join(cores=4)
    assert [*driver.running] == [AttemptId(1, 0)]
    driver.check_replay()


def test_more_budget_goes_on(driver: EngineDriver) -> None:
    driver.open(2, budget=DeviceBudget(Device.CORE, 0.5))
    driver.join()
    driver.suggest()
    driver.started(FIRST)
    driver.at += HOUR
    driver.end(FIRST, returned(0.5))
    assert driver.finish is not None
    driver.open(2, budget=DeviceBudget(Device.CORE, 5.0))
    assert driver.join() == [Ask((1,))]
