"""Calls of programs that wait for the study's lock: the program that has it answers them all.

A transaction takes its time on the disk however much it writes. So a program that finds the lock
taken publishes its events in `DIR/requests`. The one that has the lock lets them happen with its
own in one transaction, which has a `UserRequested` for each, and publishes the answers. What is
published only saves time: whoever waits takes the lock if no answer comes, and learns from the
ledger whether its events have happened.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.attempt import Halt
from ..core.messages import Event, Finish, Start
from ..core.trial import Trial
from ..core.user_requests import RequestAnswer, UserAction, UserRequest
from ..errors import (
    HptuneError,
    NoTrialError,
    StudyError,
    StudyOverError,
    TrialOverError,
    UsageError,
)
from ..master.programs import may_wait
from ..storage.asking import new_request
from ..storage.directory import StudyDirectory
from ..storage.ledger.codec import decode_event, dumps, encode_event, loads, plain, structured
from ..storage.turn import PATIENCE_SECONDS

UNANSWERED_SECONDS = 2.0
"""How long to let other programs answer before this one tries to take the lock regardless."""

_RECENT_BYTES = 100_000
"""How much a program reads at first of what others have published: those that still wait."""

_ERRORS = {
    kind.__name__: kind
    for kind in (UsageError, StudyError, NoTrialError, StudyOverError, TrialOverError)
}


@dataclass(frozen=True, slots=True)
class GivenTrial:
    """A trial that a program gets.

    Attributes:
        start: The engine's command to start an attempt of it.
        epochs: The full training of a trial; None if unknown.
        space: The search space, with what trials have declared so far, as JSON.
    """

    start: Start
    epochs: int | None
    space: Sequence[Mapping[str, object]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What the program gets whose event has happened.

    Attributes:
        given: The trial that it asked for.
        halt: Why its trial is to stop, after a report.
        trial: The trial that it has ended.
        finish: How the study has ended; None if it has not.
        error: Why nothing has happened; None if it has.
    """

    given: GivenTrial | None = None
    halt: Halt | None = None
    trial: Trial | None = None
    finish: Finish | None = None
    error: HptuneError | None = None

    def to_text(self) -> str:
        """Return the answer for `from_text` in another process."""
        error = self.error
        return dumps(
            [
                plain(self.given),
                self.halt,
                plain(self.trial),
                plain(self.finish),
                error and [type(error).__name__, error.message],
            ]
        )

    @classmethod
    def from_text(cls, text: str) -> Answer:
        """Return the answer of `to_text`.

        Raises:
            Exception: The text is none.
        """
        given, halt, trial, finish, error = loads(text)
        return cls(
            given=structured(given, GivenTrial | None),
            halt=structured(halt, Halt | None),
            trial=structured(trial, Trial | None),
            finish=structured(finish, Finish | None),
            error=error and _ERRORS.get(error[0], StudyError)(str(error[1])),
        )


@dataclass(frozen=True, slots=True)
class Call:
    """An event that a program lets happen.

    Attributes:
        event: The event.
        by: Who published it, for people; empty for a call of this process that is not published.
    """

    event: Event
    by: str = ""


class PublishedCalls:
    """The calls that programs publish, and their answers.

    Args:
        directory: The study's.
    """

    def __init__(self, directory: StudyDirectory) -> None:
        self._directory = directory
        self._waiting: dict[str, UserRequest] = {}
        self._is_read = False

    def publish(self, events: Mapping[str, Event], *, master: str = "") -> None:
        """Publish events, by names that no others have.

        Args:
            events: The events.
            master: The token of the master that is to answer; empty for the programs.
        """
        self.answers()  # those of earlier calls are not for these
        for name, event in events.items():
            request = new_request(UserAction.TRAIN, tool="a program")
            request = replace(request, name=name, event=encode_event(event), master=master)
            self._directory.requests.append(request)
            if not master:
                self._waiting[name] = request  # also if the file cannot be read now

    def withdraw(self, names: Collection[str]) -> None:
        """Take back calls whose program does not wait any more."""
        for name in names:
            self._waiting.pop(name, None)
        with contextlib.suppress(HptuneError):
            self._directory.requests.answer([RequestAnswer(name, "") for name in names])

    def waiting(self, answered: Container[str], now: float) -> dict[str, Call]:
        """Return the calls without an answer, in the order in which they were published.

        Args:
            answered: The names of those that have one in the ledger.
            now: The present time, in seconds since the epoch; who has waited for too long is gone,
                as is a killed program of this machine that asked for a trial.
        """
        self.answers()
        calls: dict[str, Call] = {}
        for name, request in [*self._waiting.items()]:
            with contextlib.suppress(StudyError):
                event = decode_event(*request.event or ("", ""))
                waits = event.at > now - PATIENCE_SECONDS and may_wait(event)
                if waits and name not in answered:
                    calls[name] = Call(event, request.by)
                    continue
            del self._waiting[name]
        return calls

    def answer(self, answers: Mapping[str, Answer]) -> None:
        """Publish answers, which the ledger has already."""
        texts = [RequestAnswer(name, answer.to_text()) for name, answer in answers.items()]
        with contextlib.suppress(HptuneError):  # the others find them in the ledger
            if texts:
                self._directory.requests.answer(texts, begins_again=True)

    def answers(self) -> dict[str, str]:
        """Return the texts of the answers since the last call, by the names of the calls."""
        if not self._is_read:
            self._is_read = True
            with contextlib.suppress(HptuneError):
                self._directory.requests.skip(but_bytes=_RECENT_BYTES)
        answers: dict[str, str] = {}
        for entry in self._directory.requests.read_all():
            if isinstance(entry, RequestAnswer):
                self._waiting.pop(entry.request, None)
                answers[entry.request] = entry.text
            elif entry.action is UserAction.TRAIN and not entry.master:
                self._waiting[entry.name] = entry
        return answers


@dataclass(slots=True)
class Wait:
    """The wait of a call.

    Attributes:
        give_up_at: When the others have taken too long, by the monotonic clock.
        try_at: When to try to take the lock even if other programs answer calls.
        seconds: How long to wait before the next try.
        is_published: Whether other programs may answer the call.
        master: The token of the master that was asked; empty for none.
    """

    give_up_at: float = field(default_factory=lambda: time.monotonic() + PATIENCE_SECONDS)
    try_at: float = field(default_factory=lambda: time.monotonic() + UNANSWERED_SECONDS)
    seconds: float = 0.05
    is_published: bool = False
    master: str = ""
