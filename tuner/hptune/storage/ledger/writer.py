"""`Ledger`: the ledger for its only writer, the master."""

from __future__ import annotations

import contextlib
import math
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from ...core.attempt import Attempt
from ...core.messages import Event, Reported
from ...core.trial import Trial
from ...errors import StudyError
from ...files.access import exists, sync_directory
from ...files.file_errors import storage_errors
from ..directory import StudyDirectory, study_exists
from ..lock import MasterLock, taken_over
from ..whose import Use
from .codec import dumps, encode_event
from .database import (
    FORMAT,
    check_format,
    connect,
    create_tables,
    read_events,
    read_facts,
    remove_dead_dot_lock,
    undo_unfinished_commit,
)
from .errors import BUSY_SECONDS, damage_errors, dot_lock, held_by, is_busy, sqlite_errors
from .facts import StudyFacts
from .rows import SELECT_TRIALS, attempt_row, text, trial_of, trial_row

_INSERT_EVENT = "INSERT INTO events VALUES (?, ?, ?, ?)"
_INSERT_REPORT = "INSERT INTO reports VALUES (?, ?, ?, ?, ?, ?)"
_UPSERT_TRIAL = "INSERT OR REPLACE INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPSERT_ATTEMPT = """INSERT OR REPLACE INTO attempts
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_UPSERT_FACT = "INSERT OR REPLACE INTO study VALUES (?, ?)"
_RETRY_SECONDS = 1.0
"""Time between two tries while another program keeps the file locked; signals are handled then."""

WhileLocked = Callable[[float, str], None]
"""Called about once a second while another program keeps the file locked.

Its arguments are the seconds that have passed, and a clause that names the program. It may raise.
"""


