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
from dataclasses import dataclass, replace
from typing import TypeVar

from ..core.attempt import AttemptId, Ending, Halt, Outcome, Report
from ..core.engine.records import LeasedAttempt
from ..core.messages import (
    AttemptEnded,
    Event,
    Finish,
    FinishReason,
    ParametersUsed,
    Reported,
    Start,
    StopRequested,
    StudyClosed,
    StudyOpened,
    WorkerJoined,
)
from ..core.space.space import SearchSpace
from ..core.trial import Trial, TrialState
from ..core.user_requests import UserAction
from ..errors import (
    NoTrialError,
    StudyError,
    StudyLockedError,
    StudyOverError,
    TrialOverError,
    UsageError,
)
from ..master.followed_search import FollowedSearch, stored_sampler
from ..master.plan import RunPlan
from ..master.programs import ended, without_trial
from ..master.recovery import discard_journals
from ..master.resume_checks import Past, replay_errors
from ..master.resume_plan import (
    Changes,
    allowed_changes,
    nothing_left,
    plan_resume,
    resume_request,
)
from ..storage.asking import new_request
from ..storage.directory import StudyDirectory
from ..storage.lease import LockOwner
from ..storage.ledger import Ledger, LedgerReader
from ..storage.ledger.codec import encode_event
from ..storage.lock import MOMENT_SECONDS, MasterLock
from ..storage.whose import Use
from ..text import duration, plural
from ..user_code.model_file import Found
from .followed import FollowedStudy, SeenStudy
from .places import PLACE, AskersPlaces, check_settings, stored_code

T = TypeVar("T")

PATIENCE_SECONDS = 600.0
"""How long a call waits for those of other programs, which may be many, and get their turns by
chance."""


_MASTER_POLL_SECONDS = 0.02
_MOST_MASTER_POLL_SECONDS = 0.5
"""How often the ledger is read for a master's answer: at first, and then less and less."""


