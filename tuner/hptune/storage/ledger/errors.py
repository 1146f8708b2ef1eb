"""What SQLite and the decoding of a ledger raise, as errors of hptune."""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ...errors import StudyError
from ...files.file_errors import is_removed, removed, storage_full
from ..directory import StudyDirectory
from ..whose import Whose, access

BUSY_SECONDS = 30.0
"""Seconds to wait for another process that reads or writes the file."""


class DamagedError(StudyError):
    """The contents of a ledger cannot be read."""


@contextlib.contextmanager
def damage_errors(directory: StudyDirectory) -> Iterator[None]:
    """Turn what decoding the contents of a damaged or edited ledger raises into one error.

    Only for calls that decode: an error of what is computed from the contents is no damage.

    Raises:
        DamagedError: The contents are damaged.
    """
    try:
        yield
    except (StudyError, OSError, sqlite3.Error):
        raise
    except Exception as err:  # wrong types, missing keys, values that are not allowed, …
        raise damaged(directory, f"{type(err).__name__}: {err}") from err


def damaged(directory: StudyDirectory, found: str) -> DamagedError:
    """Return the error for a file whose contents cannot be read."""
    return DamagedError(
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
            raise _unfinished(directory) from err
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


def _unfinished(directory: StudyDirectory) -> StudyError:
    """Return the error for a commit that a killed master left, and that is not undone here."""
    found = f"the master of {directory} was killed in the middle of a write, which "
    if access(directory.path).whose in (Whose.GROUPS, Whose.EVERYBODYS):
        return StudyError(
            f"{found}is not undone here, as others may write there. First `chmod -R go-w "
            f"{directory}`, then `hptune status {directory}`; `hptune resume` undoes it too"
        )
    return StudyError(
        f"{found}only its owner can undo. Have the owner run `hptune status {directory}` once"
    )


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


def dot_lock(database: Path) -> Path:
    """Return the directory by which SQLite locks a file where there are no POSIX locks."""
    return database.with_name(f"{database.name}.lock")
