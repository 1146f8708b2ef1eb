"""What the engine answers to what happens, told in short traces."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from engine_driver import SEED, EngineDriver, returned

from tuner.core.aims import Aims
from tuner.core.engine import Engine
from tuner.core.failures import MAX_LOSSES
from tuner.core.messages import (
    Ask,
    Discard,
    Finish,
    GrowSpace,
    KeepBest,
    Start,
    Stop,
    Suggested,
    Tell,
    Verdict,
    WorkerJoined,
)
from tuner.core.ranking import Ranking
from tuner.core.resources import Capacity, Placement, Resources
from tuner.core.seeds import training_seed
from tuner.core.trial import (
    AttemptId,
    Cause,
    Direction,
    Ending,
    Goal,
    Halt,
    Outcome,
    Score,
    TrialState,
    Usage,
)
from tuner.errors import InvalidTransition

FIRST = AttemptId(0, 0)


@pytest.fixture
def driver() -> EngineDriver:
    return EngineDriver()


def broken(what: str = "ValueError: 3", line: int = 3) -> Ending:
    return Ending(
        Cause.EXCEPTION, reason=what, detail=f'Traceback\n  File "model.py", line {line}\n{what}'
    )


def states(driver: EngineDriver) -> list[TrialState]:
    return [trial.state for trial in driver.engine.trials]


# --- the way of a trial ---------------------------------------------------------------------


def test_the_trace_that_the_module_tells(driver: EngineDriver) -> None:
    assert driver.open(trials=2) == []
    assert driver.join("w", cores=1) == [Ask((0,))]
    told, start = driver.suggest([{"x": 1}])
    assert isinstance(told, Tell)
    assert told.trial.state is TrialState.WAITING
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
    told, kept, ask = driver.end(FIRST, returned(0.5))
    assert isinstance(told, Tell)
    assert (told.trial.state, told.trial.value) == (TrialState.COMPLETE, 0.5)
    assert kept == KeepBest((told.trial,))
    assert ask == Ask((1,))


def test_a_lost_worker_leaves_its_trial_waiting_for_a_place(driver: EngineDriver) -> None:
    driver.go(1)
    assert driver.leave("w") == []
    assert states(driver) == [TrialState.WAITING]
    (start,) = driver.join("v")
    assert isinstance(start, Start)
    assert start.attempt == (0, 1)
    assert start.placement.worker == "v"
    assert driver.attempt(FIRST).outcome is Outcome.LOST
    assert driver.attempt(FIRST).reason == "gone"


def test_a_study_is_done_when_its_budget_is_used_up(driver: EngineDriver) -> None:
    driver.go(2, cores=2)
    driver.end(AttemptId(1, 0), returned(0.5))
    *_, finish = driver.end(FIRST, returned(0.7))
    assert finish == Finish(Verdict.DONE, "2 trials are over")


def test_a_small_space_ends_the_study_early(driver: EngineDriver) -> None:
    driver.open(trials=10)
    driver.join(cores=4)
    assert driver.ask == Ask((0, 1, 2, 3))
    driver.suggest([{"x": 0}, {"x": 1}])
    driver.end(FIRST, returned(0.5))
    *_, finish = driver.end(AttemptId(1, 0), returned(0.5))
    assert finish == Finish(
        Verdict.EXHAUSTED, "all 2 configurations of the search space were tried"
    )


def test_without_a_budget_the_whole_space_is_tried(driver: EngineDriver) -> None:
    driver.go(None)
    driver.end(FIRST, returned(0.5))
    (finish,) = driver.suggest([])
    assert isinstance(finish, Finish)
    assert finish.verdict is Verdict.EXHAUSTED


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


# --- the best -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("direction", "scores", "best"),
    [
        (Direction.MAX, [0.1, 0.3, 0.2, 0.3], [0, 1]),
        (Direction.MIN, [0.1, 0.3, 0.2, 0.05], [0, 3]),
    ],
)
def test_only_the_best_model_is_kept(
    driver: EngineDriver, direction: Direction, scores: list[float], best: list[int]
) -> None:
    driver.open(trials=4, aims=Aims((Goal("score", direction),)))
    driver.join(cores=4)
    driver.suggest()
    kept: list[int] = []
    discarded = []
    for number, score in enumerate(scores):
        for command in driver.end(AttemptId(number, 0), returned(score)):
            if isinstance(command, KeepBest):
                kept.extend(trial.number for trial in command.trials)
            elif isinstance(command, Discard):
                discarded.append(command.trial)
    assert kept == best
    assert sorted(discarded) == sorted({0, 1, 2, 3} - {best[-1]})
    assert driver.engine.best == driver.trial(best[-1])


def test_the_value_to_beat_is_passed_on(driver: EngineDriver) -> None:
    driver.go(3)
    driver.end(FIRST, returned(0.5))
    *_, start = driver.suggest()
    assert isinstance(start, Start)
    assert start.incumbents == (Score((0.5,)),)
    driver.end(start.attempt, returned(0.4))
    *_, start = driver.suggest()
    assert isinstance(start, Start)
    assert start.incumbents == (Score((0.5,)),)


def test_a_new_master_is_told_the_best_again(driver: EngineDriver) -> None:
    driver.go(1)
    driver.end(FIRST, returned(0.5))
    commands = driver.open(trials=2)
    assert commands == [KeepBest((driver.trial(0),))]


# --- failures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "cause", [Cause.EXCEPTION, Cause.NON_FINITE, Cause.EXITED, Cause.TIMED_OUT]
)
def test_the_trials_own_fault_fails_it_at_once(driver: EngineDriver, cause: Cause) -> None:
    driver.go(2)
    told, discard, ask = driver.end(FIRST, Ending(cause, reason="because", detail="here"))
    assert isinstance(told, Tell)
    assert (told.trial.state, told.trial.value) == (TrialState.FAILED, None)
    assert (told.trial.reason, told.trial.detail) == ("because", "here")
    assert (discard, ask) == (Discard(0), Ask((1,)))
    assert driver.attempt(FIRST).outcome is Outcome.ERRORED


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_result_that_is_no_number_is_a_failure(driver: EngineDriver, value: float) -> None:
    driver.go(1)
    driver.end(FIRST, returned(value))
    assert states(driver) == [TrialState.FAILED]
    assert driver.trial(0).reason == f"score is {value}"


def test_a_result_without_the_metric_ends_the_study(driver: EngineDriver) -> None:
    driver.go(4, cores=2)
    commands = driver.end(FIRST, Ending(Cause.RETURNED, {"loss": 1.0, "accuracy": 0.5}))
    assert Stop(AttemptId(1, 0), Halt.LET_GO) in commands
    (finish,) = driver.end(AttemptId(1, 0), Ending(Cause.STOPPED))
    assert finish == Finish(
        Verdict.UNKNOWN_METRIC, "the result has no metric 'score'; it has: accuracy, loss"
    )


@pytest.mark.parametrize("cause", [*MAX_LOSSES])
def test_losses_are_retried_up_to_a_limit(driver: EngineDriver, cause: Cause) -> None:
    driver.go(1)
    for number in range(MAX_LOSSES[cause] - 1):
        (start,) = driver.end(AttemptId(0, number), Ending(cause))
        assert isinstance(start, Start)
        assert start.attempt == (0, number + 1)
        assert driver.attempt(AttemptId(0, number)).outcome is Outcome.LOST
    told, *_ = driver.end(AttemptId(0, MAX_LOSSES[cause] - 1), Ending(cause, reason="once more"))
    assert isinstance(told, Tell)
    assert (told.trial.state, told.trial.reason) == (TrialState.FAILED, "once more")


def test_each_kind_of_loss_has_its_own_count(driver: EngineDriver) -> None:
    driver.go(1)
    causes = [Cause.KILLED] * 2 + [Cause.WORKER_LOST] * 4
    for number, cause in enumerate(causes):
        driver.end(AttemptId(0, number), Ending(cause))
    assert states(driver) == [TrialState.RUNNING]


def test_an_attempt_whose_worker_had_to_go_is_never_charged(driver: EngineDriver) -> None:
    driver.go(1)
    for number in range(2 * max(MAX_LOSSES.values())):
        (start,) = driver.end(AttemptId(0, number), Ending(Cause.RELEASED))
        assert isinstance(start, Start)
        assert driver.attempt(AttemptId(0, number)).outcome is Outcome.RELEASED


def test_what_an_attempt_used_is_known_as_last_measured(driver: EngineDriver) -> None:
    driver.go(1)
    first = Usage(peak_memory_bytes=100, cpu_seconds=1.0, seconds=2.0)
    last = Usage(peak_memory_bytes=150, cpu_seconds=3.0, seconds=4.0, seconds_per_step=0.5)
    for usage in (first, last):
        assert driver.measure(FIRST, usage) == []
    driver.end(FIRST, returned(0.5))
    assert driver.measure(FIRST, first) == []  # it comes too late
    assert driver.attempt(FIRST).usage == last


def test_the_sampler_hears_nothing_of_a_loss(driver: EngineDriver) -> None:
    driver.go(2)
    commands = driver.end(FIRST, Ending(Cause.KILLED))
    assert not any(isinstance(command, Tell) for command in commands)


def test_a_lost_master_is_never_charged(driver: EngineDriver) -> None:
    driver.go(1)
    for number in range(20):
        driver.open(trials=1)
        assert driver.attempt(AttemptId(0, number)).outcome is Outcome.LOST
        (start,) = driver.join()
        assert isinstance(start, Start)
        assert start.attempt == (0, number + 1)
    driver.end(AttemptId(0, 20), returned(0.5))
    assert states(driver) == [TrialState.COMPLETE]


def test_a_released_attempt_is_never_charged(driver: EngineDriver) -> None:
    driver.go(1)
    for number in range(20):
        driver.stop()
        driver.end(AttemptId(0, number), Ending(Cause.STOPPED))
        assert driver.attempt(AttemptId(0, number)).outcome is Outcome.RELEASED
        driver.open(trials=1)
        driver.join()
    assert states(driver) == [TrialState.RUNNING]


def test_an_attempt_that_starts_over_has_the_seed_that_it_had(driver: EngineDriver) -> None:
    driver.go(1)
    seeds = [driver.starts[0].seed]
    driver.end(FIRST, Ending(Cause.KILLED))
    seeds.append(driver.starts[0].seed)
    driver.leave()
    driver.join()
    seeds.append(driver.starts[0].seed)
    driver.open(trials=1)
    driver.join()
    seeds.append(driver.starts[0].seed)
    assert driver.starts[0].attempt == (0, 3)
    assert seeds == [training_seed(SEED, 0)] * 4


def test_first_trials_that_all_fail_alike_end_the_study(driver: EngineDriver) -> None:
    driver.go(20, cores=4, same_failure_limit=3)
    driver.end(AttemptId(0, 0), broken("ValueError: 1"))
    driver.end(AttemptId(1, 0), broken("ValueError: 2"))
    commands = driver.end(AttemptId(2, 0), broken("ValueError: 3"))
    assert Stop(AttemptId(3, 0), Halt.LET_GO) in commands
    last = max(driver.running)
    for name in [*driver.running]:
        commands = driver.end(name, Ending(Cause.STOPPED))
    finish = commands[-1]
    assert isinstance(finish, Finish)
    assert finish.verdict is Verdict.SAME_FAILURE
    assert finish.reason == "the first 3 trials all failed the same way: ValueError: 3"
    assert "model.py" in finish.detail
    assert driver.trial(last.trial).state is TrialState.WAITING


@pytest.mark.parametrize(
    "endings",
    [
        [broken(), broken(), broken(line=9)],
        [broken(), broken(), broken("KeyError: 3")],
        [broken(), returned(0.5), broken(), broken()],
        [broken(), broken(), returned(0.5), broken(), broken(), broken()],
    ],
)
def test_other_failures_and_any_success_let_the_study_go_on(
    driver: EngineDriver, endings: list[Ending]
) -> None:
    driver.go(20, cores=9, same_failure_limit=3)
    for number, ending in enumerate(endings):
        driver.end(AttemptId(number, 0), ending)
    assert not driver.engine.picture.stopping


def test_a_limit_of_none_allows_any_number_of_equal_failures(driver: EngineDriver) -> None:
    driver.go(9, cores=9, same_failure_limit=0)
    for number in range(9):
        driver.end(AttemptId(number, 0), broken())
    assert driver.finish == Finish(Verdict.DONE, "9 trials are over")


def test_too_many_failures_end_the_study(driver: EngineDriver) -> None:
    driver.go(9, max_failures=1)
    driver.end(FIRST, broken("ValueError: 1"))
    assert not driver.engine.picture.stopping
    driver.suggest()
    *_, finish = driver.end(AttemptId(1, 0), broken("KeyError: 2"))
    assert isinstance(finish, Finish)
    assert finish.verdict is Verdict.TOO_MANY_FAILURES
    assert finish.reason == "2 trials failed, allowed are 1; the last one: KeyError: 2"


def test_failures_are_counted_anew_after_a_resume(driver: EngineDriver) -> None:
    driver.go(9, max_failures=0)
    driver.end(FIRST, broken())
    assert driver.finish is not None
    driver.open(trials=9, max_failures=0)
    driver.join()
    driver.suggest()
    driver.end(AttemptId(1, 0), returned(0.5))
    assert driver.finish is None


# --- letting go and going on ----------------------------------------------------------------


def test_letting_go_stops_what_runs_and_starts_nothing(driver: EngineDriver) -> None:
    driver.go(9, cores=2)
    assert driver.stop(Verdict.TIME_UP, "the time is up") == [
        Stop(AttemptId(0, 0), Halt.LET_GO),
        Stop(AttemptId(1, 0), Halt.LET_GO),
    ]
    assert driver.engine.picture.stopping == "the time is up"
    assert driver.stop() == []
    assert driver.join("late") == []
    driver.end(AttemptId(0, 0), Ending(Cause.STOPPED))
    told, kept, finish = driver.end(AttemptId(1, 0), returned(0.5))
    assert isinstance(told, Tell)
    assert told.trial.state is TrialState.COMPLETE
    assert isinstance(kept, KeepBest)
    assert finish == Finish(Verdict.TIME_UP, "the time is up")
    assert states(driver) == [TrialState.WAITING, TrialState.COMPLETE]


def test_without_room_for_checkpoints_the_study_lets_go_and_charges_nobody(
    driver: EngineDriver,
) -> None:
    driver.go(9, cores=2)
    ending = Ending(Cause.NO_ROOM, reason="no room for the checkpoint of epoch 3")
    assert driver.end(AttemptId(0, 0), ending) == [Stop(AttemptId(1, 0), Halt.LET_GO)]
    assert driver.end(AttemptId(1, 0), Ending(Cause.STOPPED)) == [
        Finish(Verdict.NO_ROOM, "no room for the checkpoint of epoch 3")
    ]
    assert states(driver) == [TrialState.WAITING, TrialState.WAITING]
    for number in range(1, 9):
        driver.open(trials=9)
        driver.join()
        driver.end(AttemptId(0, number), ending)
        assert states(driver) == [TrialState.WAITING, TrialState.WAITING]


def test_letting_go_of_nothing_is_over_at_once(driver: EngineDriver) -> None:
    driver.open(trials=3)
    assert driver.stop() == [Finish(Verdict.INTERRUPTED, "Ctrl-C")]


def test_a_lost_worker_does_not_hold_up_the_letting_go(driver: EngineDriver) -> None:
    driver.go(9)
    driver.stop()
    assert driver.leave() == [Finish(Verdict.INTERRUPTED, "Ctrl-C")]


def test_an_answer_that_comes_after_the_end_waits_for_the_next_master(
    driver: EngineDriver,
) -> None:
    driver.open(trials=3)
    driver.join()
    driver.stop()
    (told,) = driver.suggest()
    assert isinstance(told, Tell)
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
    assert finish == Finish(Verdict.DONE, "3 trials are over")


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


# --- parameters found on the way ------------------------------------------------------------


def test_new_parameters_join_the_space_and_the_trial(driver: EngineDriver) -> None:
    driver.go(2)
    declared = [{"class_name": "Int", "config": {"name": "late"}}]
    grow, told = driver.used(FIRST, {"x": 0, "late": 3}, declared)
    assert grow == GrowSpace(tuple(declared))
    assert isinstance(told, Tell)
    assert told.trial.params == {"x": 0, "late": 3}
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
    assert driver.engine.picture.notice == "waiting for the first worker"
    driver.join("small", cores=8)
    assert "no worker can hold a trial of 2 cores and 1 GPUs" in driver.engine.picture.notice
    driver.join("large", cores=2, gpus=1)
    assert driver.engine.picture.notice == ""


def test_the_picture_shows_what_runs(driver: EngineDriver) -> None:
    driver.go(9, cores=2)
    driver.report(FIRST, 1, score=0.1)
    driver.report(FIRST, 2, score=0.2)
    picture = driver.engine.picture
    one, two = picture.running
    assert one.latest is not None
    assert (one.latest.step, one.attempt.node, two.latest) == (2, "node of w", None)
    assert (picture.workers, picture.cpus, picture.cpus_held) == (1, 2, 2)
    assert picture.counts == {TrialState.RUNNING: 2}


# --- what cannot be -------------------------------------------------------------------------


def test_nothing_happens_before_the_opening() -> None:
    with pytest.raises(InvalidTransition, match="before the study was opened"):
        Engine().handle(WorkerJoined(0.0, "w", "n", Capacity((0,))))


def test_a_worker_joins_once(driver: EngineDriver) -> None:
    driver.open(trials=1)
    driver.join()
    with pytest.raises(InvalidTransition, match="joined twice"):
        driver.join()


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


# --- more epochs ----------------------------------------------------------------------------


def complete_four(driver: EngineDriver, *, keep: int) -> list[Discard]:
    """Four trials with the values 0.1, 0.4, 0.3 and 0.2; the greatest is the best."""
    driver.open(4, keep_checkpoints=keep)
    driver.join()
    discarded = []
    for number, value in enumerate((0.1, 0.4, 0.3, 0.2)):
        driver.suggest()
        commands = driver.end(AttemptId(number, 0), returned(value))
        discarded += [each for each in commands if isinstance(each, Discard)]
    return discarded


def test_the_best_ones_keep_their_last_checkpoint(driver: EngineDriver) -> None:
    assert complete_four(driver, keep=2) == [
        Discard(0, keep_checkpoint=True),
        Discard(0),
        Discard(2, keep_checkpoint=True),
        Discard(3),
    ]
    assert driver.engine.able_to_go_on == (1, 2)
    assert driver.starts[0].keep_last


def test_the_best_ones_train_on(driver: EngineDriver) -> None:
    complete_four(driver, keep=2)
    driver.open(4, keep_checkpoints=2, go_on=(1, 2))
    assert driver.engine.able_to_go_on == ()
    assert [(best.number, best.value) for best in driver.engine.front] == [(1, 0.4)]
    (first,) = driver.join()
    assert isinstance(first, Start)
    assert first.attempt == AttemptId(1, 1)
    driver.end(AttemptId(1, 1), returned(0.4))
    assert states(driver)[:3] == [TrialState.COMPLETE, TrialState.COMPLETE, TrialState.RUNNING]
    commands = driver.end(AttemptId(2, 1), returned(0.6))
    assert [each for each in commands if isinstance(each, KeepBest | Discard)] == [
        KeepBest((driver.trial(2),)),
        Discard(1, keep_checkpoint=True),
    ]
    assert [best.number for best in driver.engine.front] == [2]
    assert isinstance(commands[-1], Finish)


def seen_by_a_reader(driver: EngineDriver) -> list[tuple[int, float | None]]:
    ranking = Ranking.of(driver.engine.picture.aims, driver.engine.trials, driver.attempts)
    return [(best.number, best.value) for best in ranking.best]


def test_what_trains_on_is_no_less_the_best_for_that(driver: EngineDriver) -> None:
    complete_four(driver, keep=2)
    driver.open(4, keep_checkpoints=2, go_on=(1, 2))
    assert seen_by_a_reader(driver) == [(1, 0.4)]
    driver.join()
    assert seen_by_a_reader(driver) == [(1, 0.4)]
    driver.leave()
    assert seen_by_a_reader(driver) == [(1, 0.4)]


def test_of_equals_the_first_stays_the_best_though_it_trained_on(driver: EngineDriver) -> None:
    driver.open(2, keep_checkpoints=2)
    driver.join()
    for number in range(2):
        driver.suggest()
        driver.end(AttemptId(number, 0), returned(0.4))
    driver.open(2, keep_checkpoints=2, go_on=(0, 1))
    driver.join(cores=2)
    driver.end(AttemptId(1, 1), returned(0.3))
    driver.end(AttemptId(0, 1), returned(0.3))
    assert [best.number for best in driver.engine.front] == [0]
    assert seen_by_a_reader(driver) == [(0, 0.4)]


@pytest.mark.parametrize(
    "ending", [Ending(Cause.EXCEPTION, reason="broken"), Ending(Cause.NON_FINITE), returned(0.1)]
)
def test_a_trial_is_no_worse_for_training_on(driver: EngineDriver, ending: Ending) -> None:
    complete_four(driver, keep=1)
    before = driver.trial(1)
    driver.open(4, keep_checkpoints=1, go_on=(1,), same_failure_limit=1)
    driver.join()
    commands = driver.end(AttemptId(1, 1), ending)
    assert not [each for each in commands if isinstance(each, Discard)]
    assert driver.trial(1) == replace(before, attempts=2)
    assert [best.number for best in driver.engine.front] == [1]
    assert driver.finish == Finish(Verdict.DONE, "4 trials are over")