class MasterRunsError(StudyLockedError):
    """A master runs the study; it can let most calls happen, and refuses the others by this."""

    def __init__(self, directory: StudyDirectory, owner: LockOwner) -> None:
        super().__init__(
            f"the study in {directory} is run by {owner}, which alone can change what it does; do "
            f"so when it has ended, or after `hptune stop {directory}`"
        )
        self.owner = owner


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
        self._known_master = ""
        self._of_master: tuple[SeenStudy, int] | None = None

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
        with self._guard:
            try:
                with self.locked() as lock:
                    self._open(self._caught_up(lock), lock, changes, found)
            except MasterRunsError:
                study = self._seen()
                plan = _plan(study, changes, found)
                if not _is_same(plan, study):
                    raise

    def ask(self, count: int, *, lease_seconds: float) -> list[GivenTrial]:
        """Return trials; fewer than asked for if there are no more.

        Raises:
            StudyOverError: The study has no more.
            NoTrialError: None is free now.
        """
        programs = [_program(lease_seconds) for _ in range(count)]

        def ask(study: FollowedStudy) -> None:
            study.end_what_is_over()
            for each in programs:
                if each.worker in study.starts:
                    continue  # a master gave it before it ended
                if not study.engine.has_trials:
                    return
                study.happen(replace(each, at=study.now()))
                if each.worker not in study.starts:
                    study.happen(without_trial(study.now(), each.worker))
                    return

        def given(study: SeenStudy) -> list[GivenTrial]:
            starts = [study.starts[each.worker] for each in programs if each.worker in study.starts]
            if not starts:
                raise _no_trial(study)
            space, epochs = study.search.space, study.engine.epochs
            return [GivenTrial(start, space, epochs) for start in starts]

        return self._call(ask, given, programs, opens=True)

    def report(self, name: AttemptId, report: Report) -> Halt | None:
        """Record a report, which renews the lease; return why the trial is to stop, if it is.

        Raises:
            TrialOverError: The attempt is over.
        """

        def record(study: FollowedStudy) -> None:
            self._running(study, name)
            study.happen(Reported(study.now(), name, report))
            study.stop_if_due()

        def halt(study: SeenStudy) -> Halt | None:
            return self._running(study, name).halt

        return self._call(record, halt, [Reported(time.time(), name, report)])

    def declare(self, used: ParametersUsed) -> None:
        """Record hyperparameters that a trial has used beyond those that were suggested."""

        def record(study: FollowedStudy) -> None:
            self._running(study, used.attempt)
            study.happen(replace(event, at=study.now()))

        event = ParametersUsed(time.time(), used.attempt, used.declared, used.values)
        self._call(record, lambda _: None, [event])

    def end(self, name: AttemptId, ending: Ending, *, unused: tuple[str, ...] = ()) -> Trial:
        """End an attempt; return the trial as it is then.

        Raises:
            TrialOverError: It is over already; nothing has changed.
        """

        def end(study: FollowedStudy) -> None:
            attempt = self._running(study, name).attempt
            params = _trial(study, name.trial).params
            if unused:
                study.happen(ParametersUsed(study.now(), name, (), params, unused))
            study.happen(*ended(study.now(), attempt, ending))

        def told(study: SeenStudy) -> Trial:
            return _trial(study, name.trial)

        return self._call(end, told, [AttemptEnded(time.time(), name, ending)])

    def stop(self, reason: str) -> bool:
        """Stop the study if programs have it open: they stop at their next reports.

        Returns:
            Whether they had.
        """

        def goes_on(study: SeenStudy) -> bool:
            return study.is_open and study.finish is None

        def stop(study: FollowedStudy) -> bool:
            went_on = goes_on(study)
            if went_on and not study.engine.is_stopping:
                study.happen(StopRequested(study.now(), FinishReason.INTERRUPTED, reason))
            return went_on

        with self._guard, self.locked() as lock:
            return self._act(lock, stop)

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

        def find(study: SeenStudy) -> tuple[LeasedAttempt, Trial]:
            trial = _trial(study, number)
            last = max(0, trial.attempts - 1)
            name = AttemptId(number, last if attempt is None else attempt)
            return self._running(study, name), trial

        return self._call(lambda _: None, find)

    def _running(self, study: SeenStudy, name: AttemptId) -> LeasedAttempt:
        """Return an attempt that a program has, and of which it may tell."""
        if (leased := study.engine.leased.get(name)) is not None:
            return leased
        raise TrialOverError(f"{self._why_over(study, name)}. Nothing was changed")

    def _why_over(self, study: SeenStudy, name: AttemptId) -> str:
        trial = _trial(study, name.trial)
        if trial.state.is_final:
            value = "" if trial.value is None else f" with {trial.value:.6g}"
            return f"trial {trial.number} is {trial.state}{value} already; a trial is told once"
        attempts = {each.id: each.reason for each in LedgerReader(self.directory).attempts()}
        ended = f"attempt {name} is over: {attempts.get(name) or 'it was never asked for'}"
        if trial.state is TrialState.RUNNING:
            return f"{ended}; another program has trial {trial.number} now"
        return f"{ended}; the next program that asks gets trial {trial.number}"

    # --- the moment of a call ---------------------------------------------------------------

    def _call(
        self,
        act: Callable[[FollowedStudy], object],
        read: Callable[[SeenStudy], T],
        events: Sequence[Event] = (),
        *,
        opens: bool = False,
    ) -> T:
        """Let a call happen, under this process's lock or by the master that runs the study.

        Args:
            act: Lets its events happen.
            read: Returns its answer from the study after them; without events, at once.
            events: What a master is to let happen instead.
            opens: Whether the call opens a study that no master runs.
        """
        requests = {secrets.token_hex(8): each for each in events}

        def answer(lock: MasterLock) -> T:
            if not self._is_answered(self._caught_up(lock), requests):
                self._act(lock, act, opens=opens)
            assert self._study is not None, "it was caught up"
            return read(self._study)

        with self._guard:
            while True:
                try:
                    with self.locked() as lock:
                        return answer(lock)
                except MasterRunsError as beside:
                    study = self._answered_by(beside.owner, requests)
                    if study is not None:
                        return read(study)

    def _act(
        self, lock: MasterLock, act: Callable[[FollowedStudy], T], *, opens: bool = False
    ) -> T:
        study = self._caught_up(lock)
        if not study.is_open:
            if opens:
                study = self._open(study, lock, Changes(), None)
            else:
                study.happen(
                    StudyClosed(study.now())
                )  # nothing starts on the last master's workers
        try:
            result = act(study)
            study.record()
        except BaseException:
            if study.new:  # it knows what the ledger does not
                self._study = None
            raise
        return result

    # --- beside a master --------------------------------------------------------------------

    def _answered_by(self, owner: LockOwner, requests: Mapping[str, Event]) -> SeenStudy | None:
        """Ask the master; return the study with its answers, or None if it has ended before."""
        study = self._seen()
        for name, event in requests.items():
            if name not in study.refusals:
                request = new_request(UserAction.TRAIN, tool="a program", event=encode_event(event))
                self.directory.requests.append(replace(request, name=name))
        give_up_at, seconds = time.monotonic() + PATIENCE_SECONDS, _MASTER_POLL_SECONDS
        while not self._is_answered(study, requests):
            now = self.directory.owner()
            if now is None or now.token != owner.token:
                return None
            if time.monotonic() > give_up_at:
                raise StudyLockedError(
                    f"{owner}, which runs the study in {self.directory}, has not answered for "
                    f"{duration(PATIENCE_SECONDS)}; it may still do so"
                )
            time.sleep(seconds)
            seconds = min(1.2 * seconds, _MOST_MASTER_POLL_SECONDS)
            study = self._seen()
        return study

    def _is_answered(self, study: SeenStudy, requests: Mapping[str, Event]) -> bool:
        """Return whether a master has answered a call.

        Raises:
            StudyError: It has refused it.
        """
        for request, event in requests.items():
            if (refused := study.refusals.get(request)) is None:
                return False
            name = getattr(event, "attempt", None)
            if refused and name is not None:
                self._running(study, name)  # says why it is over
                raise StudyError(f"the study's master refused it: {refused}")
            if isinstance(event, WorkerJoined) and not refused:
                program = study.engine.workers.get(event.worker)
                if event.worker not in study.starts and program and program.is_there:
                    return False
        return bool(requests) or not study.is_open

    def _seen(self) -> SeenStudy:
        """Return the study as its master has written it until now."""
        reader = LedgerReader(self.directory)
        seen, count = self._of_master or (None, 0)
        events = list(reader.events(after=count - 1))
        if seen is None or any(map(_opens_run, events)):
            self.directory.open(Use.RUN)
            past = Past.begin(self.directory, reader.facts())
            seen = SeenStudy(past, FollowedSearch(stored_sampler(past.settings, past.facts)))
            events, count = list(reader.events()), 0
        self._of_master = None
        with replay_errors(self.directory):
            for event in events:
                seen.follow(event)
        seen.engine.take_changes()
        self._of_master = seen, count + len(events)
        return seen

    @contextlib.contextmanager
    def locked(self) -> Iterator[MasterLock]:
        """Hold the study's lock; other programs have it for their moments only.

        Raises:
            MasterRunsError: A master runs the study.
            StudyLockedError: The others take too long.
        """
        look_at = time.monotonic()
        give_up_at = look_at + PATIENCE_SECONDS
        while True:
            try:
                lock = self.directory.acquire()
                break
            except StudyLockedError:
                if time.monotonic() > give_up_at:
                    raise
            if time.monotonic() > look_at:
                look_at += MOMENT_SECONDS
                self._look_for_master()
            time.sleep(random.uniform(0.002, 0.03))  # noqa: S311 - so that all have their turn
        with lock:
            yield lock

    def _look_for_master(self) -> None:
        """Raise an error if a master runs the study, and not another program for its moment."""
        owner = self.directory.owner()
        if owner is None or time.time() - owner.since <= MOMENT_SECONDS:
            return
        if owner.token == self._known_master:
            raise MasterRunsError(self.directory, owner)
        if not self.directory.has_ledger:
            return
        if not LedgerReader(self.directory).run_state().without_master:
            self._known_master = owner.token
            raise MasterRunsError(self.directory, owner)

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
            plan = _plan(study, changes, found)
            if study.is_open and study.finish is None and _is_same(plan, study):
                return study
            request = resume_request(allowed_changes(changes, past), past)
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


