"""A study that programs ask for trials: each call holds the study's lock for its moment."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ..core.attempt import Attempt, AttemptId, Cause, Ending, Halt, Outcome, Report
from ..core.engine.records import LeasedAttempt
from ..core.messages import (
    AttemptStarted,
    Event,
    Finish,
    FinishReason,
    ParametersUsed,
    Reported,
    Start,
    StopRequested,
    StudyOpened,
    WorkerJoined,
    WorkerLeaving,
    WorkerLeft,
)
from ..core.space.space import SearchSpace
from ..core.trial import Trial, TrialState
from ..errors import NoTrialError, StudyLockedError, StudyOverError, TrialOverError, UsageError
from ..master.followed_search import FollowedSearch, stored_sampler
from ..master.recovery import discard_journals
from ..master.resume_checks import Past, replay_errors
from ..master.resume_plan import (
    Changes,
    allowed_changes,
    nothing_left,
    plan_resume,
    resume_request,
)
from ..storage.directory import StudyDirectory
from ..storage.ledger import Ledger, LedgerReader
from ..storage.lock import MOMENT_SECONDS, MasterLock
from ..storage.whose import Use
from ..text import plural
from ..user_code.model_file import Found
from .followed import FollowedStudy
from .places import PLACE, AskersPlaces, check_settings, stored_code

T = TypeVar("T")

PATIENCE_SECONDS = 600.0
"""How long a call waits for those of other programs, which may be many, and get their turns by
chance."""

_GONE = "its process ended without a result"


@dataclass(frozen=True, slots=True)
class GivenTrial:
    """A trial that a program gets.

    Attributes:
        start: Its attempt and its configuration.
        space: The search space, with what trials have declared so far.
        epochs: The full training of a trial; None if unknown.
    """

    start: Start
    space: SearchSpace
    epochs: int | None


class Session:
    """The calls of this process on one study. Any thread may call.

    Args:
        directory: Where the study is.
    """

    def __init__(self, directory: StudyDirectory) -> None:
        self.directory = directory
        self._guard = threading.RLock()
        self._study: FollowedStudy | None = None
        self._known_as: object = None

    @property
    def finish(self) -> Finish | None:
        """How the study has ended, as of the last call; None if it has not."""
        return None if self._study is None else self._study.finish

    # --- calls ------------------------------------------------------------------------------

    def open(self, changes: Changes, found: Found | None = None) -> None:
        """Open the study for programs, unless it is open and nothing changes.

        One that has ended before all its trials were over continues.

        Args:
            changes: What is to be otherwise than before.
            found: What is declared now; None for what the study has.

        Raises:
            UsageError: The study cannot be changed so.
            StudyError: A master runs the study, or it cannot be written.
        """
        with self._guard, self.locked() as lock:
            self._open(self._caught_up(lock), lock, changes, found)

    def ask(self, count: int, *, lease_seconds: float) -> list[GivenTrial]:
        """Return trials; fewer than asked for if there are no more.

        Raises:
            StudyOverError: The study has no more.
            NoTrialError: None is free now.
        """

        def ask(study: FollowedStudy) -> tuple[list[GivenTrial], Exception]:
            study.end_what_is_over()
            starts: list[GivenTrial] = []
            while len(starts) < count and study.engine.has_trials:
                start = _given(study, lease_seconds)
                if start is None:
                    break
                starts.append(GivenTrial(start, study.search.space, study.engine.epochs))
            return starts, _no_trial(study)

        starts, otherwise = self._call(ask, opens=True)
        if not starts:
            raise otherwise
        return starts

    def report(self, name: AttemptId, report: Report) -> Halt | None:
        """Record a report, which renews the lease; return why the trial is to stop, if it is.

        Raises:
            TrialOverError: The attempt is over.
        """

        def record(study: FollowedStudy) -> Halt | None:
            self._running(study, name)
            study.stop_if_due()  # before the report, whose answer has the order to stop
            study.happen(Reported(study.now(), name, report))
            return self._running(study, name).halt

        return self._call(record)

    def declare(self, used: ParametersUsed) -> None:
        """Record hyperparameters that a trial has used beyond those that were suggested."""

        def record(study: FollowedStudy) -> None:
            self._running(study, used.attempt)
            study.happen(ParametersUsed(study.now(), used.attempt, used.declared, used.values))

        self._call(record)

    def end(self, name: AttemptId, ending: Ending, *, unused: tuple[str, ...] = ()) -> Trial:
        """End an attempt; return the trial as it is then.

        Raises:
            TrialOverError: It is over already; nothing has changed.
        """

        def end(study: FollowedStudy) -> Trial:
            attempt = self._running(study, name).attempt
            params = _trial(study, name.trial).params
            if unused:
                study.happen(ParametersUsed(study.now(), name, (), params, unused))
            study.end(attempt, ending)
            return _trial(study, name.trial)

        return self._call(end)

    def enlarge(self, count: int, points: Sequence[Mapping[str, object]] = ()) -> None:
        """Let the study have this many trials more than it has begun, among them the points.

        Other programs may do so at the same moment: its total never becomes less.
        """
        with self._guard, self.locked() as lock:
            study = self._caught_up(lock)
            total = max(study.past.settings.budget_trials or 0, study.past.suggested + count)
            settings = {"trials": total} | ({"start_points": points} if points else {})
            self._open(study, lock, Changes(settings=settings), None)

    def end_gone(self) -> None:
        """End the attempts of processes of this machine that were killed; others get the trials."""

        def end(study: FollowedStudy) -> None:
            for leased in study.engine.leased.values():
                if _is_gone(leased.attempt):
                    study.end(leased.attempt, Ending(Cause.WORKER_LOST, reason=_GONE))

        self._call(end)

    def stop(self, reason: str) -> bool:
        """Stop the study if programs have it open: they stop at their next reports.

        Returns:
            Whether they had.
        """

        def stop(study: FollowedStudy) -> bool:
            goes_on = study.is_open and study.finish is None
            if goes_on and not study.engine.is_stopping:
                study.happen(StopRequested(study.now(), FinishReason.INTERRUPTED, reason))
            return goes_on

        return self._call(stop)

    def was_lost(self, name: AttemptId) -> bool:
        """Return whether an attempt was ended without its program, as past its lease."""
        attempts = LedgerReader(self.directory).attempts()
        return any(each.id == name and each.outcome is Outcome.LOST for each in attempts)

    def running_attempt(self, number: int, attempt: int | None) -> tuple[LeasedAttempt, Trial]:
        """Return the attempt of a trial that a program has asked for.

        Args:
            number: The trial's number.
            attempt: The attempt's; None for the last one.

        Raises:
            UsageError: There is no such trial.
            TrialOverError: It does not run.
        """

        def find(study: FollowedStudy) -> tuple[LeasedAttempt, Trial]:
            trial = _trial(study, number)
            last = max(0, trial.attempts - 1)
            name = AttemptId(number, last if attempt is None else attempt)
            return self._running(study, name), trial

        return self._call(find)

    def _running(self, study: FollowedStudy, name: AttemptId) -> LeasedAttempt:
        """Return an attempt that a program has, and of which it may tell."""
        if (leased := study.engine.leased.get(name)) is not None:
            return leased
        raise TrialOverError(f"{self._why_over(study, name)}. Nothing was changed")

    def _why_over(self, study: FollowedStudy, name: AttemptId) -> str:
        trial = _trial(study, name.trial)
        if not study.is_open:
            return f"a master has run the study since attempt {name} was asked for, and ended it"
        if trial.state.is_final:
            value = "" if trial.value is None else f" with {trial.value:.6g}"
            return f"trial {trial.number} is {trial.state}{value} already; a trial is told once"
        attempts = {each.id: each.reason for each in LedgerReader(self.directory).attempts()}
        ended = f"attempt {name} is over: {attempts.get(name) or 'it was never asked for'}"
        if trial.state is TrialState.RUNNING:
            return f"{ended}; another program has trial {trial.number} now"
        return f"{ended}; the next program that asks gets trial {trial.number}"

    # --- the moment of a call ---------------------------------------------------------------

    def _call(self, act: Callable[[FollowedStudy], T], *, opens: bool = False) -> T:
        with self._guard, self.locked() as lock:
            study = self._caught_up(lock)
            if opens and not study.is_open:
                study = self._open(study, lock, Changes(), None)
            try:
                result = act(study)
                study.record()
            except BaseException:
                if study.new:  # it knows what the ledger does not
                    self._study = None
                raise
            return result

    @contextlib.contextmanager
    def locked(self) -> Iterator[MasterLock]:
        """Hold the study's lock; other programs have it for their moments only.

        Raises:
            StudyLockedError: A master runs the study, or the others take too long.
        """
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        look_at = time.monotonic() + MOMENT_SECONDS
        while True:
            try:
                lock = self.directory.acquire()
                break
            except StudyLockedError:
                if time.monotonic() > give_up_at:
                    raise
            if time.monotonic() > look_at:
                look_at += MOMENT_SECONDS
                self._refuse_beside_master()
            time.sleep(random.uniform(0.002, 0.03))  # noqa: S311 - so that all have their turn
        with lock:
            yield lock

    def _refuse_beside_master(self) -> None:
        """Raise an error if a master runs the study, and not another program for its moment."""
        owner = self.directory.owner()
        if owner is None or time.time() - owner.since <= MOMENT_SECONDS:
            return
        if not self.directory.has_ledger:
            return
        if not LedgerReader(self.directory).run_state().without_master:
            raise StudyLockedError(
                f"the study in {self.directory} is run by {owner}, and its trials go to that "
                "master's workers; programs can ask for trials when it has ended, or after "
                f"`hptune stop {self.directory}`"
            )

    def _caught_up(self, lock: MasterLock) -> FollowedStudy:
        """Return the study as the ledger has it now."""
        study, self._study = self._study, None  # if this is interrupted, it is read again
        known_as = self._identity(lock)
        if study is not None and known_as is not None and known_as == self._known_as:
            events = study.ledger.events_of_others(lock)
            if not any(map(_opens_run, events)):
                with replay_errors(self.directory):
                    for event in events:
                        study.follow(event)
                study.engine.take_changes()
                self._study = study
                return study
            study.ledger.close()
        self._study, self._known_as = self._read(lock), known_as
        return self._study

    def _identity(self, lock: MasterLock) -> object:
        """Return what the state of this process is of; None if it must be read again.

        A connection is of one thread of one process. Without locks of the file system, opening the
        ledger repairs what a killed program left.
        """
        if not lock.has_posix_lock:
            return None
        try:
            file = self.directory.database.stat()
        except OSError:
            return None
        return os.getpid(), threading.get_ident(), file.st_dev, file.st_ino

    def _read(self, lock: MasterLock) -> FollowedStudy:
        self.directory.open(Use.RUN)
        ledger = Ledger.open(self.directory, lock=lock)
        try:
            past = Past.begin(self.directory, ledger.facts)
            search = FollowedSearch(stored_sampler(past.settings, past.facts))
            study = FollowedStudy(ledger, past, search)
            with replay_errors(self.directory):
                for event in ledger.events():
                    study.follow(event)
            study.engine.take_changes()
            ledger.check(study.engine.trials)
        except BaseException:
            ledger.close()
            raise
        return study

    def _open(
        self, study: FollowedStudy, lock: MasterLock, changes: Changes, found: Found | None
    ) -> FollowedStudy:
        """Return the study, opened for programs; one that goes on is left so if nothing changes.

        One that has nothing left to do is not opened.
        """
        past = study.past
        try:
            if not study.is_open:
                from ..master.run import refuse_second_master  # loads what runs trials

                refuse_second_master(self.directory)
                study.recover()
            changes = allowed_changes(changes, past)
            request = resume_request(changes, past)
            plan = plan_resume(request, past, found or stored_code(past), AskersPlaces())
            is_same = plan.settings == past.settings and not (plan.added or plan.retried)
            goes_on = study.is_open and study.finish is None
            if goes_on and is_same and plan.space == study.search.space:
                return study
            if (over := nothing_left(request, past)) is not None:
                study.finish = over[0]
                study.record()
                return study
            study.happen(plan.opened(at=study.now(), without_master=True))
            study.record(plan.facts())
        except BaseException:
            if study.new:
                self._study = None
            raise
        discard_journals(self.directory)
        study.ledger.close()
        self._study = self._read(lock)
        return self._study


def open_again(directory: StudyDirectory, changes: Changes) -> str:
    """Open a study without code to programs, and return what the user is told.

    Raises:
        UsageError: It cannot be changed so.
    """
    directory.open(Use.RUN)
    check_settings(changes.settings)
    session = Session(directory)
    session.open(changes)
    if (finish := session.finish) is not None:
        return f"the study in {directory} is over: {finish.reason}; a larger --trials asks for more"
    return (
        f"the study in {directory} has no code that hptune could run. It is open: programs ask for "
        "its trials, by hptune.open_study in Python or by `hptune ask`"
    )


def _given(study: FollowedStudy, lease_seconds: float) -> Start | None:
    """Let a program join that takes one trial; return None if there is none for it."""
    now, host = study.now(), socket.gethostname()
    worker = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
    joined = WorkerJoined(now, worker, host, PLACE, lease_seconds=lease_seconds)
    start = next((each for each in study.happen(joined) if isinstance(each, Start)), None)
    if start is None:
        study.happen(WorkerLeft(now, worker, "there was no trial for it"))
        return None
    study.happen(AttemptStarted(now, start.attempt, os.getpid()))
    study.happen(WorkerLeaving(now, worker, "it has its trial"))
    return start


def _is_gone(attempt: Attempt) -> bool:
    """Return whether an attempt is of a process of this machine that does not exist any more."""
    pid = int(attempt.placement.worker.split("-")[-2])
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return attempt.node == socket.gethostname()
    except PermissionError:  # of another user
        pass
    return False


def _no_trial(study: FollowedStudy) -> NoTrialError:
    """Return why there is no trial for a program that asks."""
    directory, finish = study.past.directory, study.finish
    if finish is not None:
        return StudyOverError(f"the study in {directory} is over: {finish.reason}")
    others = plural(len(study.engine.leased), "trial")
    if study.engine.is_stopping:
        return NoTrialError(f"the study in {directory} stops; other programs still have {others}")
    return NoTrialError(
        f"no trial of {directory} is free now: other programs have {others}; ask again when one is "
        "told, or past its lease"
    )


def _trial(study: FollowedStudy, number: int) -> Trial:
    if (trial := study.engine.trial(number)) is None:
        count = len(tuple(study.engine.trials))
        there = f"the trials are 0 to {count - 1}" if count else "none was asked for yet"
        raise UsageError(f"{study.past.directory} has no trial {number}; {there}")
    return trial


def _opens_run(event: Event) -> bool:
    return isinstance(event, StudyOpened)
