"""The study directory's file system: does it keep what is written, and locks?"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import StudyLockedError
from ..storage.filesystem import mount_of
from ..storage.ledger.database import connect
from ..storage.lock import MasterLock
from .findings import Finding, Subject, failed, passed, warned

FEW_BYTES = 5_000_000_000
LEAST_BYTES = 200_000_000
SLOW_SYNC_SECONDS = 0.1
MOST_SKEW_SECONDS = 2.0
_REPLACED = 200
_PREFIX = ".hptune-doctor-"
_CONTEND = """
import pathlib, sys
from tuner.errors import StudyLockedError
from tuner.storage.lock import MasterLock
try:
    MasterLock(pathlib.Path(sys.argv[1])).release()
except StudyLockedError:
    print("refused")
else:
    print("taken")
"""


@contextlib.contextmanager
def folder_for(subject: Subject) -> Iterator[Path]:
    """A folder of the doctor's own where the study is, or would be.

    Raises:
        OSError: None can be made there.
    """
    prefix = f"{_PREFIX}{subject.token}"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=_place(subject)))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def clean_up(subject: Subject) -> None:
    """Remove what checks that were killed have left."""
    if subject.token:
        for folder in _place(subject).glob(f"{_PREFIX}{subject.token}*"):
            shutil.rmtree(folder, ignore_errors=True)


def _place(subject: Subject) -> Path:
    place = Path(subject.study)
    return next(each for each in (place, *place.parents) if each.exists())


def check_storage(subject: Subject) -> Iterator[Finding]:
    """What a study needs of its file system, tried in a folder beside it."""
    mount = mount_of(Path(subject.study))
    where = f"{subject.study} on {mount.kind} ({mount.point})"
    try:
        with folder_for(subject) as folder:
            if mount.is_memory:
                yield warned(
                    "study directory",
                    f"{where}: files in memory",
                    "they are gone with the machine; keep studies on a disk (--study DIR)",
                )
            else:
                yield passed("study directory", f"{where}, can be written")
            yield _room(folder)
            yield from _trials(folder)
    except OSError as error:
        yield failed(
            "study directory",
            f"{where}: {error.strerror or error}",
            "name a directory that you can write to, with room in it (--study DIR)",
        )


def _trials(folder: Path) -> Iterator[Finding]:
    for name, attempt in (
        ("locks", _locks),
        ("SQLite", _sqlite),
        ("rename", _rename),
        ("fsync", _sync),
        ("file clock", _clock),
    ):
        try:
            yield attempt(name, folder)
        except (OSError, sqlite3.Error) as error:
            yield failed(name, str(error), "keep studies on another file system (--study DIR)")


def _room(folder: Path) -> Finding:
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    words = f"{free / 1e9:.3g} of {disk.f_blocks * disk.f_frsize / 1e9:.3g} GB free"
    advice = "make room, or name another directory (--study DIR)"
    if free < LEAST_BYTES or (disk.f_files and disk.f_favail < 1000):
        return failed("room", f"{words}, {disk.f_favail} more files", advice)
    if free < FEW_BYTES:
        return warned("room", f"{words}; checkpoints and models may fill it", advice)
    return passed("room", words)


def _locks(name: str, folder: Path) -> Finding:
    """Two processes want to be a study's master."""
    with MasterLock(folder) as lock:
        kernel_locked = lock.has_posix_lock
        second = _contend(folder)
    third = _contend(folder)
    if (second, third) != ("refused", "taken"):
        return failed(
            name,
            f"a second master was {second or 'lost'}, one after the first's end {third or 'lost'}",
            "keep studies on another file system; two masters here could harm a study",
        )
    if not kernel_locked:
        return warned(
            name,
            "the file system keeps no locks; a lease guards the study",
            "after a crash, a resume on this machine waits for a minute; nothing else differs",
        )
    return passed(name, "a second process is refused, and let in after the first")


