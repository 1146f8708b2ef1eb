"""Only one master at a time: the lock and the lease of a study directory."""

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
import threading
import time
from collections.abc import Iterator

import pytest

from hptune.errors import StudyError, StudyLockedError
from hptune.files.filesystem import LOCAL_LOCKS, Mount
from hptune.storage.directory import StudyDirectory
from hptune.storage.lease import HEARTBEAT_SECONDS, STALE_SECONDS, Lease, LockOwner
from hptune.storage.ledger import Ledger, LedgerReader

NO_LOCKS = """
import errno, fcntl, os
def refuse(*_):
    raise OSError(errno.ENOLCK, "No locks available")
fcntl.lockf = os.lockf = refuse
"""
HOLD = """
import sys
from hptune.storage.directory import StudyDirectory
with StudyDirectory(sys.argv[1]).acquire() as lock:
    print("held", flush=True)
    sys.stdin.read()
"""
HOLD_FOR_MOMENTS = """
import sys
from hptune.storage.directory import StudyDirectory
for _ in range(1000):
    with StudyDirectory(sys.argv[1]).acquire(is_brief=True):
        pass
"""
TRY = """
import sys
from hptune.errors import StudyLockedError
from hptune.storage.directory import StudyDirectory
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
        assert line_from(process) == "held"
        yield process


def line_from(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def send_line_to(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def result_of_another(directory: StudyDirectory, *, setup: str = "") -> str:
    with child(setup + TRY, directory) as process:
        assert line_from(process) == "ready"
        send_line_to(process)
        return line_from(process)


def age_heartbeat(directory: StudyDirectory, *, seconds: float) -> None:
    lease = directory.path / "lease"
    then = lease.stat().st_mtime - seconds
    os.utime(lease, (then, then))


def lease_of_another_machine(directory: StudyDirectory) -> None:
    owner = {"host": "node7", "pid": 4711, "since": 1.7e9, "boot": "other", "token": "t"}
    (directory.path / "lease").write_text(json.dumps(owner), encoding="utf-8")


# --- one master -----------------------------------------------------------------------------


def test_a_second_master_is_refused_and_the_message_names_the_first(
    directory: StudyDirectory,
) -> None:
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
        with pytest.raises(
            StudyLockedError, match=rf"process {os.getpid()} .*hptune status \S+ --watch"
        ):
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
        (directory.path / "lease").unlink()  # only the POSIX lock is left
        assert result_of_another(directory).startswith("refused")


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
        from hptune.storage.directory import StudyDirectory
        directory = StudyDirectory(sys.argv[1])
        print("asking", flush=True)
        while True:
            directory.owner()
    """
    with child(textwrap.dedent(ask), directory) as process:
        assert line_from(process) == "asking"
        for _ in range(200):
            with directory.acquire() as lock:
                assert lock.has_posix_lock
        assert process.poll() is None


