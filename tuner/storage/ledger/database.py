"""The ledger's SQLite file: its tables, how it is opened safely, and what its errors mean.

Safe on NFS and Lustre means: a rollback journal, because the write-ahead log needs memory that
all readers share; no memory mapping; every commit on disk, the journal's removal included; and
where the file system keeps no POSIX locks, SQLite's own lock directory `study.db.lock` instead.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ...core.messages import Event
from ...core.resources import Placement
from ...core.trial import Attempt, AttemptId, Cause, HeldBefore, Outcome, Trial, TrialState, Usage
from ...errors import StudyError
from ..directory import StudyDirectory, storage_full
from .codec import decode_event, dumps, loads

SCHEMA_VERSION = 4

BUSY_SECONDS = 30.0
"""How long to wait for another process that reads or writes at this moment."""

DEAD_DOT_LOCK_SECONDS = 10.0
"""A lock directory that stays the same for this long was left by a killed process."""

_EVENTS_PER_READ = 2_000

_SCHEMA = """
CREATE TABLE study (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
    number INTEGER PRIMARY KEY, state TEXT NOT NULL, params TEXT NOT NULL, value REAL,
    step INTEGER, metrics TEXT NOT NULL, origin TEXT NOT NULL, attempts INTEGER NOT NULL,
    reason TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE attempts (
    trial INTEGER NOT NULL, number INTEGER NOT NULL, outcome TEXT, worker TEXT NOT NULL,
    node TEXT NOT NULL, devices TEXT NOT NULL, placed REAL NOT NULL, started REAL, ended REAL,
    reason TEXT NOT NULL, peak_memory_bytes INTEGER, peak_gpu_memory_bytes INTEGER,
    cpu_seconds REAL, seconds REAL, seconds_per_step REAL, cause TEXT, starved_seconds REAL,
    PRIMARY KEY (trial, number)) WITHOUT ROWID;
CREATE TABLE reports (
    trial INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, metric TEXT NOT NULL,
    value REAL, time REAL NOT NULL);
CREATE INDEX reports_of_a_trial ON reports (trial);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL);
"""

SELECT_TRIALS = """SELECT number, state, params, value, step, metrics, origin, attempts, reason,
    detail FROM trials"""
_ATTEMPTS = """trial, number, outcome, worker, node, devices, placed, started, ended,
    reason"""
_USAGE = {
    "peak_memory_bytes": "INTEGER",
    "peak_gpu_memory_bytes": "INTEGER",
    "cpu_seconds": "REAL",
    "seconds": "REAL",
    "seconds_per_step": "REAL",
}
"""The columns of `attempts` that version 2 added."""
_ADDED = {**_USAGE, "cause": "TEXT", "starved_seconds": "REAL"}
"""Those that any later version than the first added, in their order."""
SELECT_REPORTS = "SELECT trial, attempt, step, metric, value, time FROM reports"


def connect(path: Path, *, locks_work: bool, create: bool = False) -> sqlite3.Connection:
    """Open a database file with hptune's settings.

    Raises:
        sqlite3.Error: It cannot be opened; wrap the call in `sqlite_errors`.
    """
    options = f"mode={'rwc' if create else 'rw'}"
    if not locks_work:
        options += "&vfs=unix-dotfile"
    # No implicit transactions: they are begun and ended by name.
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    try:
        # EXTRA is FULL plus the removal of the journal on disk: without it, a power cut right
        # after a commit could bring the journal back, and with it the time before the commit.
        for setting in ("synchronous=EXTRA", "mmap_size=0", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def create_tables(connection: sqlite3.Connection) -> None:
    """Make the tables of an empty database."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)


