"""Answers of the engine to events, in short traces."""

from __future__ import annotations

import pytest

from engine_driver import FIRST, SEED, EngineDriver, returned, states
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Outcome, Usage
from hptune.core.engine.engine import Engine
from hptune.core.messages import (
    Ask,
    AttemptWaits,
    Finish,
    FinishReason,
    GrowSpace,
    KeepBest,
    Start,
    Stop,
    Suggested,
    Tell,
    WorkerJoined,
    WorkerRefused,
)
from hptune.core.resources import Capacity, Placement, Resources
from hptune.core.seeds import training_seed
from hptune.core.trial import TrialState
from hptune.errors import InvalidTransition

# --- the way of a trial ---------------------------------------------------------------------


def test_the_trace_that_the_module_tells(driver: EngineDriver) -> None:
    assert driver.open(trials=2) == []
    assert driver.join("w", cores=1) == [Ask((0,))]
    tell, start = driver.suggest([{"x": 1}])
    assert isinstance(tell, Tell)
    assert tell.trial.state is TrialState.WAITING
    assert start == Start(
        attempt=FIRST,
        params={"x": 1},
        placement=Placement("w", (0,)),
        seed=training_seed(SEED, 0),
        incumbents=(),
        resume_from=None,
    )
    assert driver.started(FIRST) == []
    assert driver.report(FIRST, 1, score=0.1) == []
    tell, kept, ask = driver.end(FIRST, returned(0.5))
    assert isinstance(tell, Tell)
    assert (tell.trial.state, tell.trial.value) == (TrialState.COMPLETE, 0.5)
    assert kept == KeepBest((tell.trial,))
    assert ask == Ask((1,))


def test_a_lost_worker_leaves_its_trial_waiting_for_a_place(driver: EngineDriver) -> None:
    driver.go(1)
    assert driver.leave("w") == []
    assert states(driver) == [TrialState.WAITING]
    (start,) = driver.join("v")
    assert isinstance(start, Start)
    assert start.attempt == AttemptId(0, 1)
    assert start.placement.worker == "v"
    assert driver.attempt(FIRST).outcome is Outcome.LOST
    assert driver.attempt(FIRST).reason == "gone"


def test_a_study_is_done_when_its_budget_is_used_up(driver: EngineDriver) -> None:
    driver.go(2, cores=2)
    driver.end(AttemptId(1, 0), returned(0.5))
    *_, finish = driver.end(FIRST, returned(0.7))
    assert finish == Finish(FinishReason.DONE, "2 trials are over")


def test_a_small_space_ends_the_study_early(driver: EngineDriver) -> None:
    driver.open(trials=10)
    driver.join(cores=4)
    assert driver.ask == Ask((0, 1, 2, 3))
    driver.suggest([{"x": 0}, {"x": 1}])
    driver.end(FIRST, returned(0.5))
    *_, finish = driver.end(AttemptId(1, 0), returned(0.5))
    assert finish == Finish(
        FinishReason.EXHAUSTED, "all 2 configurations of the search space were tried"
    )


def test_without_a_budget_the_whole_space_is_tried(driver: EngineDriver) -> None:
    driver.go(None)
    driver.end(FIRST, returned(0.5))
    (finish,) = driver.suggest([])
    assert isinstance(finish, Finish)
    assert finish.finish_reason is FinishReason.EXHAUSTED


def test_no_more_is_asked_for_than_fits_and_is_left(driver: EngineDriver) -> None:
    driver.open(trials=3, resources=Resources(cpus=2))
    assert driver.join("a", cores=5) == [Ask((0, 1))]
    driver.suggest()
    assert driver.join("b", cores=5) == [Ask((2,))]
    driver.suggest()
    assert driver.join("c", cores=5) == []


def test_while_a_question_is_open_no_other_is_asked(driver: EngineDriver) -> None:
    driver.open(trials=9)
    assert driver.join("a") == [Ask((0,))]
    assert driver.join("b") == []
    assert driver.suggest()[-1] == Ask((1,))


def test_the_lowest_number_waits_shortest(driver: EngineDriver) -> None:
    driver.go(3, cores=3)
    driver.end(AttemptId(2, 0), Ending(Cause.KILLED))
    driver.leave("w")
    (start,) = driver.join("v", cores=1)
    assert isinstance(start, Start)
    assert start.attempt.trial == 0


