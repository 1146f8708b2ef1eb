"""Failed trials, and studies with many of them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from engine_driver import FIRST, SEED, EngineDriver, returned, states
from hptune.core.attempt import AttemptId, Cause, Ending, Halt, Outcome
from hptune.core.budget import Device
from hptune.core.engine.retry_policy import (
    MAX_RELEASES_WITHOUT_PROGRESS,
    MAX_RETRIES,
)
from hptune.core.failure_policy import CAUSES, Action, FailureRule
from hptune.core.messages import (
    Ask,
    Discard,
    Finish,
    FinishReason,
    KeepBest,
    Start,
    Stop,
    StudyClosed,
    Tell,
)
from hptune.core.pruner import PrunerSettings
from hptune.core.seeds import training_seed
from hptune.core.trial import TrialState


def broken(what: str = "ValueError: 3", line: int = 3) -> Ending:
    return Ending(
        Cause.EXCEPTION, reason=what, detail=f'Traceback\n  File "model.py", line {line}\n{what}'
    )


@pytest.mark.parametrize(
    "cause", [Cause.EXCEPTION, Cause.NON_FINITE, Cause.EXITED, Cause.TIMED_OUT]
)
def test_the_trials_own_fault_fails_it_at_once(driver: EngineDriver, cause: Cause) -> None:
    driver.go(2)
    tell, discard, ask = driver.end(FIRST, Ending(cause, reason="because", detail="here"))
    assert isinstance(tell, Tell)
    assert (tell.trial.state, tell.trial.value) == (TrialState.FAILED, None)
    assert (tell.trial.reason, tell.trial.detail) == ("because", "here")
    assert (discard, ask) == (Discard(0), Ask((1,)))
    assert driver.attempt(FIRST).outcome is Outcome.ERRORED


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_result_that_is_no_number_is_a_failure(driver: EngineDriver, value: float) -> None:
    driver.go(1)
    driver.end(FIRST, returned(value))
    assert states(driver) == [TrialState.FAILED]
    assert driver.trial(0).reason == f"score is {value}, and a result is a finite number"


def test_a_result_without_the_metric_ends_the_study(driver: EngineDriver) -> None:
    driver.go(4, cores=2)
    commands = driver.end(FIRST, Ending(Cause.RETURNED, {"loss": 1.0, "accuracy": 0.5}))
    assert Stop(AttemptId(1, 0), Halt.STOP) in commands
    (finish,) = driver.end(AttemptId(1, 0), Ending(Cause.STOPPED))
    assert finish == Finish(
        FinishReason.UNKNOWN_METRIC,
        "the study needs the metric 'score'; the trial reports: accuracy, loss",
    )


@pytest.mark.parametrize("cause", [*MAX_RETRIES])
def test_losses_are_retried_up_to_a_limit(driver: EngineDriver, cause: Cause) -> None:
    driver.go(1)
    for number in range(MAX_RETRIES[cause]):
        (start,) = driver.end(AttemptId(0, number), Ending(cause))
        assert isinstance(start, Start)
        assert start.attempt == AttemptId(0, number + 1)
        assert driver.attempt(AttemptId(0, number)).outcome is Outcome.LOST
    tell, *_ = driver.end(AttemptId(0, MAX_RETRIES[cause]), Ending(cause, reason="once more"))
    assert isinstance(tell, Tell)
    assert (tell.trial.state, tell.trial.reason) == (TrialState.FAILED, "once more")


@pytest.mark.parametrize("metric", ["score", "other"])
@pytest.mark.parametrize("cause", [Cause.KILLED, Cause.WORKER_LOST])
def test_losses_count_since_the_last_progress(
    driver: EngineDriver, cause: Cause, metric: str
) -> None:
    """A long trial may be preempted often, and still goes on; one that stands still fails.

    It advances by any report: the objective may be measured at the end alone.
    """
    driver.go(1)
    for number in range(10):
        driver.report(AttemptId(0, number), number + 1, **{metric: 0.5})
        driver.end(AttemptId(0, number), Ending(cause))
        assert driver.attempt(AttemptId(0, number)).outcome is Outcome.LOST
        assert driver.starts[0].resume_from == number + 1
    for number in range(10, 10 + MAX_RETRIES[cause]):
        driver.report(AttemptId(0, number), 10, **{metric: 0.5})
        driver.end(AttemptId(0, number), Ending(cause))
    assert driver.attempt(AttemptId(0, number)).outcome is Outcome.ERRORED
    assert driver.trial(0).state is TrialState.FAILED


def test_other_metrics_may_count_other_steps(driver: EngineDriver) -> None:
    driver.go(1)
    driver.report(FIRST, 600, batch_loss=0.6)
    driver.report(FIRST, 2, score=0.5)
    driver.report(FIRST, 700, batch_loss=0.6)
    driver.end(FIRST, Ending(Cause.KILLED))
    assert driver.starts[0].resume_from == 2


@pytest.mark.parametrize("cause", [Cause.KILLED, Cause.WORKER_LOST])
def test_what_dies_with_its_master_is_not_charged(driver: EngineDriver, cause: Cause) -> None:
    """All processes of a command may get SIGTERM."""
    driver.go(1)
    for number in range(MAX_RETRIES[cause] + 2):
        driver.stop()
        driver.end(AttemptId(0, number), Ending(cause))
        assert states(driver) == [TrialState.WAITING]
        driver.open(1)
        (start,) = driver.join(f"w{number}")
        assert isinstance(start, Start)
    driver.end(AttemptId(0, MAX_RETRIES[cause] + 2), Ending(cause))
    assert states(driver) == [TrialState.RUNNING]


def test_each_kind_of_loss_has_its_own_count(driver: EngineDriver) -> None:
    driver.go(1)
    causes = [Cause.KILLED] * 2 + [Cause.WORKER_LOST] * 4
    for number, cause in enumerate(causes):
        driver.end(AttemptId(0, number), Ending(cause))
    assert states(driver) == [TrialState.RUNNING]


@pytest.mark.parametrize("cause", CAUSES.values())
def test_what_the_user_wants_done_is_done(cause: Cause) -> None:
    for action, state, outcome in (
        (Action.FAIL, TrialState.FAILED, Outcome.ERRORED),
        (Action.PRUNE, TrialState.PRUNED, Outcome.PRUNED),
        (Action.STOP, TrialState.FAILED, Outcome.ERRORED),
    ):
        driver = EngineDriver()
        driver.go(2, failure_rules=(FailureRule(cause, action),))
        commands = driver.end(FIRST, Ending(cause, reason="because"))
        assert states(driver)[0] is state
        assert driver.attempt(FIRST).outcome is outcome
        finishes = [each for each in commands if isinstance(each, Finish)]
        assert bool(finishes) is (action is Action.STOP)

        driver = EngineDriver()
        driver.go(2, failure_rules=(FailureRule(cause, action),))
        for step, score in enumerate((0.2, 0.8, 0.4), 1):
            driver.report(FIRST, step, score=score)
        driver.end(FIRST, Ending(cause))
        kept = (0.8, 2) if action is Action.PRUNE else (None, None)
        assert (driver.trial(0).value, driver.trial(0).step) == kept

    driver = EngineDriver()
    driver.go(1, failure_rules=(FailureRule(cause, Action.RETRY, 2),))
    for number in range(2):
        (start,) = driver.end(AttemptId(0, number), Ending(cause))
        assert isinstance(start, Start)
    driver.end(AttemptId(0, 2), Ending(cause))
    assert states(driver) == [TrialState.FAILED]


@pytest.mark.parametrize("scores", [(0.1, 0.4, 0.2), (0.4, 0.1), (0.1, 0.2)])
def test_a_failure_that_counts_as_pruned_leaves_the_best_value(scores: Sequence[float]) -> None:
    driver = EngineDriver()
    driver.go(1, failure_rules=(FailureRule(Cause.NON_FINITE, Action.PRUNE),))
    driver.started(FIRST)
    for step, score in enumerate(scores, 1):
        driver.report(FIRST, step, score=score)
    driver.end(FIRST, Ending(Cause.NON_FINITE, reason="score is nan"))
    best = max(scores)
    (trial,) = driver.engine.trials
    assert (trial.state, trial.value, trial.step) == (
        TrialState.PRUNED,
        best,
        scores.index(best) + 1,
    )


def test_an_attempt_whose_worker_had_to_go_is_never_charged(driver: EngineDriver) -> None:
    driver.go(1)
    for number in range(2 * max(MAX_RETRIES.values())):
        driver.started(AttemptId(0, number))
        driver.report(AttemptId(0, number), number + 1, score=0.1)
        (start,) = driver.end(AttemptId(0, number), Ending(Cause.RELEASED))
        assert isinstance(start, Start)
        assert driver.attempt(AttemptId(0, number)).outcome is Outcome.RELEASED


def test_a_trial_that_never_comes_further_before_its_worker_goes_fails_in_the_end(
    driver: EngineDriver,
) -> None:
    driver.go(1)
    driver.end(FIRST, Ending(Cause.RELEASED))  # it had not begun: that does not count
    for number in range(1, MAX_RELEASES_WITHOUT_PROGRESS + 1):
        assert states(driver) == [TrialState.RUNNING]
        driver.started(AttemptId(0, number))
        driver.end(AttemptId(0, number), Ending(Cause.RELEASED))
    assert states(driver) == [TrialState.FAILED]
    assert "a longer walltime" in driver.trial(0).reason


def test_releases_before_a_report_and_at_the_first_step_count_together(
    driver: EngineDriver,
) -> None:
    driver.go(1)
    release(driver, 1, 2)
    release(driver)
    release(driver, 1)
    assert states(driver) == [TrialState.RUNNING]
    release(driver)
    assert states(driver) == [TrialState.FAILED]
    assert driver.trial(0).reason == (
        "the worker had to leave 4 times in a row, the last time before a report; use workers that "
        "live longer (a longer walltime), or report sooner"
    )
    driver.check_replay()


def release(driver: EngineDriver, *steps: int) -> None:
    """Let the trial report these steps in 50 s, until its worker has to leave."""
    attempt = driver.starts[0].attempt
    driver.started(attempt)
    for step in steps:
        driver.report(attempt, step, score=0.1)
    driver.at += 50.0 - len(steps) - 1.0
    driver.end(attempt, Ending(Cause.RELEASED, reason="walltime"))


@pytest.mark.parametrize("first", [0, 1, 5])
def test_a_trial_that_begins_again_in_each_job_says_what_helps_and_fails_in_the_end(
    driver: EngineDriver, first: int
) -> None:
    driver.go(1, pruner=PrunerSettings(epochs=first + 19))
    for number in range(MAX_RELEASES_WITHOUT_PROGRESS):
        assert states(driver) == [TrialState.RUNNING]
        release(driver, first, first + 9)
        reason = driver.attempt(AttemptId(0, number)).reason
        if not number:
            assert reason == "walltime"
        else:
            assert reason == (
                f"its worker had to leave after 50 s, at step {first + 9} of {first + 19}, which "
                f"take about 100 s; it has no checkpoint, and {number + 1} attempts in a "
                f"row began at step {first}. Save into trial.checkpoint_dir, and continue after "
                "trial.resumed_from (hptune help checkpoints), or use workers that live longer (a "
                "longer walltime)"
            )
    assert states(driver) == [TrialState.FAILED]
    assert driver.trial(0).reason == reason
    driver.check_replay()


def test_releases_of_attempts_that_began_again_count_in_a_row_and_in_one_run(
    driver: EngineDriver,
) -> None:
    driver.go(1)
    release(driver, 1, 2)
    release(driver, 1, 2)
    release(driver, 1)
    release(driver, 3)  # it continued from a checkpoint
    release(driver, 1)
    release(driver, 1)
    driver.end(driver.starts[0].attempt, Ending(Cause.KILLED))  # before a report
    release(driver, 1)
    assert states(driver) == [TrialState.RUNNING]
    driver.open(trials=1)  # perhaps with a longer walltime
    driver.join()
    for _ in range(3):
        release(driver, 1)
    assert states(driver) == [TrialState.RUNNING]
    driver.open(trials=1, was_handed_over=True)
    driver.join()
    release(driver, 1)
    assert states(driver) == [TrialState.FAILED]
    driver.check_replay()


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
        assert start.attempt == AttemptId(0, number + 1)
    driver.end(AttemptId(0, 20), returned(0.5))
    assert states(driver) == [TrialState.COMPLETE]


def test_the_attempts_of_a_master_that_was_requeued_are_released(driver: EngineDriver) -> None:
    driver.go(1)
    driver.open(trials=1, was_handed_over=True)
    left = driver.attempt(FIRST)
    assert (left.outcome, left.cause) == (Outcome.RELEASED, Cause.RELEASED)
    (start,) = driver.join()
    assert isinstance(start, Start)
    assert start.attempt == AttemptId(0, 1)


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
    assert driver.starts[0].attempt == AttemptId(0, 3)
    assert seeds == [training_seed(SEED, 0)] * 4


def test_first_trials_that_all_fail_alike_end_the_study(driver: EngineDriver) -> None:
    driver.go(20, cores=4, same_failure_limit=3)
    driver.end(AttemptId(0, 0), broken("ValueError: 1"))
    driver.end(AttemptId(1, 0), broken("ValueError: 2"))
    commands = driver.end(AttemptId(2, 0), broken("ValueError: 3"))
    assert Stop(AttemptId(3, 0), Halt.STOP) in commands
    last = max(driver.running)
    for name in [*driver.running]:
        commands = driver.end(name, Ending(Cause.STOPPED))
    finish = commands[-1]
    assert isinstance(finish, Finish)
    assert finish.finish_reason is FinishReason.SAME_FAILURE
    assert finish.reason == "the first 3 trials all failed the same way: ValueError: 3"
    assert "model.py" in finish.detail
    assert driver.trial(last.trial).state is TrialState.WAITING


def test_first_trials_whose_loss_is_nan_end_the_study_with_a_remedy(driver: EngineDriver) -> None:
    driver.go(20, same_failure_limit=1)
    (name,) = driver.running
    (*_, finish) = driver.end(name, Ending(Cause.NON_FINITE, reason="loss is nan at epoch 1"))
    assert isinstance(finish, Finish)
    said = "the first trial failed: loss is nan at epoch 1; lower the largest learning rate, "
    assert finish.reason.startswith(said)


def test_first_trials_of_a_resumed_run_are_called_so(driver: EngineDriver) -> None:
    driver.go(20)
    driver.open(20, same_failure_limit=1)
    driver.join()
    (name,) = driver.running
    (*_, finish) = driver.end(name, broken("ValueError: 1"))
    assert isinstance(finish, Finish)
    assert finish.reason == "the first trial of this run failed: ValueError: 1"


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
    assert not driver.engine.snapshot.stopping


@pytest.mark.parametrize("is_resumed", [False, True])
def test_a_pruned_trial_shows_that_the_objective_works(
    driver: EngineDriver, *, is_resumed: bool
) -> None:
    driver.go(20, same_failure_limit=1)
    driver.report(AttemptId(0, 0), 1, score=0.5)
    driver.end(AttemptId(0, 0), Ending(Cause.PRUNED))
    driver.suggest()
    if is_resumed:
        driver.open(20, same_failure_limit=1)
        driver.join()
    (name,) = driver.running
    driver.end(name, broken())
    assert not driver.engine.snapshot.stopping


@pytest.mark.parametrize(
    ("trials", "first", "endings", "then"),
    [
        (9, 2, [returned(0.5)], []),  # the other of the two still runs
        (9, 2, [returned(0.5), broken()], [2, 3, 4, 5]),
        (9, 2, [broken(), broken("KeyError: 3")], [2, 3, 4, 5]),
        (9, 2, [broken(), Ending(Cause.WORKER_LOST)], []),
        (9, 4, [returned(0.5)] * 4, [4, 5, 6, 7]),
        (3, 5, [returned(0.5)] * 3, []),
    ],
)
def test_first_trials_are_over_before_the_others_begin(
    driver: EngineDriver, trials: int, first: int, endings: list[Ending], then: list[int]
) -> None:
    driver.go(trials, cores=4, first=first)
    assert [name.trial for name in driver.running] == list(range(min(first, trials, 4)))
    for number, ending in enumerate(endings):
        driver.end(AttemptId(number, 0), ending)
    if driver.ask is not None:
        driver.suggest()
    assert [each.trial for each in driver.running if each.trial >= min(first, trials)] == then
    assert (driver.finish is not None) == (trials == len(endings))


def test_a_resumed_study_tries_first_trials_until_one_was_complete(driver: EngineDriver) -> None:
    driver.go(9, cores=4, first=2, same_failure_limit=2)
    for number in range(2):
        driver.end(AttemptId(number, 0), broken())
    assert driver.finish is not None
    driver.open(9, first=2, retried=(1,))
    driver.join(cores=4)
    driver.suggest()
    assert [*driver.running] == [AttemptId(1, 1), AttemptId(2, 0)]
    driver.end(AttemptId(1, 1), returned(0.5))
    driver.open(9, first=2)
    driver.join(cores=4)
    driver.suggest()
    assert len(driver.running) == 4


def test_a_limit_of_none_allows_any_number_of_equal_failures(driver: EngineDriver) -> None:
    driver.go(9, cores=9, same_failure_limit=0)
    for number in range(9):
        driver.end(AttemptId(number, 0), broken())
    assert driver.finish == Finish(FinishReason.DONE, "9 trials are over")


def test_too_many_failures_end_the_study(driver: EngineDriver) -> None:
    driver.go(9, max_failures=1)
    driver.end(FIRST, broken("ValueError: 1"))
    assert not driver.engine.snapshot.stopping
    driver.suggest()
    *_, finish = driver.end(AttemptId(1, 0), broken("KeyError: 2"))
    assert isinstance(finish, Finish)
    assert finish.finish_reason is FinishReason.TOO_MANY_FAILURES
    assert finish.reason == "2 trials failed, allowed are 1; the last one: KeyError: 2"


def test_failures_are_counted_from_zero_after_a_resume(driver: EngineDriver) -> None:
    driver.go(9, max_failures=0)
    driver.end(FIRST, broken())
    assert driver.finish is not None
    driver.open(trials=9, max_failures=0)
    driver.join()
    driver.suggest()
    driver.end(AttemptId(1, 0), returned(0.5))
    assert driver.finish is None


def test_what_was_done_without_a_master_is_taken_in_and_starts_nothing(
    driver: EngineDriver,
) -> None:
    driver.go(4, cores=2)
    driver.report(FIRST, 1, score=0.1)
    active, held = driver.engine.active_seconds, driver.engine.device_hours(Device.CORE)
    latest = driver.at - 1.0  # of the event before
    driver.at += 3_600.0  # there was no master
    assert driver.feed(StudyClosed(driver.at)) == []
    tell, keep = driver.end(FIRST, returned(0.5))
    assert (type(tell), type(keep)) == (Tell, KeepBest)
    driver.at += 3_600.0  # the clock of a worker is ahead, or a program tells what it has done
    driver.report(AttemptId(1, 0), 1, score=0.2)
    assert states(driver) == [TrialState.COMPLETE, TrialState.RUNNING]
    assert driver.engine.active_seconds == active
    assert driver.engine.device_hours(Device.CORE) == held
    driver.open(4)
    lost = driver.attempt(AttemptId(1, 0))
    assert (lost.outcome, lost.ended_at) == (Outcome.LOST, latest)
    assert driver.attempt(FIRST).outcome is Outcome.FINISHED
    driver.join(cores=2)
    assert driver.starts[1].attempt == AttemptId(1, 1)
    assert driver.starts[1].resume_from == 1
    driver.check_replay()


def test_failed_trials_that_the_user_retries_begin_again(driver: EngineDriver) -> None:
    driver.go(2)
    driver.report(FIRST, 3, score=0.9)
    driver.end(FIRST, broken())
    driver.suggest()
    driver.end(AttemptId(1, 0), returned(0.5))
    assert driver.engine.able_to_retry == (0,)
    told = [c.trial for c in driver.open(2, retried=(0,)) if isinstance(c, Tell)]
    assert [(t.number, t.state, t.reason, t.detail) for t in told] == [
        (0, TrialState.WAITING, "", "")
    ]
    [start] = [c for c in driver.join() if isinstance(c, Start)]
    assert (start.attempt, start.resume_from) == (AttemptId(0, 1), None)
    finish = driver.end(start.attempt, returned(0.7))[-1]
    assert isinstance(finish, Finish)
    assert finish.finish_reason is FinishReason.DONE
    assert states(driver) == [TrialState.COMPLETE] * 2
    assert [trial.number for trial in driver.engine.front] == [0]
    driver.check_replay()


def test_a_retried_trial_has_all_its_retries_again(driver: EngineDriver) -> None:
    driver.go(1)
    for number in range(MAX_RETRIES[Cause.KILLED] + 1):
        driver.end(AttemptId(0, number), Ending(Cause.KILLED))
    assert states(driver) == [TrialState.FAILED]
    driver.open(1, retried=(0,))
    driver.join()
    driver.end(AttemptId(0, number + 1), Ending(Cause.KILLED))
    assert states(driver) == [TrialState.RUNNING]


def test_a_failed_repeat_of_a_confirmation_is_not_retried(driver: EngineDriver) -> None:
    driver.go(1, confirm=1, confirm_repeats=2)
    driver.end(FIRST, returned(0.5))
    driver.end(AttemptId(1, 0), broken())
    driver.end(AttemptId(2, 0), returned(0.5))
    assert states(driver) == [TrialState.COMPLETE, TrialState.FAILED, TrialState.COMPLETE]
    assert driver.engine.able_to_retry == ()
