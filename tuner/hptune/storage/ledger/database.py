"""The ledger's SQLite file: its tables, its settings and its errors.

The settings are safe on NFS and Lustre: a rollback journal, because the write-ahead log needs
memory shared by all readers; no memory mapping; every commit on disk, including the removal of the
journal. Where the file system has no POSIX locks, or only those of each machine by itself, SQLite
locks with a directory, `study.db.lock`: a reader on another machine would else take the journal of
a commit for that of a dead master, and undo the commit.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from ...core.messages import Event
from ...errors import StudyError
from ...files.access import exists
from ...files.file_errors import is_removed, removed, storage_full
from ..directory import StudyDirectory
from .codec import decode_event
from .facts import StudyFacts, facts_of

FORMAT = 3
"""The number of this ledger format. A study of any other format is refused."""

BUSY_SECONDS = 30.0
"""Seconds to wait for another process that reads or writes the file."""

DEAD_DOT_LOCK_SECONDS = 10.0
"""Seconds after which an unchanged lock directory belongs to a killed process.

A reader holds it for some milliseconds.
"""

_EVENTS_PER_READ = 2_000
"""Events in one read transaction: some 10 ms, during which the master cannot commit."""

_SCHEMA = """
CREATE TABLE study (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
    number INTEGER PRIMARY KEY, state TEXT NOT NULL, params TEXT NOT NULL, value REAL,
    step INTEGER, metrics TEXT NOT NULL, origin TEXT NOT NULL, attempts INTEGER NOT NULL,
    reason TEXT NOT NULL, detail TEXT NOT NULL);
CREATE TABLE attempts (
    trial INTEGER NOT NULL, number INTEGER NOT NULL, outcome TEXT, worker TEXT NOT NULL,
    node TEXT NOT NULL, devices TEXT NOT NULL, placed REAL NOT NULL, started REAL, ended REAL,
    reason TEXT NOT NULL, cause TEXT, peak_memory_bytes INTEGER, peak_gpu_memory_bytes INTEGER,
    cpu_seconds REAL, seconds REAL, seconds_per_step REAL, starved_seconds REAL,
    PRIMARY KEY (trial, number)) WITHOUT ROWID;
CREATE TABLE reports (
    trial INTEGER NOT NULL, attempt INTEGER NOT NULL, step INTEGER NOT NULL, metric TEXT NOT NULL,
    value REAL, time REAL NOT NULL);
