"""A study that programs ask for trials: each call holds the study's lock for its moment."""

from __future__ import annotations

import contextlib
import random
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from ..config.objectives import goals_of
from ..core.attempt import AttemptId, Cause, Ending, Halt, Outcome, Report
from ..core.engine.records import LeasedAttempt
from ..core.goals import Goals
from ..core.messages import (
    AttemptEnded,
    Event,
    Finish,
    FinishReason,
    ParametersUsed,
    Reported,
    StopRequested,
    StudyClosed,
    UserRequested,
    WorkerJoined,
)
from ..core.trial import Trial
from ..core.user_requests import UserAction
from ..errors import HptuneError, StudyLockedError, UsageError
from ..master.programs import Told, follows, is_gone, past_leases, program, without_trial
from ..storage.directory import StudyDirectory
from ..storage.lease import LockOwner
from ..storage.ledger import LedgerReader
from ..storage.lock import MasterLock
from ..storage.turn import PATIENCE_SECONDS, MasterRunsError, acquired, tried
from ..text import duration
from .answers import answer_to, given_to, known_trial, running
from .calls import Answer, Call, GivenTrial, PublishedCalls, Wait
from .followed import FollowedStudy
from .state import FollowedState

_GONE = "its process ended without a result"

_ANSWER_POLL_SECONDS = 0.005
_MOST_ANSWER_POLL_SECONDS = 0.05
"""How often the answers of other programs are looked for: at first, and then less and less."""

_MOST_TRY_SECONDS = 1.0
"""How long to wait at least between two tries to take the lock: at most this."""
_OVERDUE_SECONDS = 0.2
"""As above, for a call that others should have answered by then."""
_ANSWERED_SECONDS = 0.5
"""How long to wait at least from an answer of another program on: it knows what this one would have
to read, and is likely to have the lock again soon."""

_MASTER_POLL_SECONDS = 0.02
_MOST_MASTER_POLL_SECONDS = 0.5
"""How often the ledger is read for a master's answer: at first, and then less and less."""