def _program(lease_seconds: float) -> WorkerJoined:
    """Return that a program asks for one trial, as a worker with a name of its own."""
    host = socket.gethostname()
    worker = f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
    return WorkerJoined(time.time(), worker, host, PLACE, lease_seconds=lease_seconds)


def _plan(study: SeenStudy, changes: Changes, found: Found | None) -> RunPlan:
    request = resume_request(allowed_changes(changes, study.past), study.past)
    return plan_resume(request, study.past, found or stored_code(study.past), AskersPlaces())


def _is_same(plan: RunPlan, study: SeenStudy) -> bool:
    """Return whether a plan changes nothing of a study."""
    if plan.settings != study.past.settings or plan.added or plan.retried:
        return False
    return plan.space == study.search.space


def _no_trial(study: SeenStudy) -> NoTrialError:
    """Return why there is no trial for a program that asks."""
    directory, finish = study.past.directory, study.finish
    if finish is not None:
        return StudyOverError(f"the study in {directory} is over: {finish.reason}")
    others = plural(len(study.engine.snapshot.running), "trial")
    if study.engine.is_stopping:
        return NoTrialError(f"the study in {directory} stops; other programs still have {others}")
    return NoTrialError(
        f"no trial of {directory} is free now: other programs have {others}; ask again when one is "
        "told, or past its lease"
    )


def _trial(study: SeenStudy, number: int) -> Trial:
    if (trial := study.engine.trial(number)) is None:
        count = len(tuple(study.engine.trials))
        there = f"the trials are 0 to {count - 1}" if count else "none was asked for yet"
        raise UsageError(f"{study.past.directory} has no trial {number}; {there}")
    return trial


def _opens_run(event: Event) -> bool:
    return isinstance(event, StudyOpened)
