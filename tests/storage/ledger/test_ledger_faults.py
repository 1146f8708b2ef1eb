"""Faults of the ledger: after the death of a master or a full disk, nothing is lost or partial."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batches import BATCH_EVENTS, append_batch, complete, reported, whole_batches
from hptune.errors import StorageFullError, StudyError, StudyLockedError
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger, LedgerReader
from hptune.storage.ledger.database import FORMAT
from requirements import unavailable


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    try:
        done = subprocess.run(mount, capture_output=True, check=False, text=True)
    except FileNotFoundError:
        unavailable("there is no command `mount`")
    if done.returncode:
        unavailable(f"a file system can be mounted by root only: {done.stderr.strip()}")
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk(small_disk: Path) -> None:
    directory = StudyDirectory(small_disk / "study").create()
    with Ledger.create(directory, {}) as ledger:
        append_batch(ledger, 0)
        filler = small_disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        with pytest.raises(StorageFullError, match=r"study\.db.*full.*hptune resume"):
            append_batch(ledger, 1)
        assert whole_batches(directory) == 1
        filler.unlink()
        append_batch(ledger, 1)
        assert whole_batches(directory) == 2


def test_a_ledger_that_finds_no_room_leaves_no_study(tmp_path: Path) -> None:
    directory = StudyDirectory(tmp_path / "study").create()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        with directory.acquire(), pytest.raises(StorageFullError, match=r"8192 bytes.*ulimit -f"):
            Ledger.create(directory, {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    directory.remove()
    assert not directory.path.exists()


def test_no_room_leaves_nothing_of_the_batch(directory: StudyDirectory, ledger: Ledger) -> None:
    append_batch(ledger, 0)
    pages = directory.database.stat().st_size // 4096
    ledger._connection.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFullError, match=r"full.*safely stored"):
        append_batch(ledger, 1)
    assert whole_batches(directory) == 1
    ledger._connection.execute("PRAGMA max_page_count = 100000")
    append_batch(ledger, 1)
    assert whole_batches(directory) == 2


def test_a_batch_that_fails_at_its_end_leaves_nothing(
    directory: StudyDirectory, ledger: Ledger
) -> None:
    too_far = dataclasses.replace(complete(0, 1.0), step=2**63)
    with pytest.raises(OverflowError):
        ledger.append([reported(0.0, loss=0.5)], trials=[too_far])
    assert whole_batches(directory) == 0
    append_batch(ledger, 0)
    assert whole_batches(directory) == 1


def test_a_read_only_file_system(small_disk: Path) -> None:
    directory = StudyDirectory(small_disk / "study").create()
    with Ledger.create(directory, {}) as ledger:
        append_batch(ledger, 0)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    assert whole_batches(directory) == 1
    with pytest.raises(StorageFullError, match=r"is read-only.*made writable"):
        Ledger.open(directory)
    with pytest.raises(StorageFullError, match="is read-only"):
        directory.acquire()


def half_write(directory: StudyDirectory, ledger: Ledger, target: Path) -> StudyDirectory:
    """Return a copy of the study as left by a master that was killed during a write."""
    connection = ledger._connection
    connection.execute("PRAGMA cache_size = 10")  # so that changed pages reach the file at once
    connection.execute("BEGIN IMMEDIATE")
    connection.execute("UPDATE trials SET params = zeroblob(5000), state = 'HALF'")
    shutil.copytree(directory.path, target)
    connection.execute("ROLLBACK")
    assert (target / "study.db").read_bytes() != directory.database.read_bytes()
    assert (target / "study.db-journal").stat().st_size > 0
    return StudyDirectory(target)


def test_a_reader_undoes_a_half_write(
    directory: StudyDirectory, ledger: Ledger, tmp_path: Path
) -> None:
    for number in range(30):
        append_batch(ledger, number)
    assert whole_batches(half_write(directory, ledger, tmp_path / "copy")) == 30


@pytest.mark.parametrize("is_locked", [True, False], ids=["locked", "not locked"])
def test_a_master_undoes_a_half_write_where_locks_do_not_work(
    directory: StudyDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_locked: bool
) -> None:
    """With lock directories SQLite does not undo it by itself."""
    monkeypatch.setattr(StudyDirectory, "locks_work", lambda _: False)
    monkeypatch.setattr("hptune.storage.ledger.database.DEAD_DOT_LOCK_SECONDS", 0.2)
    with Ledger.create(directory, {}) as ledger:
        for number in range(30):
            append_batch(ledger, number)
        copy = half_write(directory, ledger, tmp_path / "copy")
    lock = copy.path / "study.db.lock"
    assert lock.is_dir()
    if not is_locked:
        lock.rmdir()
    with Ledger.open(copy) as ledger:
        assert not lock.exists()
        assert whole_batches(copy) == 30
        append_batch(ledger, 30)
    assert whole_batches(copy) == 31


def test_a_half_write_that_may_not_be_undone_is_told(
    directory: StudyDirectory, ledger: Ledger, small_disk: Path
) -> None:
    for number in range(30):
        append_batch(ledger, number)
    copy = half_write(directory, ledger, small_disk / "copy")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StudyError, match="killed in the middle of a write"):
        LedgerReader(copy)


def test_a_program_that_keeps_the_file_locked(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hptune.storage.ledger.database.BUSY_SECONDS", 0.05)
    with Ledger.create(directory, {}) as ledger:
        with contextlib.closing(sqlite3.connect(directory.database)) as browser:
            browser.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StudyError, match=r"kept locked by another program"):
                append_batch(ledger, 0)
            with pytest.raises(StudyError, match="kept locked"):
                LedgerReader(directory)
        append_batch(ledger, 0)
    assert whole_batches(directory) == 1


def test_a_writer_waits_for_a_program_that_keeps_the_file_locked(
    directory: StudyDirectory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hptune.storage.ledger.writer._RETRY_SECONDS", 0.01)
    told: list[str] = []
    program = contextlib.ExitStack()

    def end_program(seconds: float, what: str) -> None:
        assert seconds > 0
        told.append(what)
        if len(told) == 2:
            program.close()

    with Ledger.create(directory, {}, while_locked=end_program) as ledger:
        browser = program.enter_context(contextlib.closing(sqlite3.connect(directory.database)))
        browser.execute("BEGIN")
        browser.execute("SELECT * FROM events").fetchall()
        append_batch(ledger, 0)
        # What it reads waits as long as it says.
        other = program.enter_context(
            contextlib.closing(sqlite3.connect(directory.database, check_same_thread=False))
        )
        other.execute("BEGIN EXCLUSIVE")
        threading.Timer(0.3, other.rollback).start()
        assert ledger.event_count() == 20
        program.close()
    assert len(told) == 2
    assert "study.db is kept locked by" in told[0]
    assert whole_batches(directory) == 1


def test_a_study_that_is_renamed_in_the_middle_of_a_write(directory: StudyDirectory) -> None:
    """A reader holds up the commit, so that the rename comes after SQLite has begun to write."""
    renamed = StudyDirectory(directory.path.with_name("renamed"))
    program = contextlib.ExitStack()

    def rename(_seconds: float, _what: str) -> None:
        directory.path.rename(renamed.path)
        program.close()

    with Ledger.create(directory, {}, while_locked=rename) as ledger:
        append_batch(ledger, 0)
        browser = program.enter_context(contextlib.closing(sqlite3.connect(directory.database)))
        browser.execute("BEGIN")
        browser.execute("SELECT * FROM events").fetchall()
        with pytest.raises(StudyError, match="was removed or renamed while it ran"):
            append_batch(ledger, 1)
    assert whole_batches(renamed) == 1


def test_a_writer_refuses_what_follows_on_events_of_others(
    directory: StudyDirectory, ledger: Ledger
) -> None:
    append_batch(ledger, 0)
    with contextlib.closing(sqlite3.connect(directory.database)) as browser, browser:
        browser.execute("INSERT INTO events VALUES (1000, 0.0, 'x', 'x')")
    with pytest.raises(StudyLockedError, match=r"was taken over by .*writes no more"):
        append_batch(ledger, 1)
    with pytest.raises(StudyLockedError, match="was taken over by"):
        ledger.set_facts({"ended": None})


def test_a_master_without_its_lease_writes_no_more(directory: StudyDirectory) -> None:
    with directory.acquire() as lock, Ledger.create(directory, {}, lock=lock) as ledger:
        append_batch(ledger, 0)
        (directory.path / "lease").unlink()
        append_batch(ledger, 1)
        # The next master has begun, but not written.
        owner = {"host": "node7", "pid": 4711, "since": 1.7e9, "boot": "other", "token": "t"}
        (directory.path / "lease").write_text(json.dumps(owner), encoding="utf-8")
        with pytest.raises(StudyLockedError, match="was taken over by process 4711 on node7"):
            append_batch(ledger, 2)
    assert whole_batches(directory) == 2


def test_a_slow_reader_holds_up_no_writer(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hptune.storage.ledger.database.BUSY_SECONDS", 0.05)
    with Ledger.create(directory, {}) as ledger:
        append_batch(ledger, 0)
        events = LedgerReader(directory).events()
        seen = [next(events).at]
        append_batch(ledger, 1)
        seen += [event.at for event in events]
    assert seen == list(range(2 * BATCH_EVENTS))


def test_readers_see_whole_batches_while_the_master_writes(directory: StudyDirectory) -> None:
    failures: list[BaseException] = []
    created = threading.Event()

    def write() -> None:
        try:
            with Ledger.create(directory, {}) as ledger:
                created.set()
                for number in range(40):
                    append_batch(ledger, number)
        except BaseException as err:
            failures.append(err)
            raise

    writer = threading.Thread(target=write)
    writer.start()
    assert created.wait(60)
    reader = LedgerReader(directory)
    latest = 0
    while writer.is_alive():
        count = len(reader.reports())
        assert count % BATCH_EVENTS == 0
        assert count >= latest
        latest = count
    writer.join()
    assert failures == []
    assert whole_batches(directory) == 40


@pytest.mark.parametrize(
    ("found", "writer"),
    [
        ("0", "hptune 7.0"),
        ("1", "a development version of hptune, whose package was called tuner"),
        (str(FORMAT + 1), "hptune 7.0"),
        ("null", "hptune 7.0"),
    ],
)
def test_a_study_of_another_format_is_refused(
    directory: StudyDirectory, ledger: Ledger, found: str, writer: str
) -> None:
    ledger.set_facts({"hptune_version": "7.0"})
    with contextlib.closing(sqlite3.connect(directory.database)) as connection, connection:
        connection.execute("UPDATE study SET value = ? WHERE key = 'format'", (found,))
    refusal = rf"has ledger format .*by {writer}\).*reads format {FORMAT} only"
    for opened in (Ledger.open, LedgerReader):
        with pytest.raises(StudyError, match=refusal):
            opened(directory)


@pytest.mark.parametrize(
    "contents", [b"", b"not a database " * 500], ids=["an empty file", "no database"]
)
def test_not_a_ledger(directory: StudyDirectory, contents: bytes) -> None:
    directory.database.write_bytes(contents)
    for opened in (Ledger.open, LedgerReader):
        with pytest.raises(StudyError, match=r"study\.db in"):
            opened(directory)
    assert directory.database.read_bytes() == contents


def test_a_dead_processes_lock_directory_is_removed_where_locks_do_not_work(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StudyDirectory, "locks_work", lambda _: False)
    monkeypatch.setattr("hptune.storage.ledger.database.DEAD_DOT_LOCK_SECONDS", 0.2)
    with Ledger.create(directory, {}) as ledger:
        append_batch(ledger, 0)
        assert whole_batches(directory) == 1
    (directory.path / "study.db.lock").mkdir()

    def wait(seconds: float, _what: str) -> None:
        assert seconds < 10

    with Ledger.open(directory, while_locked=wait) as ledger:
        append_batch(ledger, 1)
        (directory.path / "study.db.lock").mkdir()  # by a `hptune status` that was killed
        append_batch(ledger, 2)
    assert whole_batches(directory) == 3


def test_a_master_that_was_killed_as_it_made_the_ledger_keeps_no_other_one_off(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StudyDirectory, "locks_work", lambda _: False)
    monkeypatch.setattr("hptune.storage.ledger.database.BUSY_SECONDS", 0.1)
    (directory.path / "study.db.new").write_bytes(b"half of it")
    (directory.path / "study.db.new.lock").mkdir()
    Ledger.create(directory, {}).close()
    assert not [*directory.path.glob("study.db.new*")]


# --- kill the master anywhere ---------------------------------------------------------------

MASTER = """
import itertools, os, sys
from hptune.core.messages import Reported
from hptune.core.resources import Placement
from hptune.core.attempt import Attempt, AttemptId, Outcome, Report
from hptune.core.trial import Trial, TrialState
from hptune.storage.ledger import Ledger
from hptune.storage.directory import StudyDirectory