class Session:
    """The calls of this process on one study. Any thread may call.

    Args:
        directory: Where the study is.

    Attributes:
        guard: Held during a call.
        state: What this process has read of the study.
        ends_with_process: Whether the trials that it asks for are over if this process is.
        finish: How the study has ended, as of the last call; None if it has not.
    """

    def __init__(self, directory: StudyDirectory) -> None:
        self.directory = directory
        self.ends_with_process = False
        self.guard = threading.RLock()
        self.finish: Finish | None = None
        self.state = FollowedState(directory)
        self._calls = PublishedCalls(directory)
        self._try_at = 0.0

    @cached_property
    def reader(self) -> LedgerReader:
        """The study's ledger, for reading."""
        return LedgerReader(self.directory)

    @cached_property
    def goals(self) -> Goals:
        """The study's goals, which never change."""
        return goals_of(self.reader.facts())

    # --- calls ------------------------------------------------------------------------------

    def ask(self, count: int, *, lease_seconds: float) -> list[GivenTrial]:
        """Return trials; fewer than asked for if there are no more.

        Raises:
            StudyOverError: The study has no more.
            NoTrialError: None is free now.
        """
        programs = [
            program(lease_seconds, ends_with_process=self.ends_with_process) for _ in range(count)
        ]
        answers = self._call(programs)
        given = [answer.given for answer in answers if answer.given is not None]
        if not given and (error := answers[0].error) is not None:
            raise error
        return given

    def report(self, name: AttemptId, report: Report) -> Halt | None:
        """Record a report, which renews the lease; return why the trial is to stop, if it is.

        Raises:
            TrialOverError: The attempt is over.
        """
        (answer,) = self._carried_out([Reported(0.0, name, report)])
        return answer.halt

    def declare(self, used: ParametersUsed) -> None:
        """Record hyperparameters that a trial has used, or has not, beyond what was suggested."""
        self._carried_out([used])

    def end(self, name: AttemptId, ending: Ending, used: ParametersUsed | None = None) -> Trial:
        """End an attempt; return the trial as it is then.

        Args:
            name: The attempt.
            ending: How it ends.
            used: What it has used; None for what was suggested.

        Raises:
            TrialOverError: It is over already; nothing has changed.
        """
        ended = AttemptEnded(0.0, name, ending)
        *_, answer = self._carried_out([ended] if used is None else [used, ended])
        assert answer.trial is not None
        return answer.trial

    def end_gone(self) -> None:
        """End the attempts that killed processes of this machine had; others get the trials.

        Those of programs that only ask, as `hptune ask` does, go on until their leases end.
        """
        gone = [
            AttemptEnded(0.0, each.attempt.id, Ending(Cause.WORKER_LOST, reason=_GONE))
            for each in self._seen().engine.leased.values()
            if is_gone(each.attempt)
        ]
        self._call(gone)  # another process may have ended some

    def stop(self, reason: str) -> bool:
        """Stop the study if programs have it open: they stop at their next reports.

        Returns:
            Whether they had.
        """
        with self.guard, acquired(self.directory, is_brief=True) as lock:
            study = self.state.caught_up(lock)
            had = study.is_open and study.finish is None
            if study.goes_on:
                with self.state.recorded(study):
                    study.happen(StopRequested(study.now(), FinishReason.INTERRUPTED, reason))
            return had

    def was_lost(self, name: AttemptId) -> bool:
        """Return whether an attempt was ended without its program, as past its lease."""
        attempts = self.reader.attempts()
        return any(each.id == name and each.outcome is Outcome.LOST for each in attempts)

    def running_attempt(self, number: int, attempt: int | None) -> tuple[LeasedAttempt, GivenTrial]:
        """Return the attempt of a trial that a program has asked for, and what the program got.

        Args:
            number: The trial's number.
            attempt: The attempt's; None for the last one.

        Raises:
            UsageError: There is no such trial.
            TrialOverError: It does not run.
        """
        study = self._seen()
        last = max(0, known_trial(study, number).attempts - 1)
        leased = running(study, AttemptId(number, last if attempt is None else attempt))
        return leased, given_to(study, leased.attempt.placement.worker)

    # --- the moment of a call ---------------------------------------------------------------

    def _carried_out(self, events: Sequence[Event]) -> list[Answer]:
        """Let the events of a call happen, and return the answers.

        Raises:
            HptuneError: The study refuses one of them.
        """
        answers = self._call(events)
        for answer in answers:
            if answer.error is not None:
                raise answer.error
        return answers

    def _call(self, events: Sequence[Event]) -> list[Answer]:
        """Let the events of a call happen, and return an answer for each.

        They happen under this process's lock, by the program that has the lock at this moment, or
        by the master that runs the study. Each writes in one transaction what happens, and that it
        has answered.
        """
        # Who has waited for long is taken to be gone.
        calls = {secrets.token_hex(8): replace(event, at=time.time()) for event in events}
        wait = Wait()
        with self.guard:
            try:
                answers = self._answered(calls, wait)
            except BaseException:
                if wait.is_published or wait.master:
                    self._calls.withdraw(calls)
                raise
            if answers:
                self.finish = answers[-1].finish
            return answers

    def _answered(self, calls: Mapping[str, Event], wait: Wait) -> list[Answer]:
        answers: dict[str, Answer] = {}
        while len(answers) < len(calls):
            try:
                lock = self._try_lock(wait) if self._is_due(wait) else None
            except MasterRunsError as beside:
                if (study := self._by_master(beside.owner, calls, wait)) is not None:
                    return [answer_to(study, *call) for call in calls.items()]
                continue
            if lock is not None:
                with lock:
                    return self._by_lock(lock, calls)
            if not wait.is_published:
                wait.is_published = True  # also if this is interrupted
                with contextlib.suppress(UsageError):  # too long: it happens under its own lock
                    self._calls.publish(calls)
            answers |= self._by_another(calls, wait)
        return [answers[name] for name in calls]

    def _is_due(self, wait: Wait) -> bool:
        """Return whether it is time to try to take the lock."""
        return time.monotonic() >= min(self._try_at, wait.try_at)

    def _by_another(self, calls: Mapping[str, Event], wait: Wait) -> dict[str, Answer]:
        """Wait for the program that has the lock; return its answers to calls of this one.

        There may be fewer than calls: then it is time to try to take the lock.
        """
        answers: dict[str, Answer] = {}
        seconds = _ANSWER_POLL_SECONDS
        while len(answers) < len(calls) and not self._is_due(wait):
            time.sleep(seconds)
            seconds = min(1.2 * seconds, _MOST_ANSWER_POLL_SECONDS)
            if texts := self._calls.answers():
                self._try_at = max(self._try_at, _later(_ANSWERED_SECONDS))
                for name in calls.keys() & texts.keys():
                    with contextlib.suppress(Exception):  # none of ours: the ledger has the answer
                        answers[name] = Answer.from_text(texts[name])
        return answers

    def _by_lock(self, lock: MasterLock, calls: Mapping[str, Event]) -> list[Answer]:
        """Let the events happen under this process's lock, with those of all that wait for it."""
        study = self.state.caught_up(lock)
        own = {name: Call(event) for name, event in _pending(study, calls).items()}
        batch = own | self._calls.waiting(study.refusals, study.now())
        is_left = not study.is_open and study.finish is None
        # Programs that ask do not take back a stop or a pause of a master that was killed.
        if is_left and study.engine.may_start and any(map(_asks, own.values())):
            from .opening import opened  # it loads what plans a run

            study = opened(self.state, study, lock)
        if not study.is_open:  # it is over, or who asks opens it
            batch = {name: call for name, call in batch.items() if not _asks(call)}
        if batch:
            with self.state.recorded(study):
                self._carry_out(study, batch)
            others = {name: call for name, call in batch.items() if call.by and name not in calls}
            self._calls.answer(
                {name: answer_to(study, name, call.event) for name, call in others.items()}
            )
        return [answer_to(study, *call) for call in calls.items()]

    def _carry_out(self, study: FollowedStudy, batch: Mapping[str, Call]) -> None:
        if any(map(_asks, batch.values())) and study.finish is None:
            told = {call.event.attempt for call in batch.values() if isinstance(call.event, Told)}
            study.happen(*past_leases(study.engine, study.now(), told=told))
        elif not (study.is_open or study.is_closed):
            study.happen(StudyClosed(study.now()))  # nothing starts on the last one's workers
        study.stop_if_due()  # before a report, whose answer has the order to stop
        for name, call in batch.items():
            refused, now = "", study.now()
            try:
                new = follows(study.engine, call.event, now)
            except HptuneError as error:
                refused, new = error.message, ()
            study.happen(*new)
            if call.by:
                study.happen(UserRequested(now, name, UserAction.TRAIN, call.by, refused=refused))
            elif refused:
                study.refusals[name] = refused
        study.happen(*without_trial(study.engine, study.now()))

    # --- beside a master --------------------------------------------------------------------

    def _by_master(
        self, owner: LockOwner, calls: Mapping[str, Event], wait: Wait
    ) -> FollowedStudy | None:
        """Return the study with a master's answers; None if it has ended without them."""
        pending = _pending(self.state.seen(), calls)
        if owner.token != wait.master:
            wait.master = owner.token  # also if this is interrupted
            self._calls.publish(pending, master=owner.token)
        give_up_at, seconds = time.monotonic() + PATIENCE_SECONDS, _MASTER_POLL_SECONDS
        while True:
            now = self.directory.owner()  # before the ledger, which an ending master may write
            study = self.state.seen()
            if not _pending(study, calls):
                return study
            if now is None or now.token != owner.token:
                return None
            if time.monotonic() > give_up_at:
                raise StudyLockedError(
                    f"{owner}, which runs the study in {self.directory}, has not answered for "
                    f"{duration(PATIENCE_SECONDS)}; it may still do so"
                )
            time.sleep(seconds)
            seconds = min(1.2 * seconds, _MOST_MASTER_POLL_SECONDS)

    def _seen(self) -> FollowedStudy:
        with self.guard:
            return self.state.seen()

    def _try_lock(self, wait: Wait) -> MasterLock | None:
        """Return the study's lock; None if another program has it for its moment.

        Raises:
            MasterRunsError: A master runs the study.
            StudyLockedError: The others take too long.
        """
        lock = tried(self.directory, wait.give_up_at, is_brief=True)
        if lock is None:
            self._try_at = _later(wait.seconds)
            wait.seconds = min(2 * wait.seconds, _MOST_TRY_SECONDS)
            wait.try_at = max(wait.try_at, _later(_OVERDUE_SECONDS))
        return lock


def _later(seconds: float) -> float:
    """Return a moment after some seconds, which is not the same for all that wait."""
    return time.monotonic() + random.uniform(seconds, 2 * seconds)  # noqa: S311


def _asks(call: Call) -> bool:
    return isinstance(call.event, WorkerJoined)


def _pending(study: FollowedStudy, calls: Mapping[str, Event]) -> dict[str, Event]:
    """Return the events that have no answer yet, and those that ask a master for a trial."""
    pending = {}
    for name, event in calls.items():
        refused = study.refusals.get(name)
        waits = isinstance(event, WorkerJoined) and study.has_yet_to_get(event.worker)
        if refused is None or (not refused and waits):
            pending[name] = event
    return pending