def _contend(folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-c", _CONTEND, str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip()


def _sqlite(name: str, folder: Path) -> Finding:
    """Two connections with the ledger's settings: one keeps the other out, and is read by it."""
    path = folder / "study.db"
    try:
        with MasterLock(folder) as lock:
            locks_work = lock.has_posix_lock
    except StudyLockedError as error:
        return failed(name, error.message, "see locks above")
    began = time.monotonic()
    with contextlib.closing(connect(path, locks_work=locks_work, create=True)) as one:
        one.execute("CREATE TABLE notes (n INTEGER)")
        for number in range(10):
            one.execute("BEGIN IMMEDIATE")
            one.execute("INSERT INTO notes VALUES (?)", (number,))
            one.execute("COMMIT")
        seconds = (time.monotonic() - began) / 11
        with contextlib.closing(connect(path, locks_work=locks_work)) as other:
            other.execute("PRAGMA busy_timeout = 0")
            one.execute("BEGIN EXCLUSIVE")
            try:
                other.execute("INSERT INTO notes VALUES (10)")
                return failed(
                    name,
                    "two connections wrote at once",
                    "keep studies on another file system; a ledger here could be harmed",
                )
            except sqlite3.OperationalError:
                one.execute("ROLLBACK")
            found = other.execute("SELECT count(*) FROM notes").fetchone()[0]
            whole = other.execute("PRAGMA integrity_check").fetchone()[0]
    if (found, whole) != (10, "ok"):
        return failed(name, f"{found} of 10 rows, {whole}", "keep studies on another file system")
    words = f"works with the ledger's settings, {seconds * 1e3:.3g} ms a commit"
    if seconds > SLOW_SYNC_SECONDS:
        return warned(name, words, "each report costs one: keep the study on a faster file system")
    return passed(name, words)


def _rename(name: str, folder: Path) -> Finding:
    """A file is replaced again and again while another process reads it."""
    path, fresh = folder / "renamed", folder / "renamed.new"
    path.write_text("0" * 4096)
    with subprocess.Popen(
        [sys.executable, "-c", _READ, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as reader:
        if reader.stdout is not None:
            reader.stdout.readline()  # it reads
        for number in range(_REPLACED):
            fresh.write_text(str(number % 10) * 4096)
            fresh.replace(path)
        broken = reader.communicate("\n")[0].strip()
    if broken != "0":
        return failed(
            name,
            f"{broken or 'all'} reads met a file that was missing or not whole",
            "keep studies on another file system; models are put in place by renaming",
        )
    return passed(name, f"{_REPLACED} files replaced under a reader, each whole at any instant")


_READ = """
import select, sys
broken = 0
print("ready", flush=True)
while True:
    try:
        text = open(sys.argv[1]).read()
        broken += len(text) != 4096 or len(set(text)) != 1
    except OSError:
        broken += 1
    if select.select([sys.stdin], [], [], 0)[0]:
        break
print(broken)
"""


def _sync(name: str, folder: Path) -> Finding:
    times = []
    with (folder / "synced").open("wb", buffering=0) as file:
        for _ in range(10):
            began = time.monotonic()
            file.write(b"x" * 4096)
            os.fsync(file.fileno())
            times.append(time.monotonic() - began)
    typical = statistics.median(times)
    words = f"{typical * 1e3:.3g} ms to have 4 kB on disk, {max(times) * 1e3:.3g} ms at most"
    if typical > SLOW_SYNC_SECONDS:
        return warned(
            name, words, "every event waits for it: keep the study on a faster file system"
        )
    return passed(name, words)


def _clock(name: str, folder: Path) -> Finding:
    """The file system's clock may be another machine's."""
    path = folder / "clock"
    before = time.time()
    path.touch()
    after = time.time()
    stamp = path.stat().st_mtime
    skew = max(before - 0.05 - stamp, stamp - after, 0.0)
    if skew > MOST_SKEW_SECONDS:
        return warned(
            name,
            f"the file system's clock is {skew:.3g} s off this machine's",
            "hptune does not mind; times in logs and files do not fit together (NTP?)",
        )
    return passed(name, f"within {max(skew, 0.1):.1g} s of this machine's")