def test_what_an_attempt_used_is_known_as_last_measured(driver: EngineDriver) -> None:
    driver.go(1)
    first = Usage(peak_memory_bytes=100, cpu_seconds=1.0, seconds=2.0)
    last = Usage(peak_memory_bytes=150, cpu_seconds=3.0, seconds=4.0, seconds_per_step=0.5)
    for usage in (first, last):
        assert driver.measure(FIRST, usage) == []
    driver.end(FIRST, returned(0.5))
    assert driver.measure(FIRST, first) == []  # it comes too late
    assert driver.attempt(FIRST).usage == last


def test_a_trial_of_a_lost_worker_is_interrupted_until_it_runs_again(driver: EngineDriver) -> None:
    driver.go(9, cores=2)
    driver.leave()
    assert driver.engine.snapshot.interrupted == 2
    driver.join("other", cores=1)
    assert driver.engine.snapshot.interrupted == 1


# --- letting go and going on ----------------------------------------------------------------


def test_letting_go_stops_what_runs_and_starts_nothing(driver: EngineDriver) -> None:
    driver.go(9, cores=2)
    assert driver.stop(FinishReason.TIME_UP, "the time is up") == [
        Stop(AttemptId(0, 0), Halt.STOP),
        Stop(AttemptId(1, 0), Halt.STOP),
    ]
    assert driver.engine.snapshot.stopping == "the time is up"
    assert driver.stop() == []
    assert driver.join("late") == []
    assert driver.engine.snapshot.interrupted == 0
    driver.end(AttemptId(0, 0), Ending(Cause.STOPPED))
    # Not the trials that never began.
    assert driver.engine.snapshot.interrupted == 1
    tell, kept, finish = driver.end(AttemptId(1, 0), returned(0.5))
    assert isinstance(tell, Tell)
    assert tell.trial.state is TrialState.COMPLETE
    assert isinstance(kept, KeepBest)
    assert finish == Finish(FinishReason.TIME_UP, "the time is up")
    assert states(driver) == [TrialState.WAITING, TrialState.COMPLETE]


def test_without_room_for_checkpoints_the_study_lets_go_and_charges_nobody(
    driver: EngineDriver,
) -> None:
    driver.go(9, cores=2)
    ending = Ending(Cause.NO_ROOM, reason="no room for the checkpoint of epoch 3")
    assert driver.end(AttemptId(0, 0), ending) == [Stop(AttemptId(1, 0), Halt.STOP)]
    assert driver.end(AttemptId(1, 0), Ending(Cause.STOPPED)) == [
        Finish(FinishReason.NO_ROOM, "no room for the checkpoint of epoch 3")
    ]
    assert states(driver) == [TrialState.WAITING, TrialState.WAITING]
    for number in range(1, 9):
        driver.open(trials=9)
        driver.join()
        driver.end(AttemptId(0, number), ending)
        assert states(driver) == [TrialState.WAITING, TrialState.WAITING]


def test_letting_go_of_nothing_is_over_at_once(driver: EngineDriver) -> None:
    driver.open(trials=3)
    assert driver.stop() == [Finish(FinishReason.INTERRUPTED, "Ctrl-C")]


def test_a_lost_worker_does_not_hold_up_the_letting_go(driver: EngineDriver) -> None:
    driver.go(9)
    driver.stop()
    assert driver.leave() == [Finish(FinishReason.INTERRUPTED, "Ctrl-C")]


def test_an_answer_that_comes_after_the_end_waits_for_the_next_master(
    driver: EngineDriver,
) -> None:
    driver.open(trials=3)
    driver.join()
    driver.stop()
    (tell,) = driver.suggest()
    assert isinstance(tell, Tell)
    driver.open(trials=3)
    (start,) = driver.join()
    assert isinstance(start, Start)
    assert start.attempt == FIRST


def test_a_larger_budget_goes_on_where_the_study_ended(driver: EngineDriver) -> None:
    driver.go(1)
    driver.end(FIRST, returned(0.5))
    driver.open(trials=2)
    assert driver.join() == [Ask((1,))]