def test_a_forked_child_neither_holds_nor_releases_its_parents_lock(
    directory: StudyDirectory,
) -> None:
    fork = """
        import os, sys
        from hptune.errors import StudyLockedError
        from hptune.storage.directory import StudyDirectory
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
        assert line_from(process) == "refused"
        assert result_of_another(directory).startswith("refused")
        send_line_to(process)
        assert line_from(process) == "held"


def test_another_machines_lease_protects_until_it_is_stale(directory: StudyDirectory) -> None:
    """A file system may silently limit locks to one machine."""
    lease_of_another_machine(directory)
    owner = directory.owner()
    assert owner is not None
    assert owner.host == "node7"
    with pytest.raises(StudyLockedError, match=r"4711 on node7.*try again in \d+ seconds"):
        directory.acquire()
    assert sorted(path.name for path in directory.path.iterdir()) == [
        "best",
        "lease",
        "lock",
        "requests",
        "trials",
    ]
    age_heartbeat(directory, seconds=STALE_SECONDS + 1)
    assert directory.owner() is None
    with directory.acquire() as lock:
        assert directory.owner() == lock.owner


def test_a_damaged_lease_belongs_to_an_unknown_master(directory: StudyDirectory) -> None:
    (directory.path / "lease").write_text("{", encoding="utf-8")
    with pytest.raises(StudyLockedError, match=r"run by a process on an unknown machine\."):
        directory.acquire()
    age_heartbeat(directory, seconds=STALE_SECONDS + 1)
    directory.acquire().release()
    assert directory.owner() is None


def test_a_master_without_space_for_its_lease_leaves_none(directory: StudyDirectory) -> None:
    script = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))" + HOLD
    with child(script, directory) as process:
        assert process.wait(60) == 1
    directory.acquire().release()


def test_a_lease_names_its_owner_from_the_first_moment_on(directory: StudyDirectory) -> None:
    lease, owner = Lease(directory.path / "lease"), LockOwner.this_process()
    seen, ended = set[LockOwner | None](), threading.Event()

    def read() -> None:
        while not ended.is_set():
            seen.add(lease.read())

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(300):
            assert lease.create(owner)
            lease.remove(owner)
    finally:
        ended.set()
        reader.join()
    assert seen <= {None, owner}


def test_a_lease_where_there_are_no_hard_links(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with directory.acquire() as lock:
        assert directory.owner() == lock.owner
        assert "refused" in result_of_another(directory, setup=NO_LOCKS)
    assert not (directory.path / "lease").exists()


def test_who_has_the_lock_for_a_moment_is_never_its_owner(directory: StudyDirectory) -> None:
    """Neither while the lease is not there yet, nor when it is gone already."""
    with child(HOLD_FOR_MOMENTS, directory) as process:
        looks = 0
        while process.poll() is None:
            assert directory.owner() is None
            looks += 1
        assert process.returncode == 0
    assert looks > 100


def test_a_directory_that_is_renamed(directory: StudyDirectory) -> None:
    lock = directory.acquire()
    directory.path.rename(directory.path.with_name("elsewhere"))
    with pytest.raises(StudyError, match="was removed or renamed"):
        lock.refresh(every_seconds=0)
    lock.release()
    assert not directory.path.exists()


def test_the_heartbeat(directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    lease, now = directory.path / "lease", time.monotonic()
    with monkeypatch.context() as at_once:
        at_once.setattr(time, "monotonic", lambda: now)
        lock = directory.acquire()
        age_heartbeat(directory, seconds=2 * HEARTBEAT_SECONDS)
        aged = lease.stat().st_mtime
        lock.refresh()
    with lock:
        assert lease.stat().st_mtime == aged, "too soon after the last heartbeat"
        lock.refresh(every_seconds=0)
        assert lease.stat().st_mtime > aged
        lease.unlink()
        lock.refresh(every_seconds=0)
        assert lease.exists()
        lease.write_text("damaged")
        lock.refresh(every_seconds=0)
        assert directory.owner() == lock.owner
        lease.unlink()
        os.mkfifo(lease)
        lock.refresh(every_seconds=0)


# --- where the file system has no POSIX locks -----------------------------------------------


def refuse_locks(monkeypatch: pytest.MonkeyPatch, refusal: int) -> None:
    def refuse(*_: object) -> None:
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(fcntl, "lockf", refuse)
    monkeypatch.setattr(os, "lockf", refuse)


@pytest.mark.parametrize(
    "refusal", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL], ids=errno.errorcode.get
)
def test_a_lease_where_locks_are_refused(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    refuse_locks(monkeypatch, refusal)
    assert not directory.locks_work()
    with directory.acquire() as lock:
        assert not lock.has_posix_lock
        assert not directory.locks_work()
        assert directory.owner() == lock.owner
    assert directory.owner() is None


@pytest.mark.parametrize(
    "mount",
    [*(Mount("/", "lustre", ("rw", each)) for each in sorted(LOCAL_LOCKS)), Mount("/", "beegfs")],
)
def test_locks_of_one_machine_alone_do_not_count_as_locks(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch, mount: Mount
) -> None:
    """A reader on another machine would undo the commit of a master whose lock it cannot see."""
    monkeypatch.setattr("hptune.storage.lock.mount_of", lambda _: mount)
    with directory.acquire() as lock, Ledger.create(directory, {}):
        assert lock.has_posix_lock
        assert not directory.locks_work()
        (directory.path / "study.db.lock").mkdir()
        monkeypatch.setattr("hptune.storage.ledger.database.BUSY_SECONDS", 0.1)
        with pytest.raises(StudyError, match=r"locked.*killed \(`hptune resume`.*study\.db\.lock"):
            LedgerReader(directory)
        (directory.path / "study.db.lock").rmdir()
        assert LedgerReader(directory).trials() == []


@pytest.mark.parametrize(
    "mount",
    [
        Mount("/", "gfs2", ("rw", "nolock")),
        Mount("/", "lustre", ("rw", "flock")),
        Mount("/", "nfs4", ("rw", "local_lock=none")),
        Mount("/", "gpfs"),
    ],
)
def test_other_locks_count(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch, mount: Mount
) -> None:
    monkeypatch.setattr("hptune.storage.lock.mount_of", lambda _: mount)
    assert directory.locks_work()


def test_a_lease_protects_until_it_is_stale_and_then_its_owner_stops(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_locks(monkeypatch, errno.ENOLCK)
    with directory.acquire() as first:
        refused = result_of_another(directory, setup=NO_LOCKS)
        assert refused.startswith("refused")
        assert "try again in" in refused
        age_heartbeat(directory, seconds=STALE_SECONDS + 1)
        with other_master(directory, setup=NO_LOCKS) as second:
            with pytest.raises(StudyLockedError, match=rf"taken over by process {second.pid} "):
                first.refresh(every_seconds=0)
            first.release()
            found = json.loads((directory.path / "lease").read_bytes())
            assert found["pid"] == second.pid, "the first must not remove the lease of the second"


def test_a_stale_lease_that_another_master_took_over_meanwhile(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This master was held up after it had read the lease, for longer than others wait."""
    refuse_locks(monkeypatch, errno.ENOLCK)
    (directory.path / "lease").write_text("damaged", encoding="utf-8")
    age_heartbeat(directory, seconds=STALE_SECONDS + 1)
    age_seconds = Lease.age_seconds

    def age_and_wait(lease: Lease) -> float:
        found = age_seconds(lease)
        lease_of_another_machine(directory)
        return found

    monkeypatch.setattr(Lease, "age_seconds", age_and_wait)
    with pytest.raises(StudyLockedError, match="4711 on node7"):
        directory.acquire()
    assert "node7" in (directory.path / "lease").read_text(encoding="utf-8")


def test_one_of_many_takes_over_a_stale_lease(directory: StudyDirectory) -> None:
    lease_of_another_machine(directory)
    age_heartbeat(directory, seconds=STALE_SECONDS + 1)
    with contextlib.ExitStack() as stack:
        masters = [stack.enter_context(child(NO_LOCKS + TRY, directory)) for _ in range(4)]
        for master in masters:
            assert line_from(master) == "ready"
        for master in masters:
            send_line_to(master)
        answers = [line_from(master).split(":")[0] for master in masters]
    assert sorted(answers) == ["held", "refused", "refused", "refused"]