class Ledger:
    """The writer of a study's ledger; a context manager, made by `create` or `open`.

    Only the master may have one, while it holds the study's lock, and only the thread that
    opened it may use it. A call that fails changes nothing, and the ledger can be used again.

    The study's lock does not suffice: a person may delete its files, and a master that was
    suspended may not know yet that it lost its lease. So every transaction first checks that the
    lease names no other master, and that the last event is one that this writer knows. The next
    master takes the lease before it opens the ledger, so an event is either in its replay or
    refused.
    """

    def __init__(
        self,
        directory: StudyDirectory,
        connection: sqlite3.Connection,
        lock: MasterLock | None,
        while_locked: WhileLocked | None,
    ) -> None:
        self._directory = directory
        self._connection = connection
        self._lock = lock
        self._while_locked = while_locked
        self._count = self._counted()

    @classmethod
    def create(
        cls,
        directory: StudyDirectory,
        facts: Mapping[str, Any],
        *,
        lock: MasterLock | None = None,
        while_locked: WhileLocked | None = None,
    ) -> Self:
        """Create the ledger of a new study.

        Args:
            directory: A created directory whose lock the caller holds.
            facts: The facts about the study as a whole (`StudyFacts`); `format` is added.
            lock: As for `open`.
            while_locked: As for `open`.

        Raises:
            StudyExistsError: There is a ledger already.
            StorageFullError: There is no space, or writing is forbidden.
        """
        with storage_errors(directory.path):
            if exists(directory.database):
                raise study_exists(directory)
        # Created under another name, so that study.db is never incomplete.
        fresh = directory.database.with_name("study.db.new")
        rows = [(key, dumps(fact)) for key, fact in facts.items()]
        rows.append(("format", dumps(FORMAT)))
        with storage_errors(fresh), sqlite_errors(directory), _without_leftovers(fresh):
            with contextlib.closing(
                connect(fresh, locks_work=directory.locks_work(), mode="rwc")
            ) as connection:
                connection.execute("BEGIN IMMEDIATE")
                create_tables(connection)
                connection.executemany(_UPSERT_FACT, rows)
                connection.execute("COMMIT")
            fresh.rename(directory.database)
            sync_directory(directory.path)
        return cls.open(directory, lock=lock, while_locked=while_locked)

    @classmethod
    def open(
        cls,
        directory: StudyDirectory,
        *,
        lock: MasterLock | None = None,
        while_locked: WhileLocked | None = None,
    ) -> Self:
        """Open the ledger of an existing study.

        Args:
            directory: The study's directory, whose lock the caller holds.
            lock: The study's lock; None to check no lease, as in tests.
            while_locked: Called while a later write waits; None to raise after `BUSY_SECONDS`.

        Raises:
            NoStudyError: There is none.
            UsageError: Others may write to it, in a way that forbids this (see `storage.whose`).
            StudyError: It is damaged, no study, or of another format.
            StorageFullError: Writing is forbidden, or the file system fails.
        """
        directory.open(Use.WRITE)
        with contextlib.ExitStack() as stack:
            stack.enter_context(sqlite_errors(directory))
            if not (locks_work := directory.locks_work()):
                remove_dead_dot_lock(directory.database)
                undo_unfinished_commit(directory.database)
            connection = connect(directory.database, locks_work=locks_work)
            stack.callback(connection.close)
            check_format(connection, directory)
            connection.execute("PRAGMA journal_mode=DELETE")
            # A master that may not write here should fail now, not after the first epoch.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE study SET value = value")
            ledger = cls(directory, connection, lock, while_locked)
            connection.execute("COMMIT")
            stack.pop_all()
        return ledger

    def append(
        self,
        events: Sequence[Event],
        *,
        trials: Iterable[Trial] = (),
        attempts: Iterable[Attempt] = (),
        facts: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Store events, the rows that they changed and new facts in one transaction.

        All of it is on disk when this returns. The rows of `reports` follow from the `Reported`
        events. SQLite has no NaN, so a NaN is NULL in the tables; the events keep it.

        Raises:
            StorageFullError: There is no space, or writing is forbidden.
            StudyLockedError: Another master has written.
            StudyError: Another program keeps the file locked, or it is damaged or removed.
            TypeError: An event or a trial holds a value that is no plain data.
            OverflowError: A step does not fit 64 bits.
        """
        encoded = [(event.at, *encode_event(event)) for event in events]
        reports = [
            (name.trial, name.number, event.report.step, text(metric), value, event.at)
            for event in events
            if isinstance(event, Reported)
            for name in (event.attempt,)
            for metric, value in event.report.metrics.items()
        ]
        trial_rows = [trial_row(trial) for trial in trials]
        attempt_rows = [attempt_row(attempt) for attempt in attempts]
        facts_rows = [(key, dumps(value)) for key, value in facts.items()]
        if not (encoded or trial_rows or attempt_rows or facts_rows):
            return
        with self._transaction():
            self._connection.executemany(
                _INSERT_EVENT, [(seq, *row) for seq, row in enumerate(encoded, self._count)]
            )
            self._connection.executemany(_INSERT_REPORT, reports)
            self._connection.executemany(_UPSERT_TRIAL, trial_rows)
            self._connection.executemany(_UPSERT_ATTEMPT, attempt_rows)
            self._connection.executemany(_UPSERT_FACT, facts_rows)
        self._count += len(encoded)

    def events(self, *, after: int = -1) -> Iterator[Event]:
        """Yield every event after the one of a number, in order, for replay."""
        with sqlite_errors(self._directory):
            yield from read_events(self._connection, after=after)

    def use(self, lock: MasterLock) -> None:
        """Write under the study's lock, which the caller has taken again, after what others wrote.

        Args:
            lock: The lock.
        """
        self._lock = lock
        self._count = self.event_count()

    def event_count(self) -> int:
        """Return the number of events."""
        with damage_errors(self._directory), sqlite_errors(self._directory):
            return self._counted()

    def check(self, trials: Iterable[Trial]) -> None:
        """Check that replay produced the trials that are stored.

        They differ if another version of hptune decided differently than this one. To continue
        would then lose or repeat trials.

        Raises:
            StudyError: They differ.
        """
        with sqlite_errors(self._directory):
            rows = self._connection.execute(f"{SELECT_TRIALS} ORDER BY number").fetchall()
        with damage_errors(self._directory):
            found = [trial_of(row) for row in rows]
        written = _comparable(found)
        replayed = _comparable(trials)
        if written == replayed:
            return
        numbers = written.keys() | replayed.keys()
        differing = [
            number for number in sorted(numbers) if written.get(number) != replayed.get(number)
        ]
        first = differing[0]
        writer = read_facts(self._connection).get("hptune_version", "unknown")
        raise StudyError(
            f"{len(differing)} of {len(written)} trials differ after replay of {self._directory} "
            f"(written by hptune {writer}). The first is trial {first}, which "
            f"{_words(written.get(first))} in the ledger and {_words(replayed.get(first))} after "
            "replay. Nothing was changed. Use that hptune, or start a new study with --warm-start "
            f"{self._directory}"
        )

    @property
    def facts(self) -> StudyFacts:
        """The facts about the study as a whole, by name."""
        with damage_errors(self._directory), sqlite_errors(self._directory):
            return read_facts(self._connection)

    def set_facts(self, facts: Mapping[str, object]) -> None:
        """Replace some facts about the study as a whole in one transaction.

        Raises:
            StorageFullError, StudyLockedError, StudyError: As for `append`.
            TypeError: A value is no plain data.
        """
        self.append((), facts=facts)

    def close(self) -> None:
        """Close the file; may be repeated."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with sqlite_errors(self._directory):
            self._execute_when_free("BEGIN IMMEDIATE")
            try:
                if self._counted() != self._count:
                    raise taken_over(self._directory.path)
                if self._lock is not None:
                    self._lock.check()
                yield
                self._execute_when_free("COMMIT")
            except BaseException:
                # After some errors SQLite has already rolled back.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def _counted(self) -> int:
        found = self._connection.execute("SELECT coalesce(max(seq) + 1, 0) FROM events").fetchone()
        return int(found[0])

    def _execute_when_free(self, statement: str) -> None:
        """Execute a statement that waits until no other program has the file locked."""
        if self._while_locked is None:
            self._connection.execute(statement)
            return
        since = time.monotonic()
        self._wait_at_most(_RETRY_SECONDS)
        try:
            while True:
                try:
                    self._connection.execute(statement)
                except sqlite3.OperationalError as error:
                    if not is_busy(error):
                        raise
                else:
                    return
                if self._lock is not None:
                    self._lock.refresh()
                if not self._directory.locks_work():
                    remove_dead_dot_lock(self._directory.database)
                self._while_locked(time.monotonic() - since, held_by(self._directory))
        finally:
            self._wait_at_most(BUSY_SECONDS)

    def _wait_at_most(self, seconds: float) -> None:
        """Set how long a statement waits for other programs."""
        self._connection.execute(f"PRAGMA busy_timeout = {seconds * 1000:.0f}")


@contextlib.contextmanager
def _without_leftovers(database: Path) -> Iterator[None]:
    """Remove an incomplete database that an earlier master left, and that of this one."""

    def remove() -> None:
        for each in (database, database.with_name(f"{database.name}-journal")):
            each.unlink(missing_ok=True)
        with contextlib.suppress(FileNotFoundError):
            dot_lock(database).rmdir()

    remove()
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            remove()


_Comparable = tuple[str, int, float | None, int | None]


def _comparable(trials: Iterable[Trial]) -> dict[int, _Comparable]:
    """Return the state, the attempts, the value and the step of each trial, with None for NaN."""
    return {
        trial.number: (
            trial.state,
            trial.attempts,
            None if trial.value is None or math.isnan(trial.value) else trial.value,
            trial.step,
        )
        for trial in trials
    }


def _words(trial: _Comparable | None) -> str:
    if trial is None:
        return "does not exist"
    state, attempts, value, _ = trial
    result = "" if value is None else f" with {value:.6g}"
    return f"is {state.lower()}{result} after {attempts} attempt{'s' * (attempts != 1)}"
