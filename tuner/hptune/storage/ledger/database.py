"""The ledger's SQLite file: its tables, its settings, and the checks before it is used.

The settings are safe on NFS and Lustre: a rollback journal, because the write-ahead log needs
memory shared by all readers; no memory mapping; every commit on disk, including the removal of the
journal. Where the file system has no POSIX locks, or only those of each machine by itself, SQLite
locks with a directory, `study.db.lock`: a reader on another machine would else take the journal of
a commit for that of a dead master, and undo the commit.
"""

from __future__ import annotations

import contextlib
import shlex
import sqlite3
import stat
from collections.abc import Collection, Iterator
from pathlib import Path

from ...core.clock import polls
from ...core.messages import Event
from ...errors import StudyError
from ...files.access import exists, not_plain, read_part
from ...files.file_errors import storage_errors
from ..directory import StudyDirectory
from ..whose import is_mine
from .codec import decode_event, loads
from .errors import BUSY_SECONDS, damage_errors, damaged, dot_lock, sqlite_errors
from .facts import StudyFacts, facts_of

FORMAT = 4
"""The number of this ledger format. A study of any other format is refused.

It is raised when events change, and when the engine decides otherwise on the same events: replayed,
they would silently make another study.
"""

DEAD_DOT_LOCK_SECONDS = 10.0
"""Seconds after which an unchanged lock directory belongs to a killed process.

A reader holds it for some milliseconds.
"""

_EVENTS_PER_READ = 2_000
"""Events in one read transaction: some 10 ms, during which the master cannot commit."""

_MOST_BYTES_OF_A_CELL = 200_000_000
"""Longest text that is read. A file of some bytes could claim one of a gigabyte."""

_MOST_COPIED_BYTES = 1 << 30
"""Largest file that is copied into memory."""

_BESIDE = ("-journal", "-wal", "-shm")
"""Endings of the files that SQLite opens beside a database."""

_SUPER_JOURNAL_ENDS = bytes.fromhex("d9d505f920a163d7")
"""Last bytes of a journal that names a super-journal."""

_SCHEMA = """
CREATE TABLE study (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE trials (
    number INTEGER PRIMARY KEY, state TEXT NOT NULL, params TEXT NOT NULL, value REAL,
    step INTEGER, metrics TEXT NOT NULL, origin TEXT NOT NULL, epochs INTEGER, unused TEXT NOT NULL,
    attempts INTEGER NOT NULL, reason TEXT NOT NULL, detail TEXT NOT NULL);
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


def connect(path: Path, *, locks_work: bool, mode: str = "rw") -> sqlite3.Connection:
    """Open a database file with hptune's settings.

    Args:
        path: The file.
        locks_work: Whether its file system has POSIX locks.
        mode: "ro" to change nothing, "rw", or "rwc" to create the file if it does not exist.

    Raises:
        StudyError: SQLite would open or delete what is no file of hptune's.
        sqlite3.Error: It cannot be opened; wrap the call in `sqlite_errors`.
    """
    _check_files(path)
    options = f"mode={mode}"
    if not locks_work:
        options += "&vfs=unix-dotfile"
    # isolation_level=None: no implicit transactions; each is begun and ended by a statement.
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}", uri=True, timeout=BUSY_SECONDS, isolation_level=None
    )
    try:
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES_OF_A_CELL)
        # EXTRA also syncs the removal of the journal. Without it, a power cut right after a commit
        # could bring the journal back, which would undo the commit.
        for setting in (
            *("synchronous=EXTRA", "mmap_size=0", "temp_store=MEMORY"),
            *("trusted_schema=OFF", "cell_size_check=ON"),
        ):
            connection.execute(f"PRAGMA {setting}")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_files(database: Path) -> None:
    """Check the database and the files beside it that SQLite opens by their names.

    A journal may name a super-journal, which SQLite deletes when it has undone the commit: any file
    of this user's, if somebody else wrote the journal. hptune writes none, as it attaches nothing.
    """
    for path in (database, *(database.with_name(database.name + each) for each in _BESIDE)):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(mode):
            raise not_plain(path)
        if path.name.endswith(("-wal", "-shm")):
            raise _write_ahead(database)
        if path != database and _ending(path) == _SUPER_JOURNAL_ENDS:
            raise StudyError(
                f"{shlex.quote(str(path))} names another file, which SQLite would delete; a "
                "journal of hptune names none. Somebody else wrote it: delete it, and do not trust "
                "the study"
            )


def _ending(path: Path) -> bytes:
    """Return a journal's last 8 bytes."""
    with contextlib.suppress(FileNotFoundError):  # the commit was completed
        return read_part(path, begin=max(0, path.lstat().st_size - 8), most_bytes=8)
    return b""


