"""`LedgerReader`: the ledger for everyone but the master (status, report, dashboard, export)."""

from __future__ import annotations

import itertools
import math
import sqlite3
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ...core.attempt import MOST_COUNT, Attempt, AttemptId, Report, ReportedValue
from ...core.messages import (
    Event,
    StopRequested,
    StudyClosed,
    StudyOpened,
    UserRequested,
    WorkerJoined,
    WorkerLeft,
)
from ...core.trial import Direction, Goal, Trial, TrialState
from ...core.user_requests import UserAction
from ..directory import StudyDirectory
from .codec import checked_time, decode_event
from .database import check_pages, event_rows, one_state, read_events, read_facts, read_transaction
from .errors import DamagedError, damage_errors
from .facts import StudyFacts
from .rows import SELECT_ATTEMPTS, SELECT_REPORTS, SELECT_TRIALS, attempt_of, report_of, trial_of

_Row = TypeVar("_Row")
_Found = TypeVar("_Found")
_Open = Callable[[StudyDirectory], AbstractContextManager[sqlite3.Connection]]


@dataclass(frozen=True, slots=True)
class RunState:
    """The last run of a study, without its trials.

    Attributes:
        workers: How many workers have joined and not left since.
        paused_by: The user who paused the study; empty if it is not paused.
        notes: The notes and tags of all runs, in their order.
        stopping: What asked it to stop; None if nothing did.
        run_seconds: How long each run took, from its command's start to its last event, the first
            run first.
        last_event_at: When the last run's last event was, in seconds since the epoch; 0 for none.
        began_at: When the command of the last run was started; 0 if there was none.
        is_closed: Whether the next master has read what the last run left, and has yet to begin.
        without_master: Whether programs ask for its trials, and no master runs it.
    """

    workers: int
    paused_by: str
    notes: Sequence[UserRequested] = ()
    stopping: StopRequested | None = None
    run_seconds: Sequence[float] = ()
    last_event_at: float = 0.0
    began_at: float = 0.0
    is_closed: bool = False
    without_master: bool = False