def write_forever(directory, size):
    with directory.acquire(), Ledger.open(directory) as ledger:
        for number in itertools.count(sum(1 for _ in ledger.events()) // size):
            first = number * size
            attempt = AttemptId(number, 0)
            ledger.append(
                [Reported(first + k, attempt, Report(k + 1, {"loss": 0.5})) for k in range(size)],
                trials=[Trial(number, {"x": "x" * 3000}, "test", TrialState.COMPLETE, value=1.0)],
                attempts=[
                    Attempt(attempt, Placement("w", (0,)), "n", 0.0, outcome=Outcome.FINISHED)
                ],
            )
            os.write(1, f"{number}\\n".encode())

for _ in sys.stdin:  # a master for each line
    if (master := os.fork()) == 0:
        os.write(1, f"{os.getpid()}\\n".encode())
        write_forever(StudyDirectory(sys.argv[1]), int(sys.argv[2]))
    os.waitpid(master, 0)
    os.write(1, b"over\\n")
"""


def test_a_master_killed_anywhere_leaves_whole_batches(directory: StudyDirectory) -> None:
    Ledger.create(directory, {}).close()
    moments = random.Random(20)
    with subprocess.Popen(
        [sys.executable, "-c", MASTER, str(directory.path), str(BATCH_EVENTS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        bufsize=1,
    ) as masters:
        assert masters.stdin is not None
        assert masters.stdout is not None
        for _ in range(15):
            masters.stdin.write("\n")
            pid = int(masters.stdout.readline())
            assert masters.stdout.readline() != "over\n"
            time.sleep(moments.uniform(0, 0.02))
            os.kill(pid, signal.SIGKILL)
            promised = [int(line) for line in iter(masters.stdout.readline, "over\n")]
            batches = whole_batches(directory)
            assert batches > max(promised, default=0)
            assert directory.owner() is None
        masters.stdin.close()
    assert batches >= 15
