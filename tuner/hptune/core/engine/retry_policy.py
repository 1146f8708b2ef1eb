"""The consequence of the end of an attempt for its trial: retry, fail, prune, pause or complete."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..attempt import FROM_OUTSIDE, Cause, Ending, Halt, Outcome
from ..failure_policy import Action, FailureRule
from ..goals import Goals, unknown_metric
from ..messages import Finish, FinishReason
from .records import AttemptRecord, TrialRecord
from .transitions import TrialEvent

OUTCOMES: Mapping[Cause, Outcome] = {
    Cause.RETURNED: Outcome.FINISHED,
    Cause.PRUNED: Outcome.PRUNED,
    Cause.STOPPED: Outcome.RELEASED,
    Cause.PAUSED: Outcome.RELEASED,
    Cause.RELEASED: Outcome.RELEASED,
    Cause.NO_ROOM: Outcome.RELEASED,
    Cause.MASTER_LOST: Outcome.LOST,
    Cause.WORKER_LOST: Outcome.LOST,
    Cause.RANK_LOST: Outcome.LOST,
    Cause.KILLED: Outcome.LOST,
    Cause.OUT_OF_MEMORY: Outcome.LOST,
    Cause.DEVICE_OUT_OF_MEMORY: Outcome.LOST,
    Cause.HUNG: Outcome.LOST,
    Cause.EXCEPTION: Outcome.ERRORED,
    Cause.GIVEN_UP: Outcome.ERRORED,
    Cause.FATAL: Outcome.ERRORED,
    Cause.NON_FINITE: Outcome.ERRORED,
    Cause.UNKNOWN_METRIC: Outcome.ERRORED,
    Cause.EXITED: Outcome.ERRORED,
    Cause.TIMED_OUT: Outcome.ERRORED,
}
"""The outcome of an attempt by its cause, unless the user's rules or a limit say otherwise."""

MAX_RETRIES: Mapping[Cause, int] = {
    Cause.WORKER_LOST: 4,
    Cause.KILLED: 2,
    Cause.OUT_OF_MEMORY: 1,
    Cause.DEVICE_OUT_OF_MEMORY: 1,
    Cause.HUNG: 1,
}
"""How often a trial runs again after such an end; once more is taken for the trial's own fault.

The ends of a lost worker or a killed process count from the trial's last progress.
"""

MAX_RELEASES_WITHOUT_REPORT = 5
"""A trial fails if its worker had to leave this often in a row before the trial's first report."""

_EVENTS: Mapping[Outcome, TrialEvent] = {
    Outcome.FINISHED: TrialEvent.COMPLETE,
    Outcome.ERRORED: TrialEvent.FAIL,
    Outcome.PRUNED: TrialEvent.PRUNE,
}
_EVENTS_AFTER_HALT: Mapping[Halt | None, TrialEvent] = {
    Halt.PRUNE: TrialEvent.PRUNE,
    Halt.PAUSE: TrialEvent.PAUSE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndDecision:
    """Consequences of the end of an attempt.

    Attributes:
        ending: The ending, with the reason that counts.
        outcome: The attempt's outcome.
        event: What happens to the trial.
        is_charged: Whether the end counts towards the trial's limit for its cause.
        releases_without_report: How often in a row the trial's worker had to leave before a report.
        finish: Why the study stops; None if it continues.
    """

    ending: Ending
    outcome: Outcome
    event: TrialEvent
    is_charged: bool
    releases_without_report: int
    finish: Finish | None


def decide(
    trial: TrialRecord, attempt: AttemptRecord, ending: Ending, rules: Sequence[FailureRule]
) -> EndDecision:
    """Return what follows from the end of an attempt; nothing changes.

    Args:
        trial: The trial, before the end is recorded.
        attempt: The attempt.
        ending: How it ended, as `checked` returned it.
        rules: What the user wants done; the first rule for a cause counts.
    """
    cause, halt = ending.cause, attempt.halt
    rule = next((each for each in rules if each.cause is cause), None)
    action = None if rule is None else rule.action
    max_retries = MAX_RETRIES.get(cause, math.inf) if rule is None else rule.max_retries
    has_retries = trial.losses.get(cause, 0) < max_retries
    # So attempts end when the whole command is killed, and not its master alone.
    ends_with_study = halt is Halt.STOP and cause in FROM_OUTSIDE
    releases = _releases_without_report(trial, attempt, cause)
    is_fruitless = releases >= MAX_RELEASES_WITHOUT_REPORT
    usual = Outcome.LOST if action is Action.RETRY else OUTCOMES[cause]
    # The first row that applies decides.
    table = (
        (is_fruitless, Outcome.ERRORED),
        (ends_with_study, Outcome.LOST),
        (action is Action.PRUNE, Outcome.PRUNED),
        (action in (Action.FAIL, Action.STOP), Outcome.ERRORED),
        (usual is Outcome.LOST and not has_retries, Outcome.ERRORED),
        (True, usual),
    )
    outcome = next(outcome for applies, outcome in table if applies)
    if is_fruitless:
        reason = (
            f"the worker had to leave {releases} times before the trial's first report; use "
            "workers that live longer (a longer walltime), or report sooner"
        )
        ending = replace(ending, reason=reason)
    # A decision to stop the trial stands, however its attempt ended.
    event = _EVENTS.get(outcome) or _EVENTS_AFTER_HALT.get(halt, TrialEvent.RETRY)
    finish = None
    if outcome is Outcome.ERRORED and action is Action.STOP:
        reason = f"{ending.reason or cause} (--on-failure {rule})"
        finish = Finish(FinishReason.TOO_MANY_FAILURES, reason, ending.detail)
    elif cause is Cause.FATAL:
        finish = Finish(FinishReason.TOO_MANY_FAILURES, ending.reason, ending.detail)
    elif cause is Cause.NO_ROOM:
        # The next attempt would find no room either, and lose the work since its checkpoint.
        finish = Finish(FinishReason.NO_ROOM, ending.reason)
    return EndDecision(
        ending=ending,
        outcome=outcome,
        event=event,
        is_charged=not ends_with_study,
        releases_without_report=releases,
        finish=finish,
    )


def _releases_without_report(trial: TrialRecord, attempt: AttemptRecord, cause: Cause) -> int:
    if attempt.attempt.started_at is None:
        return trial.releases_without_report
    if attempt.latest is not None:
        return 0
    return trial.releases_without_report + (cause is Cause.RELEASED)


def checked(ending: Ending, goals: Goals) -> Ending:
    """Return the ending as it counts: a result needs a finite value for every metric of a goal."""
    if ending.cause is not Cause.RETURNED:
        return ending
    for metric in goals.metrics:
        if metric not in ending.metrics:
            reason = unknown_metric(metric, ending.metrics)
            return replace(ending, cause=Cause.UNKNOWN_METRIC, reason=reason)
    for metric in goals.metrics:
        value = ending.metrics[metric]
        if not math.isfinite(value):
            return replace(ending, cause=Cause.NON_FINITE, reason=f"{metric} is {value}")
    return ending
