"""What users ask of a running study."""

from __future__ import annotations

from engine_driver import FIRST, EngineDriver, returned, states
from hptune.core.attempt import AttemptId, Cause, Ending, Halt
from hptune.core.messages import Ask, Finish, FinishReason, Start, Stop, Tell
from hptune.core.resources import Resources
from hptune.core.trial import ADDED, TrialState
from hptune.core.user_requests import UserAction

STOPPED = Ending(Cause.PRUNED, reason="worse than other trials where they were compared")


def test_a_stopped_trial_is_pruned_with_its_last_value_and_says_who_stopped_it() -> None:
    driver = EngineDriver()
    driver.go(2)
    driver.started(FIRST)
    driver.report(FIRST, 1, score=0.4)
    assert driver.user(UserAction.STOP_TRIAL, trial=0) == [Stop(FIRST, Halt.PRUNE)]
    assert driver.user(UserAction.STOP_TRIAL, trial=0) == []  # asked twice
    commands = driver.end(FIRST, STOPPED)
    assert any(isinstance(each, Ask) for each in commands)
    trial = driver.trial(0)
    assert (trial.state, trial.value, trial.step) == (TrialState.PRUNED, 0.4, 1)
    assert driver.attempt(FIRST).reason == "stopped by ada"
    # Nothing to stop: not running, unknown, refused.
    assert driver.user(UserAction.STOP_TRIAL, trial=0) == []
    assert driver.user(UserAction.STOP_TRIAL, trial=9) == []
    driver.suggest()
    assert driver.user(UserAction.STOP_TRIAL, trial=1, refused="it does not run") == []


def test_a_stopped_trial_that_ends_by_itself_keeps_its_result() -> None:
    driver = EngineDriver()
    driver.go(1)
    driver.user(UserAction.STOP_TRIAL, trial=0)
    driver.end(FIRST, returned(0.9))
    assert (driver.trial(0).state, driver.trial(0).value) == (TrialState.COMPLETE, 0.9)
    assert "stopped by" not in driver.attempt(FIRST).reason


def test_a_stopped_trial_whose_worker_or_master_is_lost_does_not_run_again() -> None:
    for is_master in (False, True):
        driver = EngineDriver()
        driver.go(1)
        driver.user(UserAction.STOP_TRIAL, trial=0)
        _ = driver.open(1) if is_master else driver.leave()
        assert states(driver) == [TrialState.PRUNED]


def test_a_trial_that_waits_is_stopped_at_once_and_never_starts() -> None:
    driver = EngineDriver()
    driver.go(3, cores=2)
    driver.report(AttemptId(1, 0), 1, score=0.4)
    driver.leave()  # both wait, and one has begun
    assert driver.engine.snapshot.interrupted == 2
    assert isinstance(driver.user(UserAction.STOP_TRIAL, trial=1)[0], Tell)
    stopped = driver.trial(1)
    assert (stopped.state, stopped.value, stopped.step) == (TrialState.PRUNED, 0.4, 1)
    assert stopped.reason == "stopped by ada"
    driver.user(UserAction.ENQUEUE, added=[{"x": 70}])
    driver.user(UserAction.STOP_TRIAL, trial=2)
    assert (driver.trial(2).state, driver.trial(2).value) == (TrialState.PRUNED, None)
    assert driver.engine.snapshot.interrupted == 1
    started = [each.attempt.trial for each in driver.join(cores=2) if isinstance(each, Start)]
    assert started == [0]
    driver.end(AttemptId(0, 1), returned(0.1))
    assert driver.finish == Finish(FinishReason.DONE, "3 trials are over")
    assert driver.user(UserAction.STOP_TRIAL, trial=0) == []  # it is over