def test_a_smaller_budget_ends_the_study_at_once(driver: EngineDriver) -> None:
    driver.go(3, cores=3)
    for number in range(3):
        driver.end(AttemptId(number, 0), returned(0.5))
    *_, finish = driver.open(trials=2)
    assert finish == Finish(FinishReason.DONE, "3 trials are over")


def test_an_exhausted_space_is_asked_again_by_the_next_master(driver: EngineDriver) -> None:
    driver.go(5)
    driver.end(FIRST, returned(0.5))
    driver.suggest([])
    assert driver.finish is not None
    driver.open(trials=5)
    assert driver.join() == [Ask((1,))]


def test_time_between_masters_is_not_working_time(driver: EngineDriver) -> None:
    driver.go(1)  # events at 1000, 1001 and 1002
    driver.at = 5_000.0
    driver.open(trials=1)
    driver.join()
    assert driver.engine.active_seconds == 3.0


def test_a_clock_that_goes_back_takes_no_time_away(driver: EngineDriver) -> None:
    driver.go(2)  # events at 1000, 1001 and 1002
    driver.at = 900.0
    driver.report(FIRST, 1, score=0.1)
    assert driver.engine.active_seconds == 2.0
    driver.at = 1_004.0
    driver.report(FIRST, 2, score=0.1)
    assert driver.engine.active_seconds == 4.0


# --- trials of unequal size -----------------------------------------------------------------


def test_a_trial_gets_what_its_configuration_needs(driver: EngineDriver) -> None:
    driver.open(trials=2)
    driver.join(cores=4)
    driver.suggest(resources=lambda number: Resources(cpus=3) if number else None)
    assert [driver.starts[n].placement.cpus for n in (0, 1)] == [(0,), (1, 2, 3)]


def test_while_a_large_trial_waits_smaller_ones_fill_other_workers_and_not_its(
    driver: EngineDriver,
) -> None:
    driver.open(trials=9)
    driver.join("small", cores=1)
    driver.join("large", cores=3)
    driver.suggest(resources=lambda number: Resources(cpus=3) if number else None)
    assert driver.ask == Ask((1, 2, 3)), "asked for when it was answered, as the other joined"
    driver.suggest(resources=lambda number: Resources(cpus=3))
    assert driver.starts[1].placement.worker == "large"
    assert driver.engine.snapshot.counts[TrialState.WAITING] == 2
    driver.end(FIRST, returned(0.5))
    assert driver.ask == Ask((4,)), "the small worker needs another small trial"
    driver.suggest()
    assert driver.starts[4].placement.worker == "small"


# --- parameters found on the way ------------------------------------------------------------


def test_new_parameters_join_the_space_and_the_trial(driver: EngineDriver) -> None:
    driver.go(2)
    declared = [{"class_name": "Int", "config": {"name": "late"}}]
    grow, tell = driver.used(FIRST, {"x": 0, "late": 3}, declared)
    assert grow == GrowSpace(tuple(declared))
    assert isinstance(tell, Tell)
    assert tell.trial.params == {"x": 0, "late": 3}
    driver.leave()
    (start,) = driver.join()
    assert isinstance(start, Start)
    assert start.params == {"x": 0, "late": 3}


def test_an_answer_from_before_the_space_grew_does_not_end_the_search(
    driver: EngineDriver,
) -> None:
    driver.go(9, cores=2)
    driver.end(AttemptId(0, 0), returned(0.5))
    assert driver.ask == Ask((2,))
    late = {"class_name": "Boolean", "config": {"name": "y"}}
    driver.used(AttemptId(1, 0), {"x": 1, "y": True}, [late])
    driver.suggest([])
    assert [driver.ask] == [Ask((2,))], "asked once more, of the larger space"
    driver.suggest([])
    assert driver.ask is None


def test_a_space_that_grew_is_no_longer_exhausted(driver: EngineDriver) -> None:
    driver.open(trials=5)
    driver.join(cores=2)
    driver.suggest([{"x": 0}])
    commands = driver.used(FIRST, {"x": 0, "late": 3}, [{"class_name": "Int"}])
    assert commands[-1] == Ask((1,))


# --- what is shown --------------------------------------------------------------------------


def test_the_picture_says_why_nothing_runs(driver: EngineDriver) -> None:
    driver.open(trials=1, resources=Resources(cpus=2, gpus=1))
    assert driver.engine.snapshot.stall_reason == "waiting for a worker"
    driver.join("small", cores=8)
    assert "no worker can hold a trial of 2 cores and 1 GPU:" in driver.engine.snapshot.stall_reason
    driver.join("large", cores=2, gpus=1)
    assert driver.engine.snapshot.stall_reason == ""


