"""What the user wants done about attempts that end badly, where that is not the usual."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass

from .trial import Cause

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
"""The causes that can be answered to, by the names that users give them."""


class Action(enum.StrEnum):
    """What is done about a trial whose attempt ended badly."""

    RETRY = "retry"
    """It runs again, so many times at most; then it fails."""
    FAIL = "fail"
    """It fails, and the sampler is told so."""
    PRUNE = "prune"
    """It counts as pruned, with what it has reported."""
    STOP = "stop"
    """It fails, and the study stops with it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is done about attempts that end by a cause.

    Attributes:
        cause: The cause.
        action: What is done.
        times: For `Action.RETRY`: how often a trial may run again after such an end.
    """

    cause: Cause
    action: Action
    times: int = 0

    def __str__(self) -> str:
        name = next(name for name, cause in CAUSES.items() if cause is self.cause)
        times = f":{self.times}" if self.action is Action.RETRY else ""
        return f"{name}={self.action}{times}"


def read_answer(text: str) -> Answer:
    """The answer that a user gave.

    >>> read_answer("memory=retry:3")
    Answer(cause=<Cause.OUT_OF_MEMORY: 'out of memory'>, action=<Action.RETRY: 'retry'>, times=3)
    >>> read_answer("timeout=prune").action
    <Action.PRUNE: 'prune'>

    Raises:
        ValueError: It is none; the message says what is allowed.
    """
    name, _, said = text.partition("=")
    name, said = name.strip(), said.strip()
    if name not in CAUSES:
        raise ValueError(f"{text!r} names no cause: allowed are {', '.join(CAUSES)}")
    retry = re.fullmatch(r"retry(?::(\d+))?", said)
    if retry is not None:
        return Answer(CAUSES[name], Action.RETRY, int(retry.group(1) or 1))
    if said not in (Action.FAIL, Action.PRUNE, Action.STOP):
        raise ValueError(
            f"{text!r} says nothing that can be done about {name!r}: allowed are "
            "retry, retry:N, fail, prune and stop"
        )
    return Answer(CAUSES[name], Action(said))