class LedgerReader:
    """A reader of a study's ledger, which may be used while the master writes.

    Every call reads the present contents in one transaction, during which the master waits with a
    commit, and keeps nothing open; `snapshot` reads more than one thing of one state. May be used
    from any thread. Every call may raise these errors:

    Raises:
        NoStudyError: There is no study.
        StudyError: It is damaged, of another format, or kept locked by another program.
        StorageFullError: It may not be read; or an incomplete write must be undone, and this
            process may not write.
    """

    def __init__(
        self, directory: StudyDirectory, *, _connection: sqlite3.Connection | None = None
    ) -> None:
        self._directory = directory
        self._connection = _connection  # of a snapshot
        if _connection is None:
            directory.open()
            _twice(lambda: self._read(lambda connection: check_pages(connection, directory)))

    def snapshot(self, read: Callable[[LedgerReader], _Found]) -> _Found:
        """Return what a function reads with the reader that it is given, of one state of the study.

        The function may be called twice (see `_twice`).
        """

        def found(connection: sqlite3.Connection) -> _Found:
            return read(LedgerReader(self._directory, _connection=connection))

        return _twice(lambda: self._read(found, open_ledger=one_state))

    def _read(
        self, read: Callable[[sqlite3.Connection], _Found], *, open_ledger: _Open = read_transaction
    ) -> _Found:
        if self._connection is not None:
            return read(self._connection)
        with open_ledger(self._directory) as connection:
            return read(connection)

    def facts(self) -> StudyFacts:
        """Return the facts about the study as a whole, by name."""

        def facts(connection: sqlite3.Connection) -> StudyFacts:
            with damage_errors(self._directory):
                return read_facts(connection)

        return _twice(lambda: self._read(facts))

    def trials(self) -> list[Trial]:
        """Return every trial, by number."""
        return self._rows(f"{SELECT_TRIALS} ORDER BY number", read=trial_of)

    def trial(self, number: int) -> Trial | None:
        """Return one trial; None if there is no such number."""
        query = f"{SELECT_TRIALS} WHERE number = ?"
        return next(iter(self._of_trial(query, number, read=trial_of)), None)

    def attempts(self, trial: int | None = None) -> list[Attempt]:
        """Return every attempt, or those of one trial, by trial and number."""
        if trial is None:
            return self._rows(f"{SELECT_ATTEMPTS} ORDER BY trial, number", read=attempt_of)
        query = f"{SELECT_ATTEMPTS} WHERE trial = ? ORDER BY number"
        return self._of_trial(query, trial, read=attempt_of)

    def reports(self, trial: int | None = None) -> list[ReportedValue]:
        """Return every report, or those of one trial, in the order of their arrival."""
        if trial is None:
            return self._rows(f"{SELECT_REPORTS} ORDER BY rowid", read=_report_row)
        query = f"{SELECT_REPORTS} WHERE trial = ? ORDER BY rowid"
        return self._of_trial(query, trial, read=_report_row)

    def last_reports(self, states: Collection[TrialState]) -> dict[AttemptId, Report]:
        """Return the last report of each attempt, of the trials in these states."""
        marks = ", ".join("?" for _ in states)
        query = f"""
            WITH last AS (
                SELECT trial, attempt, max(step) AS step FROM reports
                WHERE trial IN (SELECT number FROM trials WHERE state IN ({marks}))
                GROUP BY trial, attempt
            )
            {SELECT_REPORTS} JOIN last USING (trial, attempt, step) ORDER BY reports.rowid
        """  # noqa: S608 - names of our own
        found: dict[AttemptId, Report] = {}
        for row in self._rows(query, *(state.value for state in states), read=_report_row):
            name = AttemptId(row.trial, row.attempt)
            before = found[name].metrics if name in found else {}
            found[name] = Report(row.step, {**before, row.metric: row.value})
        return found

    def best_by(self, step: int, *, goal: Goal) -> dict[int, float]:
        """Return the best value by a step of each trial that reached it, by number."""
        best = "max" if goal.direction is Direction.MAX else "min"
        query = f"""
            SELECT trial, {best}(CASE WHEN step <= ? THEN value END) AS best FROM reports
            WHERE metric = ? GROUP BY trial HAVING max(step) >= ? AND best IS NOT NULL
        """  # noqa: S608 - names of our own
        return dict(self._rows(query, step, goal.metric, step, read=_number_and_value))

    def reports_after(
        self, row: int, *, metric: str, most: int = 100_000
    ) -> tuple[list[ReportedValue], int]:
        """Return reports of a metric that arrived after a row, in order, and the last row read.

        Args:
            row: The row that an earlier call returned; 0 for the beginning.
            metric: The metric.
            most: How many rows are returned at most; a next call returns the others.
        """
        query = f"{SELECT_REPORTS} WHERE rowid > ? AND metric = ? ORDER BY rowid LIMIT ?"
        query = query.replace("SELECT", "SELECT rowid,", 1)
        found = self._rows(query, row, metric, most, read=_numbered_report)
        return [report for _, report in found], found[-1][0] if found else row

    def events(self, *, after: int = -1) -> Iterator[Event]:
        """Yield every event after the one of a number, also those added while the caller reads."""
        latest = after
        while rows := self._read(partial(event_rows, latest=latest)):
            for _, kind, payload in rows:
                yield decode_event(kind, payload)
            latest = rows[-1][0]

    def event_count(self) -> int:
        """Return the number of events; it grows with every change of trials and attempts."""
        ((last,),) = self._rows("SELECT coalesce(max(seq), -1) FROM events", read=tuple)
        return int(last) + 1

    def run_state(self) -> RunState:
        """Return what the events say of the last run, without its trials."""
        return self.snapshot(LedgerReader._run_state)

    def _run_state(self) -> RunState:
        joined: set[str] = set()
        paused_by, is_closed, without_master = "", False, False
        stopping: StopRequested | None = None
        notes: list[UserRequested] = []
        for event in self._events(_OF_RUN):
            match event:
                case StudyOpened():
                    paused_by = paused_by if event.keeps_pause else ""
                    joined, is_closed, stopping = set(), False, None
                    without_master = event.without_master
                case StopRequested():
                    stopping = event
                case StudyClosed():
                    is_closed = True
                case WorkerJoined():
                    joined.add(event.worker)
                case WorkerLeft():
                    joined.discard(event.worker)
                case UserRequested(action=UserAction.PAUSE, refused=""):
                    paused_by = event.by
                case UserRequested(action=UserAction.RESUME, refused=""):
                    paused_by = ""
                case UserRequested(action=UserAction.NOTE, refused=""):
                    notes.append(event)
                case _:
                    pass
        runs = self._runs()
        return RunState(len(joined), paused_by, notes, stopping, *runs, is_closed, without_master)

    def _runs(self) -> tuple[list[float], float, float]:
        """Return how long each run took, when the last event was, and when the last run began.

        Users' requests do not count, nor does what comes after `StudyClosed`: no master runs then.
        """
        query = "SELECT seq, time, kind FROM events WHERE kind IN (?, ?) ORDER BY seq"
        opened = self._rows(query, *_OPENING, read=lambda row: (*_number_and_time(row[:2]), row[2]))
        query = """
            SELECT seq, max(time) FROM (SELECT seq, time FROM events WHERE seq >= ? AND seq < ?
            AND kind != ? ORDER BY seq DESC LIMIT ?)
        """
        seconds, last, began = [], 0.0, 0.0
        for (seq, at, kind), (after, *_) in itertools.pairwise([*opened, (sys.maxsize, 0.0, "")]):
            if kind == StudyOpened.__name__:
                values, began = (seq, after, UserRequested.__name__, _LATE_EVENTS), at
                ((_, last),) = self._rows(query, *values, read=_number_and_time)
                seconds.append(last - began)
        # A clock that was put back takes no time.
        return [each for each in seconds if each > 0.0], last, began

    def user_requests(self) -> list[UserRequested]:
        """Return the answers to users' requests, in the order of the answers."""
        events = self._events((UserRequested,))
        return [event for event in events if isinstance(event, UserRequested)]

    def _events(self, kinds: Collection[type[Event]]) -> list[Event]:
        return self._read(lambda connection: list(read_events(connection, kinds)))

    def _of_trial(
        self, query: str, number: int, *, read: Callable[[tuple[Any, ...]], _Row]
    ) -> list[_Row]:
        """Return the rows of a trial; none for a number that no trial can have."""
        return self._rows(query, number, read=read) if 0 <= number <= MOST_COUNT else []

    def _rows(
        self, query: str, *values: object, read: Callable[[tuple[Any, ...]], _Row]
    ) -> list[_Row]:
        def decoded() -> list[_Row]:
            rows = self._read(lambda connection: connection.execute(query, values).fetchall())
            with damage_errors(self._directory):
                return [read(row) for row in rows]

        return _twice(decoded)


