"""A study that programs ask for trials: each call holds the study's lock for its moment."""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.attempt import Attempt, AttemptId, Cause, Ending, Halt, Outcome, Report
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
from ..master.programs import follows, past_leases, program, without_trial
from ..master.recovery import discard_journals, recovered
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
from ..storage.ledger import Ledger, LedgerReader, StudyFacts
from ..storage.ledger.codec import encode_event
from ..storage.lock import MOMENT_SECONDS, MasterLock
from ..storage.whose import Use
from ..text import duration, plural
from ..user_code.model_file import Found
from .followed import FollowedStudy, SeenStudy
from .places import AskersPlaces, check_settings, stored_code

PATIENCE_SECONDS = 600.0
"""How long a call waits for those of other programs, which may be many, and get their turns by
chance."""

_GONE = "its process ended without a result"

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
        self._latest: SeenStudy | None = None
        self._known_as: object = None
        self._known_master = ""
        self._of_master: tuple[SeenStudy, int] | None = None

    @property
    def finish(self) -> Finish | None:
        """How the study has ended, as of the last call; None if it has not."""
        return None if self._latest is None else self._latest.finish

    # --- calls ------------------------------------------------------------------------------

    def open(self, changes: Changes, found: Found | None = None) -> None:
        """Open the study for programs, unless it is open and nothing changes.

        One that has ended before all its trials were over continues. One that a master runs is
        open if nothing changes.

        Args:
            changes: What is to be otherwise than before.
            found: What is declared now; None for what the study has.

        Raises:
            UsageError: The study cannot be changed so.
            StudyError: A master runs the study and something changes, or it cannot be written.
        """
        with self._guard:
            try:
                with self.locked() as lock:
                    self._latest = self._open(self._caught_up(lock), lock, changes, found)
            except MasterRunsError:
                self._latest = study = self._seen()
                if not _is_same(_plan(study, changes, found), study):
                    raise

    def ask(self, count: int, *, lease_seconds: float) -> list[GivenTrial]:
        """Return trials; fewer than asked for if there are no more.

        Raises:
            StudyOverError: The study has no more.
            NoTrialError: None is free now.
        """
        programs = [program(lease_seconds) for _ in range(count)]
        study = self._call(programs)
        starts = [study.starts[each.worker] for each in programs if each.worker in study.starts]
        if not starts:
            raise _no_trial(study)
        space, epochs = study.search.space, study.engine.epochs
        return [GivenTrial(start, space, epochs) for start in starts]

    def report(self, name: AttemptId, report: Report) -> Halt | None:
        """Record a report, which renews the lease; return why the trial is to stop, if it is.

        Raises:
            TrialOverError: The attempt is over.
        """
        study = self._call([Reported(time.time(), name, report)])
        leased = self._running(study, name)
        return leased.halt if leased.is_told else None

    def declare(self, used: ParametersUsed) -> None:
        """Record hyperparameters that a trial has used, or has not, beyond what was suggested."""
        self._call([used])

    def end(self, name: AttemptId, ending: Ending, used: ParametersUsed | None = None) -> Trial:
        """End an attempt; return the trial as it is then.

        Args:
            name: The attempt.
            ending: How it ends.
            used: What it has used; None for what was suggested.

        Raises:
            TrialOverError: It is over already; nothing has changed.
        """
        ended = AttemptEnded(time.time(), name, ending)
        study = self._call([ended] if used is None else [used, ended])
        return _trial(study, name.trial)

    def enlarge(self, count: int, points: Sequence[Mapping[str, object]] = ()) -> None:
        """Let the study have this many trials more than it has begun, among them the points.

        Other programs may do so at the same moment: its total never becomes less. One that is being
        stopped stays as it is.
        """
        with self._guard, self.locked() as lock:
            study = self._caught_up(lock)
            if study.engine.is_stopping and study.finish is None:
                return
            total = max(study.past.settings.budget_trials or 0, study.past.suggested + count)
            settings = {"trials": total} | ({"start_points": points} if points else {})
            self._latest = self._open(study, lock, Changes(settings=settings), None)

    def end_gone(self, *, lease_seconds: float) -> None:
        """End attempts under this lease whose processes, of this machine, are gone.

        Those of `hptune ask`, which is gone at once, have another lease.
        """
        gone = [
            AttemptEnded(time.time(), each.attempt.id, Ending(Cause.WORKER_LOST, reason=_GONE))
            for each in self._call([]).engine.leased.values()
            if each.lease_seconds == lease_seconds and _is_gone(each.attempt)
        ]
        with contextlib.suppress(TrialOverError):  # another process has ended it
            self._call(gone)

    def stop(self, reason: str) -> bool:
        """Stop the study if programs have it open: they stop at their next reports.

        Returns:
            Whether they had.
        """
        with self._guard, self.locked() as lock:
            study = self._caught_up(lock)
            if not study.is_open or study.finish is not None:
                return False
            if not study.engine.is_stopping:
                with self._recorded(study):
                    study.happen(StopRequested(study.now(), FinishReason.INTERRUPTED, reason))
            return True

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
        study = self._call([])
        trial = _trial(study, number)
        last = max(0, trial.attempts - 1)
        name = AttemptId(number, last if attempt is None else attempt)
        return self._running(study, name), trial

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
            is_leased = any(each.trial == trial.number for each in study.engine.leased)
            other = "another program" if is_leased else "a worker of the master"
            return f"{ended}; {other} has trial {trial.number} now"
        return f"{ended}; the next program that asks gets trial {trial.number}"

    # --- the moment of a call ---------------------------------------------------------------

    def _call(self, events: Sequence[Event]) -> SeenStudy:
        """Let the events of a call happen, and return the study after them.

        They happen under this process's lock, or by the master that runs the study. A master writes
        its answer in the transaction of what happens, so that a program which finds none, as the
        master has ended, may send them again.

        Raises:
            StudyError: The study refuses one of them.
        """
        requests = {secrets.token_hex(8): each for each in events}
        asked_of = ""
        with self._guard:
            while True:
                try:
                    with self.locked() as lock:
                        self._latest = self._by_lock(lock, requests)
                        return self._latest
                except MasterRunsError as beside:
                    self._latest = study = self._seen()
                    if beside.owner.token != asked_of:
                        self._send(self._pending(study, requests), beside.owner)
                        asked_of = beside.owner.token
                    if self._has_answered(beside.owner, requests):
                        return self._latest

    def _by_lock(self, lock: MasterLock, requests: Mapping[str, Event]) -> SeenStudy:
        study = self._caught_up(lock)
        events = list(self._pending(study, requests).values())
        if not events:
            return study
        asks = any(isinstance(each, WorkerJoined) for each in events)
        if asks and not study.is_open:
            if study.finish is None:
                study = self._open(study, lock, Changes(), None)
            if not study.is_open:
                return study  # it is over
        with self._recorded(study):
            if asks and study.finish is None:
                study.happen(*past_leases(study.engine, study.now()))
            elif not (study.is_open or study.is_closed):
                study.happen(StudyClosed(study.now()))  # nothing starts on the last one's workers
            study.stop_if_due()  # before a report, whose answer has the order to stop
            for event in events:
                try:
                    new = follows(study.engine, event, study.now())
                except StudyError as error:
                    raise self._refused(study, event, error) from None
                study.happen(*new)
            study.happen(*without_trial(study.engine, study.now()))
        return study

    @contextlib.contextmanager
    def _recorded(self, study: FollowedStudy) -> Iterator[None]:
        """Record what happens within the context, all of it or nothing."""
        try:
            yield
            if study.new:
                study.record()
        except BaseException:
            if study.new:  # it knows what the ledger does not
                self._study = None
            raise

    def _pending(self, study: SeenStudy, requests: Mapping[str, Event]) -> dict[str, Event]:
        """Return the requests that no master has answered.

        Raises:
            StudyError: It has refused one.
        """
        pending = {}
        for name, event in requests.items():
            refused = study.refusals.get(name)
            if refused:
                raise self._refused(study, event, StudyError(refused))
            waits = isinstance(event, WorkerJoined) and study.has_yet_to_get(event.worker)
            if refused is None or waits:
                pending[name] = event
        return pending

    def _refused(self, study: SeenStudy, event: Event, why: StudyError) -> StudyError:
        name = getattr(event, "attempt", None)
        if name is None or name in study.engine.leased:
            return StudyError(f"the study in {self.directory} refuses: {why.message}")
        return TrialOverError(f"{self._why_over(study, name)}. Nothing was changed")

    # --- beside a master --------------------------------------------------------------------

    def _send(self, requests: Mapping[str, Event], owner: LockOwner) -> None:
        for name, event in requests.items():
            request = new_request(UserAction.TRAIN, tool="a program")
            event_text = encode_event(event)
            self.directory.requests.append(
                replace(request, name=name, event=event_text, master=owner.token)
            )

    def _has_answered(self, owner: LockOwner, requests: Mapping[str, Event]) -> bool:
        """Wait for a master's answers; return whether they came, as it may end before."""
        give_up_at, seconds = time.monotonic() + PATIENCE_SECONDS, _MASTER_POLL_SECONDS
        while True:
            now = self.directory.owner()  # before the ledger, which an ending master may write
            self._latest = study = self._seen()
            if not self._pending(study, requests):
                return True
            if now is None or now.token != owner.token:
                return False
            if time.monotonic() > give_up_at:
                raise StudyLockedError(
                    f"{owner}, which runs the study in {self.directory}, has not answered for "
                    f"{duration(PATIENCE_SECONDS)}; it may still do so"
                )
            time.sleep(seconds)
            seconds = min(1.2 * seconds, _MOST_MASTER_POLL_SECONDS)

    def _seen(self) -> SeenStudy:
        """Return the study as its master has written it until now."""
        reader = LedgerReader(self.directory)
        seen, count = self._of_master or (None, 0)
        events = list(reader.events(after=count - 1))
        if seen is None or any(map(_opens_run, events)):
            self.directory.open(Use.RUN)
            seen = SeenStudy(*self._begun(reader.facts()))
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
        if owner is None or not owner.token or time.time() - owner.since <= MOMENT_SECONDS:
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
            study = FollowedStudy(ledger, *self._begun(ledger.facts))
            with replay_errors(self.directory):
                for event in ledger.events():
                    study.follow(event)
            study.engine.take_changes()
            ledger.check(study.engine.trials)
        except BaseException:
            ledger.close()
            raise
        return study

    def _begun(self, facts: StudyFacts) -> tuple[Past, FollowedSearch]:
        """Return a study and its search before its first event."""
        past = Past.begin(self.directory, facts)
        return past, FollowedSearch(stored_sampler(past.settings, past.facts))

    def _open(
        self, study: FollowedStudy, lock: MasterLock, changes: Changes, found: Found | None
    ) -> FollowedStudy:
        """Return the study, opened for programs; one that goes on is left so if nothing changes.

        One that has nothing left to do is not opened.
        """
        past = study.past
        with self._recorded(study):
            if not study.is_open:
                from ..master.run import refuse_second_master  # loads what runs trials

                refuse_second_master(self.directory)
                study.happen(*recovered(past, study.now()))
            plan = _plan(study, changes, found)
            if study.is_open and study.finish is None and _is_same(plan, study):
                return study
            request = resume_request(allowed_changes(changes, past), past)
            if (over := nothing_left(request, past)) is not None:
                study.finish = over[0]
                return study
            study.happen(plan.opened(at=study.now(), without_master=True))
            study.record(plan.facts())
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


