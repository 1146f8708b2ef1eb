"""Decisions after the end of an attempt, and the legal transitions of a trial."""

from __future__ import annotations

import itertools

import pytest

from engine_driver import FIRST, GOALS, EngineDriver, returned
from hptune.core.attempt import Attempt, Cause, Ending, Halt, Outcome, Report
from hptune.core.engine.records import (
    TRANSITIONS,
    AttemptRecord,
    TrialEvent,
    TrialRecord,
    TrialRecords,
)
from hptune.core.engine.retry_policy import (
    MAX_RELEASES_WITHOUT_PROGRESS,
    MAX_RETRIES,
    OUTCOMES,
    checked,
    decide,
)
from hptune.core.failure_policy import Action, FailureRule
from hptune.core.messages import FinishReason
from hptune.core.resources import Placement
from hptune.core.trial import Suggestion, Trial, TrialState
from hptune.errors import InvalidTransition

RETRY, FAIL, PRUNE = TrialEvent.RETRY, TrialEvent.FAIL, TrialEvent.PRUNE
LOST, ERRORED, RELEASED = Outcome.LOST, Outcome.ERRORED, Outcome.RELEASED
FULL = 99
FIRST_STEP = 1
"""More losses than any cause allows."""
TWICE = FailureRule(Cause.EXCEPTION, Action.RETRY, 2)
ONCE_KILLED = FailureRule(Cause.KILLED, Action.RETRY, 1)


def trial(**known: object) -> TrialRecord:
    record = TrialRecord(Trial(0, {}, "", TrialState.RUNNING))
    for name, value in known.items():
        setattr(record, name, value)
    return record


def attempt(
    halt: Halt | None = None, *, started: bool = True, reported: bool = False
) -> AttemptRecord:
    placed = Attempt(FIRST, Placement("w", (0,)), "n", 0.0, started_at=1.0 if started else None)
    return AttemptRecord(placed, Report(1, {"score": 0.5}) if reported else None, halt)


@pytest.mark.parametrize(
    ("cause", "losses", "halt", "rule", "outcome", "event"),
    [
        (Cause.RETURNED, 0, None, None, Outcome.FINISHED, TrialEvent.COMPLETE),
        (Cause.RETURNED, 0, Halt.PRUNE, None, Outcome.FINISHED, TrialEvent.COMPLETE),
        (Cause.PRUNED, 0, Halt.PRUNE, None, Outcome.PRUNED, PRUNE),
        (Cause.PAUSED, 0, Halt.PAUSE, None, RELEASED, TrialEvent.PAUSE),
        (Cause.STOPPED, FULL, Halt.STOP, None, RELEASED, RETRY),
        (Cause.RELEASED, FULL, Halt.RELEASE, None, RELEASED, RETRY),
        # A decision to stop the trial stands, unless the attempt failed.
        (Cause.STOPPED, 0, Halt.PRUNE, None, RELEASED, PRUNE),
        (Cause.KILLED, 0, Halt.PRUNE, None, LOST, PRUNE),
        (Cause.KILLED, 0, Halt.PAUSE, None, LOST, TrialEvent.PAUSE),
        (Cause.EXCEPTION, 0, Halt.PAUSE, None, ERRORED, FAIL),
        # The infrastructure's faults, up to a limit.
        (Cause.MASTER_LOST, FULL, None, None, LOST, RETRY),
        (Cause.KILLED, 1, None, None, LOST, RETRY),
        (Cause.KILLED, 2, None, None, ERRORED, FAIL),
        (Cause.HUNG, 0, None, None, LOST, RETRY),
        (Cause.HUNG, 1, None, None, ERRORED, FAIL),
        # The trial's own faults.
        (Cause.EXCEPTION, 0, None, None, ERRORED, FAIL),
        (Cause.TIMED_OUT, 0, None, None, ERRORED, FAIL),
        (Cause.GIVEN_UP, 0, None, TWICE, ERRORED, FAIL),
        (Cause.FATAL, 0, None, TWICE, ERRORED, FAIL),
        # The user's rules come first.
        (Cause.EXCEPTION, 1, None, TWICE, LOST, RETRY),
        (Cause.EXCEPTION, 2, None, TWICE, ERRORED, FAIL),
        (Cause.KILLED, 1, None, ONCE_KILLED, ERRORED, FAIL),
        (Cause.HUNG, 0, None, FailureRule(Cause.HUNG, Action.FAIL), ERRORED, FAIL),
        (Cause.HUNG, 0, None, FailureRule(Cause.HUNG, Action.STOP), ERRORED, FAIL),
        (Cause.HUNG, FULL, None, FailureRule(Cause.HUNG, Action.PRUNE), Outcome.PRUNED, PRUNE),
        (Cause.HUNG, 0, None, TWICE, LOST, RETRY),
        # All processes of the command were killed: the trial had no part in it.
        (Cause.KILLED, FULL, Halt.STOP, None, LOST, RETRY),
        (Cause.WORKER_LOST, FULL, Halt.STOP, None, LOST, RETRY),
        (Cause.KILLED, FULL, Halt.STOP, ONCE_KILLED, LOST, RETRY),
        (Cause.EXCEPTION, 0, Halt.STOP, None, ERRORED, FAIL),
    ],
)
def test_decisions(
    *,
    cause: Cause,
    losses: int,
    halt: Halt | None,
    rule: FailureRule | None,
    outcome: Outcome,
    event: TrialEvent,
) -> None:
    rules = () if rule is None else (rule,)
    decision = decide(trial(losses={cause: losses}), attempt(halt), Ending(cause), rules)
    assert (decision.outcome, decision.event) == (outcome, event)
    ends_with_study = halt is Halt.STOP and outcome is LOST
    assert decision.is_charged is not ends_with_study
    is_stopped = cause is Cause.FATAL or (rule is not None and rule.action is Action.STOP)
    assert (decision.finish is not None) is is_stopped


