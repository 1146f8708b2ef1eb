"""The study directory: its layout, its one master, its stop requests."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tuner.errors import (
    NoStudyError,
    StorageFullError,
    StudyExistsError,
    StudyLockedError,
    UsageError,
)
from tuner.master_lock import HEARTBEAT_SECONDS, STALE_SECONDS
from tuner.study_directory import StudyDirectory, atomic_write

NO_LOCKS = """
import errno, fcntl, os
def refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.lockf = os.lockf = refuse
"""
HOLD = """
import sys
from tuner.study_directory import StudyDirectory
with StudyDirectory(sys.argv[1]).acquire() as lock:
    print("held", flush=True)
    sys.stdin.read()
"""
TRY = """
import sys
from tuner.errors import StudyLockedError
from tuner.study_directory import StudyDirectory
print("ready", flush=True)
sys.stdin.readline()
try:
    lock = StudyDirectory(sys.argv[1]).acquire()
except StudyLockedError as err:
    print("refused:", err, flush=True)
else:
    print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def child(script: str, directory: StudyDirectory) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(directory.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def other_master(directory: StudyDirectory, *, setup: str = "") -> Iterator[subprocess.Popen[str]]:
    with child(setup + HOLD, directory) as process:
        assert says(process) == "held"
        yield process


def says(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def answer(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def attempt_of_another(directory: StudyDirectory, *, setup: str = "") -> str:
    with child(setup + TRY, directory) as process:
        assert says(process) == "ready"
        answer(process)
        return says(process)


def let_heartbeat_age(directory: StudyDirectory, *, seconds: float) -> None:
    lease = directory.path / "lease"
    then = lease.stat().st_mtime - seconds
    os.utime(lease, (then, then))


def lease_of_another_machine(directory: StudyDirectory) -> None:
    owner = {"host": "node7", "pid": 4711, "since": 1.7e9, "boot": "other", "token": "t"}
    (directory.path / "lease").write_text(json.dumps(owner), encoding="utf-8")


# --- layout ---------------------------------------------------------------------------------


def test_the_layout(directory: StudyDirectory, tmp_path: Path) -> None:
    root = tmp_path / "study"
    assert directory.path == root
    assert directory.database == root / "study.db"
    assert directory.best == root / "best"
    assert directory.best.is_dir()
    assert directory.trial(12) == root / "trials" / "12"
    assert directory.trials.is_dir()


def test_two_who_ask_for_a_free_directory_get_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = [StudyDirectory.free("model").path for _ in range(3)]
    assert found == [tmp_path / "studies" / f"model-{n}" for n in (1, 2, 3)]
    assert all(path.is_dir() for path in found)


def test_where_no_directory_can_be_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "studies").touch()
    with pytest.raises(UsageError, match="which is not a directory"):
        StudyDirectory.free("model")


def test_a_place_where_no_directory_can_be_made() -> None:
    with pytest.raises(UsageError, match=r"/proc/x: no directory can be made there .*--study"):
        StudyDirectory("/proc/x").create()


def test_what_else_lies_there_stays_when_a_study_is_removed(directory: StudyDirectory) -> None:
    directory.database.touch()
    (directory.trial(3) / "checkpoint").mkdir(parents=True)
    (directory.best / "mine.txt").touch()
    directory.remove()
    left = {path.relative_to(directory.path) for path in directory.path.rglob("*")}
    assert left == {Path("best"), Path("best/mine.txt")}


def test_a_path_is_shown_without_detours_unless_they_lead_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    monkeypatch.chdir(tmp_path)
    assert StudyDirectory("./x/../y").path == tmp_path / "y"
    assert StudyDirectory("gone/../y/.").path == tmp_path / "y"
    assert StudyDirectory("link/y").path == tmp_path / "link" / "y"
    assert StudyDirectory("link/../y").path.resolve() == tmp_path / "far" / "y"


def test_a_later_chdir_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    directory = StudyDirectory("study").create()
    monkeypatch.chdir("/")
    directory.request_stop("enough")
    assert (tmp_path / "study" / "stop").stat().st_size > 0


def test_creating_may_be_repeated_until_there_is_a_ledger(directory: StudyDirectory) -> None:
    directory.create()
    directory.database.touch()
    with pytest.raises(StudyExistsError, match=r"hptune resume .*--study"):
        directory.create()


@pytest.mark.parametrize("place", ["file", "file/below"])
def test_a_file_in_the_way(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="not a directory"):
        StudyDirectory(tmp_path / place).create()


@pytest.mark.parametrize(
    ("place", "found"),
    [("nowhere", "no such directory"), ("empty", "no file study.db"), ("file", "it is a file")],
)
def test_no_study(tmp_path: Path, place: str, found: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(NoStudyError, match=found):
        StudyDirectory(tmp_path / place).open()


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(StorageFullError, match="quota"):
        StudyDirectory(tmp_path / "study").create()


# --- one master -----------------------------------------------------------------------------


def test_a_second_master_is_refused_and_told_who_is_the_first(directory: StudyDirectory) -> None:
    with other_master(directory) as first:
        owner = directory.owner()
        assert owner is not None
        assert (owner.host, owner.pid) == (socket.gethostname(), first.pid)
        with pytest.raises(StudyLockedError) as caught:
            directory.acquire()
        for part in (str(first.pid), owner.host, "hptune status", "hptune stop"):
            assert part in str(caught.value)


def test_a_second_master_in_the_same_process_is_refused(directory: StudyDirectory) -> None:
    with directory.acquire() as lock:
        with pytest.raises(StudyLockedError, match=f"process {os.getpid()} "):
            directory.acquire()
        assert directory.owner() == lock.owner
    with directory.acquire():
        pass
    assert directory.owner() is None
    assert not (directory.path / "lease").exists()


def test_asking_for_the_owner_does_not_drop_the_masters_own_lock(
    directory: StudyDirectory,
) -> None:
    with directory.acquire():
        assert directory.owner() is not None
        assert directory.locks_work()
        (directory.path / "lease").unlink()  # so that the kernel's lock alone must do
        assert attempt_of_another(directory).startswith("refused")


def test_the_lock_is_free_as_soon_as_its_holder_is_killed(directory: StudyDirectory) -> None:
    with other_master(directory) as first:
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert (directory.path / "lease").exists()
        assert directory.owner() is None
        with directory.acquire() as lock:
            assert directory.owner() == lock.owner


def test_asking_for_the_owner_never_makes_a_starting_master_fail(
    directory: StudyDirectory,
) -> None:
    ask = """
        import sys
        from tuner.study_directory import StudyDirectory
        directory = StudyDirectory(sys.argv[1])
        print("asking", flush=True)
        while True:
            directory.owner()
    """
    with child(textwrap.dedent(ask), directory) as process:
        assert says(process) == "asking"
        for _ in range(200):
            with directory.acquire() as lock:
                assert lock.kernel_locked
        assert process.poll() is None


def test_a_forked_child_neither_has_nor_ends_its_parents_lock(directory: StudyDirectory) -> None:
    fork = """
        import os, sys
        from tuner.errors import StudyLockedError
        from tuner.study_directory import StudyDirectory
        directory = StudyDirectory(sys.argv[1])
        lock = directory.acquire()
        turn, pass_turn = os.pipe()
        if os.fork() == 0:
            lock.release()
            assert directory.owner() == lock.owner
            try:
                directory.acquire()
            except StudyLockedError:
                print("refused", flush=True)
            os.read(turn, 1)
            assert directory.owner() is None
            directory.acquire()
            print("held", flush=True)
            os._exit(0)
        sys.stdin.readline()
        lock.release()
        os.write(pass_turn, b".")
        os.wait()
    """
    with child(textwrap.dedent(fork), directory) as process:
        assert says(process) == "refused"
        assert attempt_of_another(directory).startswith("refused")
        answer(process)
        assert says(process) == "held"


def test_another_machines_lease_counts_until_it_is_stale(directory: StudyDirectory) -> None:
    """A file system may keep locks to one machine without saying so."""
    lease_of_another_machine(directory)
    owner = directory.owner()
    assert owner is not None
    assert owner.host == "node7"
    with pytest.raises(StudyLockedError, match=r"4711 on node7.*seconds ago"):
        directory.acquire()
    assert sorted(path.name for path in directory.path.iterdir()) == [
        "best",
        "lease",
        "lock",
        "stop",
        "trials",
    ]
    let_heartbeat_age(directory, seconds=STALE_SECONDS + 1)
    assert directory.owner() is None
    with directory.acquire() as lock:
        assert directory.owner() == lock.owner


def test_a_damaged_lease_is_a_strangers(directory: StudyDirectory) -> None:
    (directory.path / "lease").write_text("{", encoding="utf-8")
    with pytest.raises(StudyLockedError, match="unknown machine"):
        directory.acquire()
    let_heartbeat_age(directory, seconds=STALE_SECONDS + 1)
    directory.acquire().release()
    assert directory.owner() is None


def test_the_heartbeat(directory: StudyDirectory) -> None:
    lease = directory.path / "lease"
    with directory.acquire() as lock:
        let_heartbeat_age(directory, seconds=2 * HEARTBEAT_SECONDS)
        aged = lease.stat().st_mtime
        lock.refresh()
        assert lease.stat().st_mtime == aged, "too soon after the last heartbeat"
        lock.refresh(every_seconds=0)
        assert lease.stat().st_mtime > aged
        lease.unlink()
        lock.refresh(every_seconds=0)
        assert lease.exists()


# --- where the file system keeps no locks ---------------------------------------------------


@pytest.mark.parametrize(
    "refusal", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL], ids=errno.errorcode.get
)
def test_a_lease_where_locks_are_refused(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    monkeypatch.setattr(os, "lockf", refuse)
    assert not directory.locks_work()
    with directory.acquire() as lock:
        assert not lock.kernel_locked
        assert not directory.locks_work()
        assert directory.owner() == lock.owner
    assert directory.owner() is None


def test_a_lease_refuses_until_it_is_stale_and_then_its_holder_stops(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    monkeypatch.setattr(os, "lockf", refuse)
    with directory.acquire() as first:
        refused = attempt_of_another(directory, setup=NO_LOCKS)
        assert refused.startswith("refused")
        assert "keeps no locks" in refused
        let_heartbeat_age(directory, seconds=STALE_SECONDS + 1)
        with other_master(directory, setup=NO_LOCKS) as second:
            with pytest.raises(StudyLockedError, match=rf"taken over by process {second.pid} "):
                first.refresh(every_seconds=0)
            first.release()
            found = json.loads((directory.path / "lease").read_bytes())
            assert found["pid"] == second.pid, "the first must not end the second's lease"


def test_of_many_who_find_a_stale_lease_one_takes_over(directory: StudyDirectory) -> None:
    lease_of_another_machine(directory)
    let_heartbeat_age(directory, seconds=STALE_SECONDS + 1)
    with contextlib.ExitStack() as stack:
        masters = [stack.enter_context(child(NO_LOCKS + TRY, directory)) for _ in range(4)]
        for master in masters:
            assert says(master) == "ready"
        for master in masters:
            answer(master)
        answers = [says(master).split(":")[0] for master in masters]
    assert sorted(answers) == ["held", "refused", "refused", "refused"]


def test_a_lease_without_hard_links(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with directory.acquire() as lock:
        assert json.loads((directory.path / "lease").read_bytes())["token"] == lock.owner.token


# --- stop requests --------------------------------------------------------------------------


def test_stop_requests(directory: StudyDirectory) -> None:
    assert directory.stop_requested() is None
    directory.request_stop("Zeit für eine Pause")
    assert StudyDirectory(directory.path).stop_requested() == "Zeit für eine Pause"
    directory.request_stop("no")
    assert directory.stop_requested() == "no"
    directory.clear_stop_request()
    assert directory.stop_requested() is None


def test_a_half_written_stop_request_is_none_as_yet(directory: StudyDirectory) -> None:
    (directory.path / "stop").write_text('{"reas', encoding="utf-8")
    assert directory.stop_requested() is None


# --- atomic_write ---------------------------------------------------------------------------


def test_atomic_write_replaces(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    atomic_write(path, b"old")
    atomic_write(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_atomic_write_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.json"
    atomic_write(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFullError, match="No space left"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
