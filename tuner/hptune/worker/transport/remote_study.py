"""`RemoteStudy`: a worker's half of the exchange of files with the master."""

from __future__ import annotations

import itertools
import logging
import shutil
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...core.attempt import AttemptId
from ...errors import DISK_FULL
from . import file_requests
from .file_requests import TRIES, FileRequests, FilesNotBrought
from .files import FileChanged, FileState, Piece, read_piece, words_of
from .local_study import LocalStudy
from .notices import Change, Changes, FileNotice, FilesChanged

logger = logging.getLogger(__name__)

LOG_SECONDS = 5.0
"""Seconds between two parts of a log, of which readers need not have each line at once."""

_MOST_CHANGES = 1000
"""Most files of one notice: Dask's scheduler keeps the last 1000 notices of a study in memory."""


@dataclass(frozen=True, slots=True)
class NotSent:
    """Why files of an attempt are not in the study's directory.

    Attributes:
        reason: Why, for the user.
        is_full: Whether the study's disk is full.
    """

    reason: str
    is_full: bool = False


@dataclass(slots=True)
class _Session:
    """A trial that attempts of this worker run.

    Attributes:
        number: Its number on this worker.
        users: The attempts (ranks of one) that use the trial's files here.
        ready: Set when its files are here, or could not be brought.
        failure: Why they could not.
        ending: Attempts that are over, and what to call when the study has their files.
        ticket: The number of the changes that the master takes now; None if it takes none.
        changes: Those changes.
        touched_at: When the master last did something for them.
        failures: How often in a row it could take none of them, since an attempt ended.
        not_sent: Why it could not the last time.
        retry_at: When it is asked again after a failure.
        is_abandoned: Whether the master is gone, so that it is asked no more.
        logs_at: When logs were last looked at.
    """

    number: int
    users: set[AttemptId] = field(default_factory=set)
    ready: threading.Event = field(default_factory=threading.Event)
    failure: FilesNotBrought | None = None
    ending: dict[AttemptId, Callable[[NotSent | None], object]] = field(default_factory=dict)
    ticket: int | None = None
    changes: Changes = field(default_factory=Changes)
    touched_at: float = 0.0
    failures: int = 0
    not_sent: NotSent | None = None
    retry_at: float = 0.0
    is_abandoned: bool = False
    logs_at: float = 0.0

    def fail(self, not_sent: NotSent) -> None:
        """Note that the master could not take the changes."""
        self.ticket = None
        self.failures += 1
        self.not_sent = not_sent
        self.retry_at = time.monotonic() + file_requests.LOOK_SECONDS