def check_schema(connection: sqlite3.Connection, directory: StudyDirectory) -> None:
    """See that this version of hptune can use the database.

    Raises:
        StudyError: It is no study, or a newer version wrote it.
    """
    facts = read_facts(connection)
    version = facts.get("schema_version")
    if not isinstance(version, int):
        raise StudyError(
            f"the file study.db in {directory} is a database, but holds no study of hptune. "
            "Name the study's own directory"
        )
    if version > SCHEMA_VERSION:
        writer = facts.get("hptune_version", "a newer version")
        raise StudyError(
            f"the study in {directory} was written by a newer hptune ({writer}): its tables are "
            f"of version {version}, and this hptune knows versions up to {SCHEMA_VERSION}. Use "
            "that version of hptune"
        )


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Add what an older version's tables lack. Only for the master, within a transaction."""
    if read_facts(connection)["schema_version"] >= SCHEMA_VERSION:
        return
    there = _columns(connection)
    for name, kind in _ADDED.items():
        if name not in there:
            connection.execute(f"ALTER TABLE attempts ADD COLUMN {name} {kind}")
    connection.execute(
        "UPDATE study SET value = ? WHERE key = 'schema_version'", (dumps(SCHEMA_VERSION),)
    )


def select_attempts(connection: sqlite3.Connection) -> str:
    """The query for rows of `attempt_of`; what an older version did not write is NULL."""
    there = _columns(connection)
    added = ", ".join(name if name in there else "NULL" for name in _ADDED)
    return f"SELECT {_ATTEMPTS}, {added} FROM attempts"  # noqa: S608 - names of our own


def _columns(connection: sqlite3.Connection) -> set[str]:
    return {row[1] for row in connection.execute("PRAGMA table_info(attempts)")}


def remove_dead_dot_lock(database: Path) -> None:
    """Remove the lock directory that a killed process left where locks do not work.

    Only for the master, who alone writes: a lock that lives longer is held by nobody, because
    reading takes moments.
    """
    lock = database.with_name(database.name + ".lock")
    with contextlib.suppress(FileNotFoundError):
        first = lock.stat()
        deadline = time.monotonic() + DEAD_DOT_LOCK_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.1)
            now = lock.stat()
            if (now.st_ino, now.st_mtime_ns) != (first.st_ino, first.st_mtime_ns):
                return
        lock.rmdir()


@contextlib.contextmanager
def sqlite_errors(directory: StudyDirectory) -> Iterator[None]:
    """Turn SQLite's errors into ours.

    Raises:
        StorageFullError: No room, no quota, no permission, or the file system failed.
        StudyError: The file is damaged or no study, or another program keeps it locked.
    """
    try:
        yield
    except sqlite3.Error as err:
        code = getattr(err, "sqlite_errorcode", None)
        if code is None:  # a wrong call, not a wrong file
            raise
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise StudyError(
                f"the master of the study in {directory} was killed in the middle of a write, and "
                "you may not write there, so the half write cannot be undone. Run `hptune status "
                f"{directory}` once as the study's owner"
            ) from err
        match code & 0xFF:
            case (
                sqlite3.SQLITE_FULL
                | sqlite3.SQLITE_IOERR
                | sqlite3.SQLITE_READONLY
                | sqlite3.SQLITE_PERM
                | sqlite3.SQLITE_CANTOPEN
            ):
                raise storage_full(directory.database, str(err)) from err
            case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
                raise StudyError(
                    f"the file study.db in {directory} is damaged, or is no study at all "
                    f"({err}). Restore it from a backup; what can be saved from it, "
                    "`sqlite3 study.db .recover` shows"
                ) from err
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
                raise StudyError(
                    f"the file study.db in {directory} was kept locked for {BUSY_SECONDS:.0f} "
                    "seconds by another program: most likely a database browser or a backup "
                    "that has it open, a suspended `hptune` command, or a node that died while "
                    "it read. End that program, then go on with `hptune resume "
                    f"{directory}`"
                ) from err
        raise StudyError(
            f"the file study.db in {directory} cannot be used as a study ({err}). If another "
            "program changed it, restore it from a backup"
        ) from err


# --- rows -----------------------------------------------------------------------------------


def read_facts(connection: sqlite3.Connection) -> dict[str, Any]:
    """What is known of the study as a whole."""
    return {key: loads(value) for key, value in connection.execute("SELECT * FROM study")}