def _plan(study: SeenStudy, changes: Changes, found: Found | None) -> RunPlan:
    request = resume_request(allowed_changes(changes, study.past), study.past)
    return plan_resume(request, study.past, found or stored_code(study.past), AskersPlaces())


def _is_same(plan: RunPlan, study: SeenStudy) -> bool:
    """Return whether a plan changes nothing of a study."""
    if plan.settings != study.past.settings or plan.added or plan.retried:
        return False
    return plan.space == study.search.space


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


def _no_trial(study: SeenStudy) -> NoTrialError:
    """Return why there is no trial for a program that asks."""
    directory, finish = study.past.directory, study.finish
    if finish is not None:
        return StudyOverError(f"the study in {directory} is over: {finish.reason}")
    running, leased = len(study.engine.snapshot.running), len(study.engine.leased)
    others = f"other programs have {plural(leased, 'trial')}"
    if study.engine.is_stopping:
        still = f"other programs still have {plural(leased, 'trial')}"
        return NoTrialError(f"the study in {directory} stops; {still}")
    if study.engine.snapshot.paused_by:
        return NoTrialError(f"the study in {directory} is {study.engine.snapshot.stall_reason}")
    if running > leased:
        others += f", and the master's workers {running - leased}"
    return NoTrialError(
        f"no trial of {directory} is free now: {others}; ask again when one is told, or past its "
        "lease"
    )


def _trial(study: SeenStudy, number: int) -> Trial:
    if (trial := study.engine.trial(number)) is None:
        count = len(tuple(study.engine.trials))
        there = f"the trials are 0 to {count - 1}" if count else "none was asked for yet"
        raise UsageError(f"{study.past.directory} has no trial {number}; {there}")
    return trial


def _opens_run(event: Event) -> bool:
    return isinstance(event, StudyOpened)
