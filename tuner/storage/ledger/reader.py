"""The ledger as everybody else sees it: status, report, dashboard, export."""

from __future__ import annotations

import contextlib
import math
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ...core.messages import Event
from ...core.trial import Attempt, Trial
from ..directory import StudyDirectory
from .database import (
    SELECT_REPORTS,
    SELECT_TRIALS,
    attempt_of,
    check_schema,
    connect,
    read_events,
    read_facts,
    select_attempts,
    sqlite_errors,
    trial_of,
)


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One metric of one report.

    Attributes:
        trial: The trial's number.
        attempt: The attempt's number within the trial.
        step: Epochs done, or whatever the objective counts.
        metric: The metric's name.
        value: Its value; NaN where the table has NULL.
        time: When the master learned of it, in seconds since the epoch.
    """

    trial: int
    attempt: int
    step: int
    metric: str
    value: float
    time: float


class LedgerReader:
    """Reads a study's ledger, also while its master writes.

    Every call reads what is there at that moment, in one short transaction of its own, and holds
    nothing open in between. If the master was killed in the middle of a write, the first reader
    undoes that half write; for this alone is the file opened for writing. May be used from any
    thread. Every call raises what making a reader raises.

    Args:
        directory: The study's directory.

    Raises:
        NoStudyError: There is no study.
        StudyError: It is damaged, written by a newer hptune, or kept locked by another program.
        StorageFullError: It may not be read, or a killed master's half write must be undone by
            somebody who may write.
    """

    def __init__(self, directory: StudyDirectory) -> None:
        self._directory = directory.open()
        with self._reading() as connection:
            check_schema(connection, directory)

    def facts(self) -> dict[str, Any]:
        """What is known of the study as a whole."""
        with self._reading() as connection:
            return read_facts(connection)

    def trials(self) -> list[Trial]:
        """Every trial, by number."""
        return [trial_of(row) for row in self._trial_rows("ORDER BY number")]

    def trial(self, number: int) -> Trial | None:
        """One trial; None if there is no such number."""
        rows = self._trial_rows("WHERE number = ?", number)
        return trial_of(rows[0]) if rows else None

    def attempts(self, trial: int | None = None) -> list[Attempt]:
        """Every attempt, or those of one trial, by trial and number."""
        with self._reading() as connection:
            query, values = _of(select_attempts(connection), trial, "ORDER BY trial, number")
            rows = connection.execute(query, values).fetchall()
        return [attempt_of(row) for row in rows]

    def reports(self, trial: int | None = None) -> list[ReportRow]:
        """Every report, or those of one trial, in the order in which they came."""
        query, values = _of(SELECT_REPORTS, trial, "ORDER BY rowid")
        return [
            ReportRow(of, attempt, step, metric, math.nan if value is None else value, time)
            for of, attempt, step, metric, value, time in self._rows(query, *values)
        ]

    def events(self) -> Iterator[Event]:
        """Every event in order, those included that come while the caller reads."""
        with self._reading() as connection:
            yield from read_events(connection)

    def _trial_rows(self, condition: str, *values: object) -> list[tuple[Any, ...]]:
        return self._rows(f"{SELECT_TRIALS} {condition}", *values)

    def _rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            return connection.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with (
            sqlite_errors(self._directory),
            contextlib.closing(
                connect(self._directory.database, locks_work=self._directory.locks_work())
            ) as connection,
        ):
            connection.execute("PRAGMA query_only=ON")
            yield connection


def _of(select: str, trial: int | None, order: str) -> tuple[str, tuple[int, ...]]:
    """The query for all rows, or for those of one trial, and its values."""
    if trial is None:
        return f"{select} {order}", ()
    return f"{select} WHERE trial = ? {order}", (trial,)