def _write_ahead(database: Path) -> StudyError:
    place = shlex.quote(str(database))
    return StudyError(
        f"{place} has a write-ahead log, which hptune does not use, and which fails on network "
        f"file systems. Another program changed that: end it, then "
        f"`sqlite3 {place} 'PRAGMA journal_mode=DELETE'`"
    )


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables in an empty database."""
    for statement in _SCHEMA.split(";"):
        connection.execute(statement)


def check_format(connection: sqlite3.Connection, directory: StudyDirectory) -> None:
    """Check that the database is a study of this version's format.

    Its tables must be those of `create_tables`: a view in the place of one could have no end.

    Raises:
        StudyError: It is no study, or of another format.
    """
    rows = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    for kind, name, sql in rows:
        if kind not in ("table", "index") or str(sql).startswith("CREATE VIRTUAL"):
            raise damaged(directory, f"it has the {kind} {name}, and hptune makes none")
    if connection.execute("PRAGMA journal_mode").fetchone() == ("wal",):
        raise _write_ahead(directory.database)
    made = {_plain(str(sql)) for _, _, sql in rows}
    tables = [_plain(each) for each in _SCHEMA.split(";") if each.strip()]
    missing = [each for each in tables if each not in made]
    if tables[0] not in missing:
        _check_version(connection, directory)
    for each in missing:
        raise damaged(directory, f"its {' '.join(each.split()[1:3])} is not as hptune makes it")


def _plain(sql: str) -> str:
    return " ".join(sql.split())


def _check_version(connection: sqlite3.Connection, directory: StudyDirectory) -> None:
    query = "SELECT key, value FROM study WHERE key IN ('format', 'hptune_version')"
    rows = connection.execute(query).fetchall()
    with damage_errors(directory):
        facts = {key: loads(value) for key, value in rows}
    if (found := facts.get("format")) != FORMAT:
        writer = f"hptune {facts.get('hptune_version', 'of another version')}"
        if found == 1:
            writer = "a development version of hptune, whose package was called tuner"
        raise StudyError(
            f"the study in {directory} has ledger format {found} (written by {writer}), but "
            f"this hptune reads format {FORMAT} only. Use the hptune that wrote it, or begin a new "
            "study in another directory"
        )


@contextlib.contextmanager
def read_transaction(directory: StudyDirectory) -> Iterator[sqlite3.Connection]:
    """Open a study's ledger and begin a transaction in which its contents do not change.

    The file is opened for writing only where nobody else may write, and then only because the first
    reader after a master's death in the middle of a write undoes that write.

    Raises:
        StudyError: It is damaged, of another format, or kept locked by another program.
        StorageFullError: It may not be read; or an incomplete write must be undone, and this
            process may not write.
    """
    with storage_errors(directory.path), sqlite_errors(directory):
        mode = "rw" if is_mine(directory.path) else "ro"
        locks_work = directory.locks_work()
        connection = connect(directory.database, locks_work=locks_work, mode=mode)
        with contextlib.closing(connection):
            connection.execute("PRAGMA query_only=ON")
            connection.execute("BEGIN")
            check_format(connection, directory)
            yield connection


@contextlib.contextmanager
def one_state(directory: StudyDirectory) -> Iterator[sqlite3.Connection]:
    """Return a connection to the contents that a ledger has now, for more than one read.

    They are copied into memory, so that the master waits for the copy only, and not for what is
    computed from it: of 20,000 trials, some 50 milliseconds instead of seconds.

    Raises:
        StudyError, StorageFullError: As for `read_transaction`.
    """
    with contextlib.ExitStack() as stack:
        with read_transaction(directory) as ledger:
            if directory.database.stat().st_size > _MOST_COPIED_BYTES:
                yield ledger
                return
            copied = sqlite3.connect(":memory:", isolation_level=None)
            stack.enter_context(contextlib.closing(copied))
            ledger.backup(copied)
        stack.enter_context(sqlite_errors(directory))
        yield copied


def check_pages(connection: sqlite3.Connection, directory: StudyDirectory) -> None:
    """Check the pages of a file that others may have written: they could lead in circles.

    Raises:
        StudyError: It is damaged.
    """
    if not is_mine(directory.path):
        ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
        if found != "ok":
            raise damaged(directory, found)


def remove_dead_dot_lock(database: Path) -> None:
    """Remove the lock directory that a killed process left.

    Only the master may call this: as no other process writes, a lock directory that stays unchanged
    belongs to no living process.
    """
    lock = dot_lock(database)
    with contextlib.suppress(FileNotFoundError):
        first = lock.stat()
        for _ in polls(DEAD_DOT_LOCK_SECONDS, 0.1):
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
        StudyError: As for `connect`.
        sqlite3.Error: It cannot be undone; wrap the call in `sqlite_errors`.
    """
    _check_files(database)
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


def read_facts(connection: sqlite3.Connection) -> StudyFacts:
    """Return the facts about the study as a whole, by name.

    Raises:
        Exception: One of them is not JSON, or is no such fact.
    """
    return facts_of(connection.execute("SELECT * FROM study"))


def read_events(
    connection: sqlite3.Connection, kinds: Collection[type[Event]] = (), *, after: int = -1
) -> Iterator[Event]:
    """Yield every event after the one of a number, or those of some kinds, in order.

    Several short reads keep the master from being blocked.
    """
    latest = after
    while rows := event_rows(connection, latest, kinds):
        for _, kind, payload in rows:
            yield decode_event(kind, payload)
        latest = rows[-1][0]


def event_rows(
    connection: sqlite3.Connection, latest: int, kinds: Collection[type[Event]] = ()
) -> list[tuple[int, str, str]]:
    """Return the number, kind and payload of some events after the one of a number, in order."""
    names = [kind.__name__ for kind in kinds]
    chosen = f"AND kind IN ({', '.join('?' for _ in names)})" if names else ""
    query = f"SELECT seq, kind, payload FROM events WHERE seq > ? {chosen} ORDER BY seq LIMIT ?"  # noqa: S608 - question marks
    return connection.execute(query, (latest, *names, _EVENTS_PER_READ)).fetchall()