CREATE INDEX reports_of_a_trial ON reports (trial);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, time REAL NOT NULL, kind TEXT NOT NULL, payload TEXT NOT NULL);
"""


def connect(path: Path, *, locks_work: bool, create: bool = False) -> sqlite3.Connection:
    """Open a database file with hptune's settings.

    Args:
        path: The file.
        locks_work: Whether its file system has POSIX locks.
        create: Whether to create the file if it does not exist.

    Raises:
        sqlite3.Error: It cannot be opened; wrap the call in `sqlite_errors`.
    """
    options = f"mode={'rwc' if create else 'rw'}"
    if not locks_work:
        options += "&vfs=unix-dotfile"
    # isolation_level=None: no implicit transactions; each is begun and ended by a statement.
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    try:
        # EXTRA also syncs the removal of the journal. Without it, a power cut right after a commit
        # could bring the journal back, which would undo the commit.
        for setting in ("synchronous=EXTRA", "mmap_size=0", "temp_store=MEMORY"):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty database."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)


def check_format(connection: sqlite3.Connection, directory: StudyDirectory) -> None:
    """Check that the database is a study of this version's format.

    Raises:
        StudyError: It is no study, or of another format.
    """
    facts = read_facts(connection)
    if (found := facts.get("format")) != FORMAT:
        writer = f"hptune {facts.get('hptune_version', 'of another version')}"
        if found == 1:
            writer = "a development version of hptune, whose package was called tuner"
        raise StudyError(
            f"the study in {directory} has ledger format {found} (written by {writer}), but "
            f"this hptune reads format {FORMAT} only. Use the hptune that wrote it, or begin a new "
            "study in another directory"
        )


def dot_lock(database: Path) -> Path:
    """Return the directory by which SQLite locks a file where there are no POSIX locks."""
    return database.with_name(f"{database.name}.lock")


def remove_dead_dot_lock(database: Path) -> None:
    """Remove the lock directory that a killed process left.

    Only the master may call this: as no other process writes, a lock directory that stays unchanged
    belongs to no living process.
    """
    lock = dot_lock(database)
    with contextlib.suppress(FileNotFoundError):
        first = lock.stat()
        deadline = time.monotonic() + DEAD_DOT_LOCK_SECONDS
        while time.monotonic() < deadline:
            time.sleep(0.1)
            now = lock.stat()
            if (now.st_ino, now.st_mtime_ns) != (first.st_ino, first.st_mtime_ns):
                return
        lock.rmdir()


def undo_unfinished_commit(database: Path) -> None:
    """Undo the commit in whose middle a killed master left the file, if there is one.

    With lock directories SQLite does not: the directory that it makes before it reads tells it that
    a living process writes, so it leaves the journal, and half of the commit, as they are. Only the
    master may call this.

    Raises:
        sqlite3.Error: It cannot be undone; wrap the call in `sqlite_errors`.
    """
    if not exists(database.with_name(f"{database.name}-journal")):
        return
    while True:
        remove_dead_dot_lock(database)
        try:
            dot_lock(database).mkdir()  # keeps readers away, as SQLite does
        except FileExistsError:
            continue
        break
    try:
        uri = f"{database.as_uri()}?mode=rw&vfs=unix-none"
        with contextlib.closing(sqlite3.connect(uri, uri=True)) as connection:
            connection.execute("PRAGMA synchronous=EXTRA")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    finally:
        dot_lock(database).rmdir()


@contextlib.contextmanager
def damage_errors(directory: StudyDirectory) -> Iterator[None]:
    """Turn what the contents of a damaged or edited ledger raise into one error.

    For code that only reads the contents and decodes them, whatever that raises.

    Raises:
        StudyError: The contents are damaged.
    """
    try:
        yield
    except (StudyError, OSError):
        raise
    except Exception as err:  # wrong types, missing keys, values that are not allowed, …
        raise damaged(directory, f"{type(err).__name__}: {err}") from err


def damaged(directory: StudyDirectory, found: str) -> StudyError:
    """Return the error for a file whose contents cannot be read."""
    return StudyError(
        f"the file study.db in {directory} is damaged or no study ({found[:200]}). Restore it from "
        "a backup; `sqlite3 study.db .recover` shows what can be saved"
    )


@contextlib.contextmanager
def sqlite_errors(directory: StudyDirectory) -> Iterator[None]:
    """Turn SQLite's errors into hptune's.

    Raises:
        StorageFullError: No space, no quota, no permission, or the file system failed.
        StudyError: The file is damaged or no study, another program keeps it locked, or the
            directory was removed or renamed.
    """
    try:
        yield
    except sqlite3.Error as err:
        code = getattr(err, "sqlite_errorcode", None)
        if code is None:
            if isinstance(err, sqlite3.OperationalError):  # a text that is not UTF-8
                raise damaged(directory, str(err)) from err
            raise  # a wrong call, not a wrong file
        # In the middle of a write, SQLite finds its journal gone, and tells of an I/O error.
        if code == sqlite3.SQLITE_READONLY_DBMOVED or is_removed(directory.path):
            raise removed(directory.path) from err
        if code == sqlite3.SQLITE_READONLY_ROLLBACK:
            raise StudyError(
                f"the master of {directory} was killed in the middle of a write, which only its "
                f"owner can undo. Have the owner run `hptune status {directory}` once"
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
                raise damaged(directory, str(err)) from err
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
                raise StudyError(
                    f"{held_by(directory)}, for {BUSY_SECONDS:.0f} seconds now. End it, then try "
                    "again"
                ) from err
        raise StudyError(
            f"the file study.db in {directory} cannot be used as a study ({err}). If another "
            "program changed it, restore it from a backup"
        ) from err


def is_busy(error: sqlite3.Error) -> bool:
    """Return whether another program has the file locked."""
    return error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def held_by(directory: StudyDirectory) -> str:
    """Return a clause that names the other programs that keep the file locked."""
    # Not by F_GETLK: to close the file again would drop the master's own locks on it.
    found = dict[str, str]()
    with contextlib.suppress(OSError):
        inode = str(directory.database.stat().st_ino)
        # 1: POSIX  ADVISORY  READ 4711 08:01:1234 1073741826 1073742335
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, kind, *_, pid, place, _, _ = line.split()
            if (kind, place.rpartition(":")[2]) == ("POSIX", inode) and pid != str(os.getpid()):
                found[pid] = Path(f"/proc/{pid}/comm").read_text().strip()
    programs = ", ".join(f"process {pid} ({name})" for pid, name in found.items())
    unknown = "another program (a database browser, a backup, a suspended `hptune`)"
    if dot_lock(directory.database).exists():
        unknown += ", or was by one that was killed (`hptune resume` then removes study.db.lock)"
    return f"{shlex.quote(str(directory.database))} is kept locked by {programs or unknown}"


def read_facts(connection: sqlite3.Connection) -> StudyFacts:
    """Return the facts about the study as a whole, by name.

    Raises:
        Exception: One of them is not JSON, or is no such fact.
    """
    return facts_of(connection.execute("SELECT * FROM study"))


def read_events(
    connection: sqlite3.Connection, kinds: Collection[type[Event]] = ()
) -> Iterator[Event]:
    """Yield every event, or those of some kinds, in order.

    Several short reads keep the master from being blocked.
    """
    latest, names = -1, [kind.__name__ for kind in kinds]
    chosen = f"AND kind IN ({', '.join('?' for _ in names)})" if names else ""
    while rows := connection.execute(
        f"SELECT seq, kind, payload FROM events WHERE seq > ? {chosen} ORDER BY seq LIMIT ?",  # noqa: S608 - question marks
        (latest, *names, _EVENTS_PER_READ),
    ).fetchall():
        for _, kind, payload in rows:
            yield decode_event(kind, payload)
        latest = rows[-1][0]
