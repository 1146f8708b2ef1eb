"""Checks of the study directory's file system: does it keep what is written, and locks?"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ..core.resources import size
from ..errors import StudyLockedError
from ..files.filesystem import mount_of
from ..storage.ledger.database import connect
from ..storage.lock import MasterLock, locks_work
from .findings import Finding, Subject, failed, passed, warned

FEW_BYTES = 5_000_000_000
"""Free space below which checkpoints and models may fill the disk."""
LEAST_BYTES = 200_000_000
"""Free space below which a study is not worth starting."""
SLOW_COMMIT_SECONDS = 0.1
"""Time of a commit above which a study's events wait noticeably."""

_ELSEWHERE = "keep studies on another file system (--study DIR)"
_PREFIX = ".hptune-doctor-"


@contextlib.contextmanager
def folder_for(subject: Subject) -> Iterator[Path]:
    """Provide a folder of the doctor's own where the study is, or would be.

    Raises:
        OSError: It cannot be made.
    """
    prefix = f"{_PREFIX}{subject.token}"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_place(subject)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean_up(subject: Subject) -> None:
    """Remove the folders that killed checks of this subject, which has a token, have left."""
    with contextlib.suppress(OSError):
        for folder in _place(subject).glob(f"{_PREFIX}{subject.token}*"):
            shutil.rmtree(folder, ignore_errors=True)


def _place(subject: Subject) -> Path:
    place = Path(subject.study)
    return next(each for each in (place, *place.parents) if each.exists())


def check_storage(subject: Subject) -> Iterator[Finding]:
    """Check what a study needs of its file system, in a folder next to it."""
    name = "study's directory"
    mount = mount_of(Path(subject.study))
    where = f"{subject.study} on {mount.kind} ({mount.point})"
    try:
        with folder_for(subject) as folder:
            if mount.is_memory:
                advice = "a restart deletes it: keep studies on a disk (--study DIR)"
                yield warned(name, f"{where}: files in memory", advice)
            else:
                yield passed(name, f"{where}, writable")
            yield _room(folder)
            for of, check in (("locks", _locks), ("SQLite", _sqlite)):
                try:
                    yield check(of, folder)
                except (OSError, sqlite3.Error) as error:
                    yield failed(of, str(error), _ELSEWHERE)
    except OSError as error:
        advice = "choose a directory that you can write to, with free space (--study DIR)"
        yield failed(name, f"{where}: {error.strerror or error}", advice)


def _room(folder: Path) -> Finding:
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    words = f"{size(free)} of {size(disk.f_blocks * disk.f_frsize)} free"
    advice = "free some space, or choose another directory (--study DIR)"
    if free < LEAST_BYTES or (disk.f_files and disk.f_favail < 1000):
        return failed("room", f"{words}, room for {disk.f_favail} more files", advice)
    if free < FEW_BYTES:
        return warned("room", f"{words}; checkpoints and models may fill it", advice)
    return passed("room", words)


_CONTEND = """
import pathlib, sys
from hptune.errors import StudyLockedError
from hptune.storage.lock import MasterLock
try:
    MasterLock(pathlib.Path(sys.argv[1])).release()
except StudyLockedError:
    print("refused")
else:
    print("admitted")
"""


def _locks(name: str, folder: Path) -> Finding:
    """Let a second process try to become the study's master, during and after the first one."""
    with MasterLock(folder) as lock:
        has_posix_lock = lock.has_posix_lock
        during = _contend(folder)
    after = _contend(folder)
    if (during, after) != ("refused", "admitted"):
        found = (
            f"a second process was {during or 'lost'} during, and {after or 'lost'} after a first"
        )
        return failed(name, found, f"two masters could damage a study: {_ELSEWHERE}")
    if not has_posix_lock:
        return warned(
            name,
            "the file system has no locks; hptune uses a lease instead",
            "after a crash, hptune resume waits for a minute",
        )
    if why := mount_of(folder).local_locks:
        return warned(
            name,
            f"locks may hold on this machine only ({why}); hptune uses a lease instead",
            "after a crash, hptune resume on another machine waits for a minute",
        )
    return passed(name, "a second process is refused, and admitted after the first")


def _contend(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CONTEND, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _sqlite(name: str, folder: Path) -> Finding:
    """Use two connections with the ledger's settings: one must keep the other from writing."""
    path = folder / "study.db"
    try:
        with MasterLock(folder):
            are_shared = locks_work(folder)
    except StudyLockedError as error:
        return failed(name, error.message, "see locks above")
    began = time.monotonic()
    with contextlib.closing(connect(path, locks_work=are_shared, mode="rwc")) as one:
        one.execute("CREATE TABLE notes (n INTEGER)")
        for number in range(10):
            one.execute("BEGIN IMMEDIATE")
            one.execute("INSERT INTO notes VALUES (?)", (number,))
            one.execute("COMMIT")
        seconds = (time.monotonic() - began) / 11
        with contextlib.closing(connect(path, locks_work=are_shared)) as other:
            other.execute("PRAGMA busy_timeout = 0")
            one.execute("BEGIN EXCLUSIVE")
            try:
                other.execute("INSERT INTO notes VALUES (10)")
            except sqlite3.OperationalError:
                one.execute("ROLLBACK")
            else:
                advice = f"a study could be damaged: {_ELSEWHERE}"
                return failed(name, "two connections wrote at the same time", advice)
            rows = other.execute("SELECT count(*) FROM notes").fetchone()[0]
            integrity = other.execute("PRAGMA integrity_check").fetchone()[0]
    if (rows, integrity) != (10, "ok"):
        return failed(name, f"{rows} of 10 rows found, integrity: {integrity}", _ELSEWHERE)
    words = f"works, {seconds * 1e3:.3g} ms for each commit"
    if seconds > SLOW_COMMIT_SECONDS:
        return warned(name, words, "each report waits for it: use a faster file system")
    return passed(name, words)