@pytest.mark.parametrize("cause", Cause)
def test_every_cause_has_an_outcome_and_only_losses_are_counted(cause: Cause) -> None:
    decision = decide(trial(), attempt(), Ending(cause), ())
    assert decision.outcome is OUTCOMES[cause]
    assert cause not in MAX_RETRIES or OUTCOMES[cause] is LOST


@pytest.mark.parametrize(
    ("before", "started", "first", "cause", "after"),
    [
        (0, True, None, Cause.RELEASED, 1),
        (2, True, None, Cause.RELEASED, 3),
        (2, False, None, Cause.RELEASED, 2),
        (2, True, FIRST_STEP, Cause.RELEASED, 3),
        (2, True, FIRST_STEP + 1, Cause.RELEASED, 0),
        (2, True, None, Cause.KILLED, 2),
        (3, True, None, Cause.RELEASED, 4),
        (3, True, FIRST_STEP, Cause.RELEASED, 4),
    ],
)
def test_releases_without_progress(
    *, before: int, started: bool, first: int | None, cause: Cause, after: int
) -> None:
    run = attempt(started=started, reported=first is not None)
    run.first_step = first
    record = trial(releases_without_progress=before, first_step=FIRST_STEP)
    decision = decide(record, run, Ending(cause), ())
    assert decision.releases_without_progress == after
    fails = after >= MAX_RELEASES_WITHOUT_PROGRESS
    assert decision.event is (FAIL if fails else RETRY)
    begins_again = first == FIRST_STEP and after >= 2
    assert ("walltime" in decision.ending.reason) is (fails or begins_again)


@pytest.mark.parametrize("cause", [each for each in Cause if each is not Cause.RELEASED])
def test_an_end_of_its_own_keeps_its_reason_after_releases(cause: Cause) -> None:
    run = attempt(reported=True)
    run.first_step = 1
    record = trial(releases_without_progress=MAX_RELEASES_WITHOUT_PROGRESS - 1, first_step=1)
    assert decide(record, run, Ending(cause, reason="its own"), ()).ending.reason == "its own"


@pytest.mark.parametrize(("halt", "event"), [(Halt.PRUNE, PRUNE), (Halt.PAUSE, TrialEvent.PAUSE)])
@pytest.mark.parametrize("reported", [False, True])
def test_a_trial_that_was_to_stop_does_not_fail_because_its_worker_leaves(
    *, halt: Halt, event: TrialEvent, reported: bool
) -> None:
    run = attempt(halt, reported=reported)
    run.first_step = 1 if reported else None
    record = trial(releases_without_progress=9, first_step=1)
    decision = decide(record, run, Ending(Cause.RELEASED, reason="stopped by ann"), ())
    assert (decision.outcome, decision.event) == (RELEASED, event)
    assert decision.ending.reason == "stopped by ann"


def test_what_stops_the_study() -> None:
    stop = FailureRule(Cause.EXCEPTION, Action.STOP)
    ending = Ending(Cause.EXCEPTION, reason="ValueError: 3", detail="here")
    finish = decide(trial(), attempt(), ending, (stop,)).finish
    assert finish is not None
    assert finish.finish_reason is FinishReason.TOO_MANY_FAILURES
    assert finish.reason == "ValueError: 3 (--on-failure exception=stop)"
    finish = decide(trial(), attempt(), Ending(Cause.NO_ROOM, reason="full"), ()).finish
    assert finish is not None
    assert (finish.finish_reason, finish.reason) == (FinishReason.NO_ROOM, "full")
    assert decide(trial(), attempt(), ending, ()).finish is None


def test_a_result_needs_finite_values() -> None:
    assert checked(returned(0.5), GOALS) == returned(0.5)
    assert checked(returned(float("nan")), GOALS).cause is Cause.NON_FINITE
    assert checked(Ending(Cause.RETURNED, {"loss": 1.0}), GOALS).cause is Cause.UNKNOWN_METRIC


@pytest.mark.parametrize(("state", "event"), [*itertools.product(TrialState, TrialEvent)])
def test_illegal_transitions_are_refused_with_the_trials_story(
    state: TrialState, event: TrialEvent
) -> None:
    records = TrialRecords()
    records.add(Suggestion({"x": 1}, "random"))
    record = records[0]
    record.trial = Trial(0, {}, "random", state)
    after = TRANSITIONS.get((state, event))
    if after is not None:
        records.move(record, event)
        assert record.trial.state is after
        return
    with pytest.raises(InvalidTransition, match=f"trial 0 is {state}: illegal {event}") as caught:
        records.move(record, event)
    assert caught.value.story == ("0.0 s: suggested by random",)
    assert record.trial.state is state


def test_a_trials_story(driver: EngineDriver) -> None:
    driver.go(1)
    driver.end(FIRST, Ending(Cause.KILLED, reason="signal 9"))
    driver.stop()
    driver.end(FIRST._replace(number=1), returned(0.5))
    lines = [line.split(" s: ", 1) for line in driver.engine.story(0)]
    assert [what for _, what in lines] == [
        "suggested by test",
        "attempt 0.0 is placed on w (node of w)",
        "start: WAITING -> RUNNING",
        "attempt 0.0 ended, LOST: signal 9",
        "retry: RUNNING -> WAITING",
        "attempt 0.1 is placed on w (node of w)",
        "start: WAITING -> RUNNING",
        "attempt 0.1 is told to stop (stop)",
        "attempt 0.1 ended, FINISHED: returned",
        "complete: RUNNING -> COMPLETE",
    ]
    times = [float(seconds) for seconds, _ in lines]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0.0, 3.0)