def test_workers_are_not_kept_for_a_large_trial_that_was_stopped() -> None:
    driver = EngineDriver()
    driver.open()
    driver.join(cores=2)

    def fill() -> None:
        while driver.ask is not None:
            driver.suggest(resources=lambda number: Resources(cpus=2) if number == 2 else None)

    fill()
    while len(driver.running) == 2:  # until the other core is kept
        driver.end(next(iter(driver.running)), returned(0.5))
        fill()
    driver.user(UserAction.STOP_TRIAL, trial=2)
    driver.end(next(iter(driver.running)), returned(0.5))
    assert driver.ask is not None


def test_added_trials_run_next_and_count_towards_the_total() -> None:
    driver = EngineDriver()
    driver.open(3)
    driver.join(cores=1)
    # The open question has the next numbers.
    assert driver.user(UserAction.ENQUEUE, added=[{"x": 70}, {"x": 71}]) == []
    driver.suggest()
    assert [t.params["x"] for t in driver.engine.trials] == [0, 70, 71]
    assert driver.trial(1).origin == ADDED
    assert driver.engine.snapshot.budget_trials == 3
    (start,) = (c for c in driver.end(FIRST, returned(0.1)) if isinstance(c, Start))
    assert start.attempt == AttemptId(1, 0)
    driver.end(AttemptId(1, 0), returned(0.2))
    # All three exist: the study runs this one in addition.
    driver.user(UserAction.ENQUEUE, added=[{"x": 72}])
    assert driver.engine.snapshot.budget_trials == 4
    driver.end(AttemptId(2, 0), returned(0.3))
    assert driver.finish is None
    driver.end(AttemptId(3, 0), returned(0.4))
    assert driver.finish == Finish(FinishReason.DONE, "4 trials are over")


def test_a_trial_added_right_before_a_stop_runs_in_the_next_run() -> None:
    driver = EngineDriver()
    driver.open(2)
    driver.join()
    driver.user(UserAction.ENQUEUE, added=[{"x": 70}])
    driver.stop()
    assert driver.finish is not None
    driver.open(2)
    assert [trial.params["x"] for trial in driver.engine.trials] == [70]


def test_a_paused_study_starts_nothing_until_it_goes_on() -> None:
    driver = EngineDriver()
    driver.go(3, cores=2)
    driver.user(UserAction.PAUSE)
    assert driver.engine.snapshot.stall_reason.startswith("paused by ada")
    commands = driver.end(FIRST, returned(0.1)) + driver.end(AttemptId(1, 0), returned(0.2))
    assert not any(isinstance(each, Ask | Start | Finish) for each in commands)
    driver.user(UserAction.ENQUEUE, added=[{"x": 70}])
    assert not driver.running
    (start,) = (c for c in driver.user(UserAction.RESUME) if isinstance(c, Start))
    assert start.params == {"x": 70}
    assert driver.engine.snapshot.stall_reason == ""
    driver.user(UserAction.PAUSE)
    driver.end(AttemptId(2, 0), returned(0.3))
    assert driver.finish is None  # as long as it is paused
    driver.user(UserAction.RESUME)
    assert driver.finish == Finish(FinishReason.DONE, "3 trials are over")


def test_only_running_trials_are_counted_by_size_while_none_may_start() -> None:
    large = Resources(cpus=2)
    driver = EngineDriver()
    driver.open(3)
    driver.join(cores=2)
    driver.suggest(resources=lambda _: large)
    assert [*driver.running] == [FIRST]
    assert driver.engine.snapshot.sizes == {large: 2}
    driver.user(UserAction.PAUSE)
    assert driver.engine.snapshot.sizes == {large: 1}
    driver.user(UserAction.RESUME)
    assert driver.engine.snapshot.sizes == {large: 2}
    driver.stop()
    assert driver.engine.snapshot.sizes == {large: 1}


def test_a_paused_study_can_be_stopped_and_the_next_run_is_not_paused() -> None:
    driver = EngineDriver()
    driver.go(2)
    driver.user(UserAction.PAUSE)
    driver.end(FIRST, returned(0.1))
    driver.stop()
    assert driver.finish == Finish(FinishReason.INTERRUPTED, "Ctrl-C")
    driver.open(2)
    assert any(isinstance(each, Ask) for each in driver.join())