def read_events(connection: sqlite3.Connection) -> Iterator[Event]:
    """Every event in order, in several short reads, so that a slow caller holds up no writer."""
    latest = -1
    while rows := connection.execute(
        "SELECT seq, kind, payload FROM events WHERE seq > ? ORDER BY seq LIMIT ?",
        (latest, _EVENTS_PER_READ),
    ).fetchall():
        for _, kind, payload in rows:
            yield decode_event(kind, payload)
        latest = rows[-1][0]


def text(value: str) -> str:
    """The text as SQLite takes it: file names that are not Unicode must not stop a study."""
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")


def trial_row(trial: Trial) -> tuple[object, ...]:
    """A trial as a row of `SELECT_TRIALS`."""
    return (
        trial.number,
        trial.state.value,
        dumps(dict(trial.params)),
        trial.value,
        trial.step,
        dumps(dict(trial.metrics)),
        text(trial.origin),
        trial.attempts,
        text(trial.reason),
        text(trial.detail),
    )


def trial_of(row: tuple[Any, ...]) -> Trial:
    """The trial of a row of `SELECT_TRIALS`."""
    number, state, params, value, step, metrics, origin, attempts, reason, detail = row
    return Trial(
        number=number,
        params=loads(params),
        origin=origin,
        state=TrialState(state),
        value=value,
        step=step,
        metrics=loads(metrics),
        attempts=attempts,
        reason=reason,
        detail=detail,
    )


def attempt_row(attempt: Attempt) -> tuple[object, ...]:
    """An attempt as a row of `select_attempts`."""
    placement = attempt.placement
    devices = {
        "cpus": list(placement.cpus),
        "gpus": list(placement.gpus),
        "memory_bytes": placement.memory_bytes,
        "gpu_share": placement.gpu_share,
        "gpu_memory_bytes": placement.gpu_memory_bytes,
        "cpu_share": placement.cpu_share,
        **({"why": text(attempt.why)} if attempt.why else {}),
        **({"before": asdict(attempt.before)} if attempt.before else {}),
    }
    return (
        attempt.id.trial,
        attempt.id.number,
        None if attempt.outcome is None else attempt.outcome.value,
        text(placement.worker),
        text(attempt.node),
        dumps(devices),
        attempt.placed_at,
        attempt.started_at,
        attempt.ended_at,
        text(attempt.reason),
        *(None if attempt.usage is None else getattr(attempt.usage, name) for name in _USAGE),
        None if attempt.cause is None else attempt.cause.value,
        None if attempt.usage is None else attempt.usage.starved_seconds,
    )


def attempt_of(row: tuple[Any, ...]) -> Attempt:
    """The attempt of a row of `select_attempts`."""
    trial, number, outcome, worker, node, devices, placed, started, ended, reason, *later = row
    *used, cause, starved = later
    held = loads(devices)
    return Attempt(
        id=AttemptId(trial, number),
        placement=Placement(
            worker=worker,
            cpus=tuple(held["cpus"]),
            gpus=tuple(held["gpus"]),
            memory_bytes=held["memory_bytes"],
            gpu_share=held.get("gpu_share", 1.0),
            gpu_memory_bytes=held.get("gpu_memory_bytes", 0),
            cpu_share=held.get("cpu_share", 1.0),
        ),
        node=node,
        placed_at=placed,
        started_at=started,
        ended_at=ended,
        outcome=None if outcome is None else Outcome(outcome),
        reason=reason,
        usage=_usage_of(used, starved_seconds=starved or 0.0),
        cause=None if cause is None else Cause(cause),
        why=held.get("why", ""),
        before=HeldBefore(**held["before"]) if "before" in held else None,
    )


def _usage_of(used: list[Any], *, starved_seconds: float) -> Usage | None:
    known = dict(zip(_USAGE, used, strict=True))
    if known["peak_memory_bytes"] is None:
        return None
    return Usage(**known, starved_seconds=starved_seconds)
