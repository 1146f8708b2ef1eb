"""What the end of an attempt means: for its trial, and for the study."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import assert_never

from ..failure_policy import Action, FailureRule
from ..goals import Goals, unknown_metric
from ..messages import Finish, FinishReason
from ..trial import Cause, Ending, Outcome

MAX_LOSSES = {
    Cause.KILLED: 3,
    Cause.WORKER_LOST: 5,
    Cause.OUT_OF_MEMORY: 2,
    Cause.DEVICE_OUT_OF_MEMORY: 2,
    Cause.HUNG: 2,
}
"""So often may a trial end this way before it is held to be the trial's own fault."""


MAX_FRUITLESS = 5
"""So often in a row may a trial's worker have to go before the trial has reported anything."""


def judged(ending: Ending, goals: Goals) -> Ending:
    """The ending as it counts: a result without a finite value of all that counts is none."""
    if ending.cause is not Cause.RETURNED:
        return ending
    missing = [metric for metric in goals.metrics if metric not in ending.metrics]
    if missing:
        return replace(
            ending,
            cause=Cause.UNKNOWN_METRIC,
            reason=unknown_metric(missing[0], ending.metrics),
        )
    for metric in goals.metrics:
        value = ending.metrics[metric]
        if not math.isfinite(value):
            return replace(ending, cause=Cause.NON_FINITE, reason=f"{metric} is {value}")
    return ending


def answer_to(cause: Cause, answers: Iterable[FailureRule]) -> FailureRule | None:
    """What the user wants done about this cause; None where they have said nothing."""
    return next((answer for answer in answers if answer.cause is cause), None)


def outcome_of(cause: Cause, losses: int, answer: FailureRule | None = None) -> Outcome:
    """What an end by this cause is for the trial, which ended this way `losses` times before.

    >>> outcome_of(Cause.KILLED, 0), outcome_of(Cause.KILLED, 2)
    (<Outcome.LOST: 'LOST'>, <Outcome.ERRORED: 'ERRORED'>)

    Args:
        cause: How the attempt ended.
        losses: How often the trial has ended so before.
        answer: What the user wants done about it, where that is not the usual.
    """
    if answer is not None:
        match answer.action:
            case Action.PRUNE:
                return Outcome.PRUNED
            case Action.RETRY if losses < answer.max_retries:
                return Outcome.LOST
            case Action.RETRY | Action.FAIL | Action.STOP:
                return Outcome.ERRORED
    match cause:
        case Cause.RETURNED:
            return Outcome.FINISHED
        case Cause.PRUNED:
            return Outcome.PRUNED
        case Cause.STOPPED | Cause.PAUSED | Cause.NO_ROOM | Cause.RELEASED:
            return Outcome.RELEASED
        case Cause.MASTER_LOST:
            return Outcome.LOST
        case (
            Cause.KILLED
            | Cause.WORKER_LOST
            | Cause.OUT_OF_MEMORY
            | Cause.DEVICE_OUT_OF_MEMORY
            | Cause.HUNG
        ):
            return Outcome.LOST if losses + 1 < MAX_LOSSES[cause] else Outcome.ERRORED
        case (
            Cause.EXCEPTION
            | Cause.NON_FINITE
            | Cause.UNKNOWN_METRIC
            | Cause.EXITED
            | Cause.TIMED_OUT
        ):
            return Outcome.ERRORED
    assert_never(cause)


class FailureTally:
    """Counts one run's failed trials, and says when the study had better stop.

    Args:
        max_failures: So many trials may fail; None for any number.
        same_failure_limit: When so many first trials fail in the same way, the objective is
            broken; 0 for never.
        any_success: Whether a trial was complete before this run.
    """

    def __init__(
        self, *, max_failures: int | None, same_failure_limit: int, any_success: bool = False
    ) -> None:
        self._max = max_failures
        self._limit = same_failure_limit
        self._failed = 0
        self._first: list[str] = []
        self._any_success = any_success

    def count_success(self) -> None:
        """A trial is complete."""
        self._any_success = True

    def count_failure(self, ending: Ending) -> Finish | None:
        """A trial failed with this ending; returns how the study is to finish, if it is to."""
        if ending.cause is Cause.UNKNOWN_METRIC and not self._any_success:
            return Finish(FinishReason.UNKNOWN_METRIC, ending.reason)
        self._failed += 1
        if len(self._first) < self._limit:
            self._first.append(ending.fingerprint)
            is_full = len(self._first) == self._limit
            if is_full and not self._any_success and len(set(self._first)) == 1:
                count = "trial" if self._limit == 1 else f"{self._limit} trials"
                reason = f"the first {count} all failed the same way: {ending.reason}"
                return Finish(FinishReason.SAME_FAILURE, reason, ending.detail)
        if self._max is not None and self._failed > self._max:
            reason = (
                f"{self._failed} trials failed, allowed are {self._max}; "
                f"the last one: {ending.reason}"
            )
            return Finish(FinishReason.TOO_MANY_FAILURES, reason, ending.detail)
        return None