class RemoteStudy:
    """A worker's copy of a study, which is kept equal to the study's directory.

    A trace of one attempt::

        begin(3.1)            tell(FilesWanted(trial=3)); the master calls `put`, then `brought`
        ...                   tell(FilesChanged(trial=3, …)); it calls `read`, then `taken`
        finish(3.1, then)     the same until nothing is new; then(None)

    All methods may be called from any thread. `then` is called from a thread of this object.

    Args:
        path: A folder that exists and is this user's alone; `close` removes it.
        worker: The worker's address.
        limit_bytes: As for `LocalStudy`.
        tell: Sends a notice to the master; must not raise.
    """

    def __init__(
        self, path: Path, *, worker: str, limit_bytes: int, tell: Callable[[FileNotice], None]
    ) -> None:
        self.path = path
        self._heard_at = time.monotonic()
        self._local = LocalStudy(path, limit_bytes=limit_bytes)
        self._worker = worker
        self._tell = tell
        self._tickets = itertools.count(1)
        self._requests = FileRequests(path, worker=worker, tickets=self._tickets, tell=tell)
        self._sessions: dict[int, _Session] = {}
        self._lock = threading.RLock()
        self._look_now = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="hptune-files", daemon=True)
        self._thread.start()

    # --- called for attempts ------------------------------------------------------------------

    def fetch_code(self) -> None:
        """Wait until the user's code is here.

        Raises:
            FilesNotBrought: It cannot be brought here.
        """
        self._requests.fetch(None)

    def begin(self, attempt: AttemptId) -> None:
        """Wait until the files that an attempt continues from are here.

        Raises:
            FilesNotBrought: They cannot be brought here.
        """
        trial = attempt.trial
        with self._lock:
            if self._is_closed:
                raise FilesNotBrought("its worker has ended")
            is_first = trial not in self._sessions
            if is_first:
                self._sessions[trial] = _Session(next(self._tickets))
            session = self._sessions[trial]
            session.users.add(attempt)
        if is_first:
            try:
                self._local.begin(trial)
                if attempt.number:
                    self._requests.fetch(trial)
                    self._local.brought(trial)
            except FilesNotBrought as error:
                session.failure = error
            except OSError as error:
                session.failure = FilesNotBrought(words_of(error), is_full=error.errno in DISK_FULL)
            session.ready.set()
        session.ready.wait()
        if session.failure is not None:
            self._drop_users(trial, session, {attempt})
            raise session.failure

    def bring_no_more(self, attempt: AttemptId) -> None:
        """Have `begin` fail for an attempt that is told to stop while its files are brought."""
        self._requests.cancel(attempt.trial)

    def finish(self, attempt: AttemptId, then: Callable[[NotSent | None], object]) -> None:
        """Call `then` when the study has all files of an attempt that is over, or cannot have them.

        Args:
            attempt: The attempt, which has begun; its process is gone.
            then: Called with what is not sent; None if the study has all files.
        """
        with self._lock:
            session = self._sessions.get(attempt.trial)
            if session is not None:
                session.ending[attempt] = then
                # What could not be sent while the file changed, say, may be sent now.
                session.failures, session.retry_at = 0, 0.0
        if session is None:
            then(NotSent("its worker has ended"))
        self._look_now.set()

    def abandon(self, attempt: AttemptId) -> None:
        """Send nothing more of an attempt, because its master is gone."""
        with self._lock:
            session = self._sessions.get(attempt.trial)
            if session is not None:
                session.not_sent = NotSent("its master is gone")
                session.is_abandoned = True
                session.ticket = None
        self._look_now.set()

    @property
    def sends(self) -> bool:
        """Whether the master takes files now, or is to take the last ones of an attempt."""
        now = time.monotonic()
        with self._lock:
            return any(
                now - (self._heard_at if session.ticket is None else session.touched_at)
                < file_requests.SILENT_SECONDS
                for session in self._sessions.values()
                if session.ticket is not None or (session.ending and not session.is_abandoned)
            )

    def close(self) -> None:
        """End, and remove the copy. May be repeated."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._requests.close()
        self._look_now.set()
        self._thread.join()
        shutil.rmtree(self.path, ignore_errors=True)

    # --- called for the master ------------------------------------------------------------------

    def read(self, ticket: int, parts: Sequence[Change]) -> list[Piece | None]:
        """Return a piece of each of these files; None for one that has changed or is gone."""
        pieces: list[Piece | None] = []
        trial = self.touch(ticket)
        for part in parts:
            try:
                pieces.append(read_piece(self.path, part.state, part.offset))
            except (FileChanged, ValueError):
                pieces.append(None)
            except OSError as error:  # the trial has forbidden to read it, say
                logger.warning("%s is not sent: %s", part.state.path, error)
                pieces.append(None)
                if trial is not None:
                    self._local.skip(trial, part.state)
        return pieces

    def put(self, ticket: int, parts: Sequence[tuple[FileState, Piece]]) -> str:
        """Write the next piece of each of these files; return why that failed, or ""."""
        self.touch(ticket)
        return self._requests.put(ticket, parts)

    def brought(self, ticket: int, error: str) -> None:
        """Note that all wanted files are here, or why not."""
        self.heard()
        self._requests.brought(ticket, error)

    def taken(self, ticket: int, paths: Collection[str], not_sent: NotSent | None) -> None:
        """Note which of the files that had changed the study has, and why it lacks the others."""
        self.heard()
        with self._lock:
            found = next((i for i in self._sessions.items() if i[1].ticket == ticket), None)
            if found is None:
                return
            trial, session = found
            self._local.taken(trial, session.changes, paths)
            session.ticket = None
            wanted = session.changes.changed or session.changes.gone
            if not_sent is None and wanted and not paths:
                not_sent = NotSent("they change while they are read")
            if not_sent is not None and not paths:
                session.fail(not_sent)
            else:  # what is left is sent at once
                session.failures = 0
        self._look_now.set()

    def heard(self) -> None:
        """Note that the master is alive."""
        self._heard_at = time.monotonic()

    @property
    def silent_seconds(self) -> float:
        """Seconds since the master was last heard."""
        return time.monotonic() - self._heard_at

    def touch(self, ticket: int) -> int | None:
        """Note that the master works on a request; return the trial whose files it takes."""
        self.heard()
        self._requests.touch(ticket)
        with self._lock:
            for trial, session in self._sessions.items():
                if session.ticket == ticket:
                    session.touched_at = time.monotonic()
                    return trial
        return None

    # --- looking -----------------------------------------------------------------

    def _work(self) -> None:
        while not self._is_closed:
            self._look_now.wait(file_requests.LOOK_SECONDS)
            self._look_now.clear()
            with self._lock:
                sessions = [*self._sessions.items()]
            for trial, session in sessions:
                try:
                    self._look_at(trial, session)
                except Exception:
                    logger.exception("the files of trial %s could not be looked at", trial)

    def _look_at(self, trial: int, session: _Session) -> None:
        now = time.monotonic()
        with self._lock:
            if not session.ready.is_set() or session.failure is not None:
                return
            if session.ticket is not None:
                if now - session.touched_at < file_requests.SILENT_SECONDS:
                    return
                session.fail(NotSent("the master does not take them"))
            ending = dict(session.ending)
            is_last = bool(ending) and ending.keys() == session.users
        if ending and (session.is_abandoned or session.failures >= TRIES):
            self._end(trial, session, ending, session.not_sent)
            return
        if now < session.retry_at:
            return
        # Rank 0 writes the files, and its end counts, so they are sent before other ranks end.
        is_final = is_last or any(attempt.rank == 0 for attempt in ending)
        if ending and not is_final:
            self._end(trial, session, ending, None)
            return
        with_logs = is_last or now - session.logs_at >= LOG_SECONDS
        changes = self._local.look(trial, is_final=is_final, with_logs=with_logs)
        changes = replace(
            changes, changed=changes.changed[:_MOST_CHANGES], gone=changes.gone[:_MOST_CHANGES]
        )
        if with_logs:
            session.logs_at = now
        if not changes:
            if ending:
                self._end(trial, session, ending, None)
            return
        with self._lock:
            session.ticket, session.changes = next(self._tickets), changes
            session.touched_at = now
            notice = FilesChanged(self._worker, session.ticket, trial, changes, session.number)
        self._tell(notice)

    def _end(
        self,
        trial: int,
        session: _Session,
        ending: dict[AttemptId, Callable[[NotSent | None], object]],
        not_sent: NotSent | None,
    ) -> None:
        with self._lock:
            for attempt in ending:
                session.ending.pop(attempt, None)
        # First: the trial's next attempt may begin here as soon as this one's end is known.
        self._drop_users(trial, session, {*ending})
        for then in ending.values():
            then(not_sent)

    def _drop_users(self, trial: int, session: _Session, users: set[AttemptId]) -> None:
        with self._lock:
            session.users -= users
            if not session.users and self._sessions.get(trial) is session:
                del self._sessions[trial]
                self._local.forget(trial)
