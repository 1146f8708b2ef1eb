"""What the user wants done about attempts that end badly, where that is not the default."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from .attempt import Cause

CAUSES = {
    "exception": Cause.EXCEPTION,
    "nan": Cause.NON_FINITE,
    "exit": Cause.EXITED,
    "killed": Cause.KILLED,
    "memory": Cause.OUT_OF_MEMORY,
    "gpu-memory": Cause.DEVICE_OUT_OF_MEMORY,
    "timeout": Cause.TIMED_OUT,
    "hang": Cause.HUNG,
    "worker": Cause.WORKER_LOST,
}
"""The causes that a rule can name, by the names that users give them."""


class Action(enum.StrEnum):
    """Reaction to an attempt that ended badly."""

    RETRY = "retry"
    """The trial runs again, up to a number of times; then it fails."""
    FAIL = "fail"
    """The trial fails, and the sampler is told."""
    PRUNE = "prune"
    """The trial counts as pruned, with what it has reported."""
    STOP = "stop"
    """The trial fails, and the study stops."""


@dataclass(frozen=True, slots=True)
class FailureRule:
    """Reaction to attempts that end by a cause.

    Attributes:
        cause: The cause.
        action: What is done.
        max_retries: For `Action.RETRY`: how often a trial may run again after such an end.
    """

    cause: Cause
    action: Action
    max_retries: int = 0

    def __str__(self) -> str:
        name = next(name for name, cause in CAUSES.items() if cause is self.cause)
        retries = f":{self.max_retries}" if self.action is Action.RETRY else ""
        return f"{name}={self.action}{retries}"


def read_failure_rule(text: str) -> FailureRule:
    """Read a rule that a user gave.

    >>> rule = read_failure_rule("memory=retry:3")
    >>> rule.cause, rule.action, rule.max_retries
    (<Cause.OUT_OF_MEMORY: 'out of memory'>, <Action.RETRY: 'retry'>, 3)

    Raises:
        ValueError: The text is no rule; the message says what is allowed.
    """
    name, _, action = (part.strip() for part in text.partition("="))
    if name not in CAUSES:
        raise ValueError(f"{text!r} names no cause: allowed are {', '.join(CAUSES)}")
    retry = re.fullmatch(r"retry(?::(\d+))?", action)
    if retry is not None:
        return FailureRule(CAUSES[name], Action.RETRY, int(retry.group(1) or 1))
    if action not in (Action.FAIL, Action.PRUNE, Action.STOP):
        raise ValueError(
            f"{text!r} names no action for {name!r}: allowed are retry, retry:N, fail, prune and "
            "stop"
        )
    return FailureRule(CAUSES[name], Action(action))
