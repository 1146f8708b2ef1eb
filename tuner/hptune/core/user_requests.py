"""What users ask of a running study, besides Ctrl-C."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class UserAction(enum.StrEnum):
    """What a user asks for."""

    STOP = "stop"
    """Stop the study; `hptune resume` continues it."""
    STOP_TRIAL = "stop a trial"
    """Stop one trial for good, whether it runs, waits or is paused: it is pruned, with the value of
    its last report."""
    ENQUEUE = "enqueue"
    """Try these configurations next."""
    PAUSE = "pause"
    """Start no more trials; those that run continue. Slurm jobs without trials are cancelled."""
    RESUME = "resume"
    """Start trials again."""
    NOTE = "note"
    """Write a note on the study or on a trial, or tag it; the search does not see it."""
    TRAIN = "train"
    """Let an event happen of a program that trains a trial: it asks, reports, declares or tells."""


@dataclass(frozen=True, slots=True)
class Note:
    """What a user writes on a study or on a trial.

    Attributes:
        text: A text; empty if only tags change.
        tags: Tags to add.
        removed: Tags to remove.
    """

    text: str = ""
    tags: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A user's request to the master of a study.

    Attributes:
        name: Distinguishes it from all others.
        action: What is asked for.
        by: Who asks, and with what, for people.
        trial: The trial to stop, for `STOP_TRIAL`; the one that a `NOTE` is about, or None for
            one about the study.
        points: The configurations, given in part, for `ENQUEUE`.
        note: What is written, for `NOTE`.
        event: What the program asks for or tells, for `TRAIN`: kind and payload of an event,
            as the ledger has them; the master stamps it.
        master: The token of the master that is asked, for `TRAIN`: another one does not answer.
            Empty to ask the program that has the study's lock.
    """

    name: str
    action: UserAction
    by: str
    trial: int | None = None
    points: tuple[Mapping[str, Any], ...] = ()
    note: Note | None = None
    event: tuple[str, str] | None = None
    master: str = ""

    @property
    def stop_reason(self) -> str:
        """Why the study ends, if this asks for it: "stopped by ada with hptune stop"."""
        who, _, tool = self.by.removesuffix(")").rpartition(" (")
        return f"stopped by {who} with {tool}" if who else f"stopped by {self.by}"


@dataclass(frozen=True, slots=True)
class RequestAnswer:
    """The answer of a program that had the study's lock to a request of another one.

    Attributes:
        request: The request's name.
        text: What the other program makes of it; empty for a request that was withdrawn.
    """

    request: str
    text: str