def _twice(read: Callable[[], _Found]) -> _Found:
    """Return what is read, again if the file seems to be damaged: it may just be replaced."""
    try:
        return read()
    except DamagedError:
        return read()


_OPENING = (StudyOpened.__name__, StudyClosed.__name__)
_LATE_EVENTS = 100
"""Events that may be later than one that was written after them."""

_OF_RUN = (StudyOpened, StudyClosed, StopRequested, WorkerJoined, WorkerLeft, UserRequested)


def _report_row(row: tuple[Any, ...]) -> ReportedValue:
    trial, attempt, step, metric, value, time = report_of(row)
    return ReportedValue(trial, attempt, step, metric, math.nan if value is None else value, time)


def _numbered_report(row: tuple[Any, ...]) -> tuple[int, ReportedValue]:
    return int(row[0]), _report_row(row[1:])


def _number_and_value(row: tuple[Any, ...]) -> tuple[int, float]:
    number, value = row
    return int(number), float(value)


def _number_and_time(row: tuple[Any, ...]) -> tuple[int, float]:
    number, at = _number_and_value(row)
    return number, checked_time(at)


class FollowedReports:
    """The reports of one metric, of which each is read once; for any number of threads."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self._rows: list[ReportedValue] = []
        self._last = 0
        self._lock = threading.Lock()

    def rows(self, reader: LedgerReader) -> Sequence[ReportedValue]:
        """Return all reports of the reader's study up to now, in the order of their arrival."""
        with self._lock:
            return reader.snapshot(self._up_to)

    def _up_to(self, now: LedgerReader) -> Sequence[ReportedValue]:
        while True:
            found, self._last = now.reports_after(self._last, metric=self.metric)
            if not found:
                return tuple(self._rows)
            self._rows += found