def test_the_picture_shows_what_runs(driver: EngineDriver) -> None:
    driver.go(9, cores=2)
    driver.report(FIRST, 1, score=0.1)
    driver.report(FIRST, 2, score=0.2)
    snapshot = driver.engine.snapshot
    one, two = snapshot.running
    assert one.latest is not None
    assert (one.latest.step, one.attempt.node, two.latest) == (2, "node of w", None)
    assert (snapshot.workers, snapshot.cpus, snapshot.cpus_held) == (1, 2, 2)
    assert snapshot.counts == {TrialState.RUNNING: 2}


def test_a_worker_that_was_refused_is_named_while_there_is_no_other(driver: EngineDriver) -> None:
    driver.open(trials=1)
    driver.feed(WorkerRefused(driver.at, "w", "node7", "it has hptune 0.0.9, the master 0.1.0"))
    stall_reason = driver.engine.snapshot.stall_reason
    assert stall_reason == (
        "waiting for a worker; node7 was refused: it has hptune 0.0.9, the master 0.1.0"
    )
    driver.join("other")
    assert driver.engine.snapshot.stall_reason == ""


def test_an_attempt_that_waits_at_its_worker_says_for_what_until_it_starts(
    driver: EngineDriver,
) -> None:
    driver.go(1)
    driver.feed(AttemptWaits(driver.at, FIRST, "waits for core 0"))
    assert driver.engine.snapshot.running[0].attempt.reason == "waits for core 0"
    driver.started(FIRST)
    assert driver.engine.snapshot.running[0].attempt.reason == ""
    driver.end(FIRST, returned(0.5))
    assert driver.feed(AttemptWaits(driver.at, FIRST, "late")) == []


def test_a_worker_that_is_about_to_leave_gets_no_more_attempts(driver: EngineDriver) -> None:
    driver.go(3, cores=2)
    assert driver.about_to_leave("w") == []
    released = Ending(Cause.RELEASED, reason="told to release")
    driver.end(FIRST, released)
    assert driver.running.keys() == {AttemptId(1, 0)}
    driver.end(AttemptId(1, 0), released)
    assert driver.engine.snapshot.stall_reason == "waiting for a worker"
    driver.join("other", cores=2)
    assert driver.running[AttemptId(0, 1)].worker == "other", "it continues elsewhere"
    assert driver.engine.snapshot.counts[TrialState.RUNNING] == 2


def test_what_came_to_a_worker_that_was_about_to_leave_is_released(driver: EngineDriver) -> None:
    driver.go(2, cores=2)
    second = AttemptId(1, 0)
    driver.started(second)
    driver.about_to_leave("w")
    driver.leave("w")
    outcomes = [driver.attempt(each).outcome for each in (FIRST, second)]
    assert outcomes == [Outcome.RELEASED, Outcome.LOST]


# --- what cannot be -------------------------------------------------------------------------


def test_nothing_happens_before_the_opening() -> None:
    with pytest.raises(InvalidTransition, match="before the study was opened"):
        Engine().handle(WorkerJoined(0.0, "w", "n", Capacity((0,))))


def test_a_worker_joins_once(driver: EngineDriver) -> None:
    driver.open(trials=1)
    driver.join(cores=2)
    assert driver.feed(WorkerJoined(driver.at, "w", "n", Capacity((0,)))) == []
    assert (driver.engine.snapshot.workers, driver.engine.snapshot.cpus) == (1, 2)


def test_suggestions_come_in_order(driver: EngineDriver) -> None:
    driver.open(trials=3)
    with pytest.raises(InvalidTransition, match="from trial 2 on, expected 0"):
        driver.feed(Suggested(0.0, 2, (), exhausted=False))


def test_a_replay_stands_where_the_study_stood(driver: EngineDriver) -> None:
    driver.go(3, cores=2)
    driver.end(FIRST, returned(0.5))
    driver.leave()
    driver.open(trials=4)
    driver.join(cores=2)
    driver.report(driver.starts[1].attempt, 1, score=0.4)
    driver.check_replay()
