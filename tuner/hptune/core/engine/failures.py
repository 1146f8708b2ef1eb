"""The end of a study because its trials fail."""

from __future__ import annotations

from ..attempt import Cause, Ending
from ..messages import Finish, FinishReason


class FailureTally:
    """Counts the failed trials of one run, and says when the study stops for them.

    Args:
        max_failures: Number of trials that may fail; None for any number.
        same_failure_limit: The objective is broken if this many first trials fail in the same
            way; 0 for never.
        any_success: Whether a trial was complete before this run.
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
        self._failed = 0
        self._first: list[str] = []
        self._any_success = any_success

    def count_success(self) -> None:
        """Count a trial that is complete or pruned."""
        self._any_success = True

    def count_failure(self, ending: Ending) -> Finish | None:
        """Count a trial that failed; return how the study ends by it, None if it continues."""
        if ending.cause is Cause.UNKNOWN_METRIC and not self._any_success:
            return Finish(FinishReason.UNKNOWN_METRIC, ending.reason)
        self._failed += 1
        if len(self._first) < self._limit:
            self._first.append(ending.fingerprint)
            is_full = len(self._first) == self._limit
            if is_full and not self._any_success and len(set(self._first)) == 1:
                is_one = self._limit == 1
                count = "trial" if is_one else f"{self._limit} trials"
                reason = (
                    f"the first {count}{self._of_this_run} "
                    f"{'failed' if is_one else 'all failed the same way'}: {ending.reason}"
                )
                return Finish(FinishReason.SAME_FAILURE, reason, ending.detail)
        if self._max is not None and self._failed > self._max:
            reason = (
                f"{self._failed} trials failed, allowed are {self._max}; "
                f"the last one: {ending.reason}"
            )
            return Finish(FinishReason.TOO_MANY_FAILURES, reason, ending.detail)
        return None
