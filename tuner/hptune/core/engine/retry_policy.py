"""The consequence of the end of an attempt: for its trial, and for the study if trials fail."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ..attempt import BEGINS_AGAIN, FROM_OUTSIDE, NON_FINITE_REMEDY, Cause, Ending, Halt, Outcome
from ..failure_policy import Action, FailureRule
from ..goals import Goals, unknown_metric
from ..messages import Finish, FinishReason
from ..spelling import plural
from .records import AttemptRecord, TrialEvent, TrialRecord

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

MAX_RELEASES_WITHOUT_PROGRESS = 4
"""A trial fails if the workers of this many attempts in a row had to leave, and each had reported
nothing or had begun at the trial's first step again."""

_TOLD_FROM = 2
"""The number of them from which on their reason says what helps."""

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
        releases_without_progress: How often in a row the trial's worker had to leave an attempt
            that had reported nothing, or began at the first step.
        finish: Why the study stops; None if it continues.
    """

    ending: Ending
    outcome: Outcome
    event: TrialEvent
    is_charged: bool
    releases_without_progress: int
    finish: Finish | None


def decide(
    trial: TrialRecord,
    attempt: AttemptRecord,
    ending: Ending,
    rules: Sequence[FailureRule],
    *,
    at: float = 0.0,
    epochs: int | None = None,
) -> EndDecision:
    """Return what follows from the end of an attempt; nothing changes.

    Args:
        trial: The trial, before the end is recorded.
        attempt: The attempt.
        ending: How it ended, as `checked` returned it.
        rules: What the user wants done; the first rule for a cause counts.
        at: When it ended, in seconds since the epoch.
        epochs: Epochs of a trial; None if unknown.
    """
    cause, halt = ending.cause, attempt.halt
    rule = next((each for each in rules if each.cause is cause), None)
    action = None if rule is None else rule.action
    max_retries = MAX_RETRIES.get(cause, math.inf) if rule is None else rule.max_retries
    has_retries = trial.losses.get(cause, 0) < max_retries
    # So attempts end when the whole command is killed, and not its master alone.
    ends_with_study = halt is Halt.STOP and cause in FROM_OUTSIDE
    releases = _releases_without_progress(trial, attempt, cause)
    goes_on = cause is Cause.RELEASED and halt not in _EVENTS_AFTER_HALT
    is_too_often = goes_on and releases >= MAX_RELEASES_WITHOUT_PROGRESS
    usual = Outcome.LOST if action is Action.RETRY else OUTCOMES[cause]
    # The first row that applies decides.
    table = (
        (is_too_often, Outcome.ERRORED),
        (ends_with_study, Outcome.LOST),
        (action is Action.PRUNE, Outcome.PRUNED),
        (action in (Action.FAIL, Action.STOP), Outcome.ERRORED),
        (usual is Outcome.LOST and not has_retries, Outcome.ERRORED),
        (True, usual),
    )
    outcome = next(outcome for applies, outcome in table if applies)
    if is_too_often and attempt.first_step is None:
        reason = (
            f"the worker had to leave {releases} times in a row, the last time before a report; "
            "use workers that live longer (a longer walltime), or report sooner"
        )
        ending = replace(ending, reason=reason)
    elif goes_on and attempt.first_step is not None and releases >= _TOLD_FROM:
        seconds = attempt.attempt.seconds(at) or 0.0
        ending = replace(ending, reason=_begins_again(attempt, releases, seconds, epochs))
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
        releases_without_progress=releases,
        finish=finish,
    )


def _releases_without_progress(trial: TrialRecord, attempt: AttemptRecord, cause: Cause) -> int:
    if attempt.attempt.started_at is None:
        return trial.releases_without_progress
    if attempt.first_step not in (None, trial.first_step):
        return 0  # it has continued from a checkpoint
    return trial.releases_without_progress + (cause is Cause.RELEASED)


def _begins_again(attempt: AttemptRecord, times: int, seconds: float, epochs: int | None) -> str:
    """Return that a trial cannot end, with the time that it has and needs, and what helps."""
    first, last = attempt.first_step or 0, 0 if attempt.latest is None else attempt.latest.step
    needs = ""
    if epochs is not None and epochs > last:
        whole = seconds * (epochs - first + 1) / (last - first + 1)
        needs = f" of {epochs}, which take about {_duration(whole)}"
    return (
        f"its worker had to leave after {_duration(seconds)}, at step {last}{needs}; it has no "
        f"checkpoint, and {times} {BEGINS_AGAIN} {first}. Save into trial.checkpoint_dir, and "
        "continue after trial.resumed_from (hptune help checkpoints), or use workers that live "
        "longer (a longer walltime)"
    )


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 600.0 else f"{seconds / 60.0:.0f} minutes"


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
            words = f"{metric} is {value}, and a result is a finite number"
            return replace(ending, cause=Cause.NON_FINITE, reason=words)
    return ending


class FailureTally:
    """Counts the failed trials of one run, and says when the study stops for them.

    Args:
        max_failures: Number of trials that may fail; None for any number.
        same_failure_limit: The objective is broken if this many first trials fail in the same
            way; 0 for never.
        any_success: Whether a trial was complete or pruned before this run.
        is_resumed: Whether the study had trials before this run.
    """

    def __init__(
        self,
        *,
        max_failures: int | None,
        same_failure_limit: int,
        any_success: bool = False,
        is_resumed: bool = False,
    ) -> None:
        self._of_this_run = " of this run" if is_resumed else ""
        self._max = max_failures
        self._limit = same_failure_limit
        self._fingerprints: list[str] = []
        self._any_success = any_success

    def count_success(self) -> None:
        """Count a trial that is complete or pruned."""
        self._any_success = True

    def count_failure(self, ending: Ending) -> Finish | None:
        """Count a trial that failed; return how the study ends by it, None if it continues."""
        if ending.cause is Cause.UNKNOWN_METRIC and not self._any_success:
            return Finish(FinishReason.UNKNOWN_METRIC, ending.reason)
        self._fingerprints.append(ending.fingerprint)
        failures = len(self._fingerprints)
        words = ending.reason
        if ending.cause is Cause.NON_FINITE:
            words += f"; {NON_FINITE_REMEDY}"
        is_same = failures == self._limit and len(set(self._fingerprints)) == 1
        if is_same and not self._any_success:
            is_one = self._limit == 1
            count = "trial" if is_one else f"{self._limit} trials"
            reason = (
                f"the first {count}{self._of_this_run} "
                f"{'failed' if is_one else 'all failed the same way'}: {words}"
            )
            return Finish(FinishReason.SAME_FAILURE, reason, ending.detail)
        if self._max is not None and failures > self._max:
            failed = plural(failures, "trial")
            reason = f"{failed} failed, allowed are {self._max}; the last one: {words}"
            return Finish(FinishReason.TOO_MANY_FAILURES, reason, ending.detail)
        return None
