"""Masters that die or lose what they need: nothing is lost, and the study is resumed."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest

from hptune.cli.output import INTERRUPTED
from hptune.core.user_requests import UserAction
from hptune.files.file_errors import storage_full
from hptune.storage.asking import send
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from hptune.storage.lock import MasterLock
from hptune.worker.dask.worker_server import SERVER_NAME, WORKER_NAME
from in_process import InProcess
from interrupted_runs import (
    GATED,
    LIGHT,
    NEVER_READ,
    QUICK,
    assert_each_trial_exactly_once,
    count,
    wait_until_running,
)
from real_runs import Hptune, is_alive, rows, trials, wait_for
from requirements import require_root, unavailable

# Two trials end by themselves. The others write to the ledger until their gate is there.
WRITING = """\
import os, time

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    step = 1
    trial.report(step, value=x)
    while trial.number >= 2 and not os.path.exists({gate!r}):
        if trial.should_stop():
            return None
        time.sleep(0.1)
        step += 1
        trial.report(step, value=x)
    return x
"""

# Reading it takes until the master has written a heartbeat.
SLOW_TO_READ = """\
import os, time

beat = os.stat("study/lease").st_mtime_ns
for _ in range(3000):
    if os.stat("study/lease").st_mtime_ns != beat:
        break
    time.sleep(0.02)
else:
    raise TimeoutError("no heartbeat")

def objective(hp, trial):
    return hp.Float("x", 0, 1)
"""


# Four trials end by themselves, and the others when their gate is there.
HALF_GATED = """\
import os, time

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    trial.report(1, value=x)
    while trial.number >= 4 and not os.path.exists("gate"):
        time.sleep(0.02)
    return x
"""


def test_killed_again_and_again(hptune: Hptune, cli: InProcess) -> None:
    """`kill -9` before, at and after the first trial; every trial is run exactly once."""
    model = hptune.file("model.py", NEVER_READ)
    study = hptune.study()

    started = hptune.start("run", model, "--trials", "8", "--study", study)
    wait_for((study / "lease").exists, "the start")
    started.kill()
    hptune.assert_nothing_left()
    resumed = cli("resume", study)
    assert (resumed.code, "ended before its first trial" in resumed.err) == (2, True)

    hptune.file("model.py", HALF_GATED)
    command: tuple[object, ...] = ("run", model, "--trials", "8", "--study", study)
    for instant in (
        (study / "study.db").exists,
        lambda: count(study, "state = 'RUNNING'"),
        lambda: count(study, "state = 'COMPLETE'") >= 2,
    ):
        started = hptune.start(*command)
        wait_for(instant, "the instant of death")
        started.kill()
        hptune.assert_nothing_left()
        # A study that was killed can be looked at.
        if command[0] == "resume":
            status = cli("status", study)
            assert status.code == 0
            assert "hptune resume" in status.out
        command = ("resume", study)

    before = count(study, "state = 'COMPLETE'")
    (hptune.directory / "gate").touch()
    ended = hptune("resume", study)
    assert ended.code == 0, ended.err
    assert re.search(rf"resumed: {before} trials are over", ended.err)
    assert_each_trial_exactly_once(study, 8)
    # The total is the total.
    assert cli("resume", study).code == 0
    assert len(trials(study)) == 8


def test_a_dead_fork_server_and_a_dead_worker_are_replaced(hptune: Hptune) -> None:
    gate = hptune.directory / "gate"
    model = hptune.file("model.py", GATED.format(gate=str(gate)))
    started = hptune.start(
        "run", model, "--trials", "6", "--pack", "off", "--study", hptune.study()
    )
    wait_until_running(hptune, started, trials=2)

    def children(of: int, what: str) -> list[int]:
        found = []
        for child in psutil.Process(of).children():
            with contextlib.suppress(psutil.Error):  # it has ended since
                words = (child.name(), *child.cmdline())
                if is_alive(child.pid) and any(what in each for each in words):
                    found.append(child.pid)
        return found

    def running(attempts: int) -> bool:
        found = rows(
            hptune.study(),
            "SELECT count(*) AS n FROM attempts WHERE outcome IS NULL AND started IS NOT NULL "
            f"AND number = {attempts}",
        )
        return bool(found[0]["n"] == 2)

    (warm,) = children(started.pid, "forkserver.server")
    trial_processes = children(warm, "forkserver.server")
    assert len(trial_processes) == 2
    os.kill(warm, signal.SIGKILL)
    wait_for(lambda: running(1), "the trials' second attempts")
    assert not any(is_alive(pid) for pid in trial_processes)

    (server,) = children(started.pid, SERVER_NAME)
    (worker,) = children(server, WORKER_NAME)
    assert "run" in psutil.Process(worker).cmdline(), "it was forked, and imported nothing again"
    os.kill(worker, signal.SIGKILL)
    wait_for(lambda: running(2), "the trials' third attempts")

    gate.touch()
    ended = started.wait()
    assert ended.code == 0, ended.err
    assert "Traceback" not in ended.err
    assert_each_trial_exactly_once(hptune.study(), 6)
    lost = rows(hptune.study(), "SELECT reason FROM attempts WHERE outcome = 'LOST'")
    assert len(lost) == 4


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_full_disk(hptune: Hptune, cli: InProcess) -> None:
    require_root("mount a small file system")
    gate = hptune.directory / "gate"
    model = hptune.file("model.py", WRITING.format(gate=str(gate)))
    small = hptune.directory / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode:
        unavailable(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        study, ballast = small / "study", small / "ballast"
        started = hptune.start("run", model, *LIGHT, "--trials", "30", "--study", study)
        wait_for(lambda: count(study, "state = 'COMPLETE'") >= 2, "two trials")
        with pytest.raises(OSError, match="No space"):
            fill(ballast)
        ended = started.wait()
        assert ended.code == 1, ended.err
        assert "No space left" in ended.err or "full" in ended.err
        assert "hptune resume" in ended.err
        assert "Traceback" not in ended.err
        hptune.assert_nothing_left()
        ballast.unlink()
        gate.touch()
        ended = cli("resume", study, "--trials", "8")
        assert ended.code == 0, ended.err
        found = trials(study)
        assert [trial["number"] for trial in found] == list(range(len(found)))
        assert {trial["state"] for trial in found} == {"COMPLETE"}
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


def test_joblib_workers_survive_the_same_faults(hptune: Hptune, cli: InProcess) -> None:
    gate = hptune.directory / "gate"
    model = hptune.file("model.py", GATED.format(gate=str(gate)))
    study = hptune.study()
    started = hptune.start("run", model, "--trials", "4", "--study", study, "--executor", "joblib")
    wait_until_running(hptune, started)
    started.interrupt()
    ended = started.wait()
    assert (ended.code, "Traceback" in ended.err) == (130, False), ended.err
    outcomes = {row["outcome"] for row in rows(study, "SELECT outcome FROM attempts")}
    assert outcomes == {"RELEASED"}
    hptune.assert_nothing_left()

    started = hptune.start("resume", study)
    wait_for(lambda: rows(study, "SELECT 1 FROM attempts WHERE outcome IS NULL"), "an attempt")
    started.kill()
    hptune.assert_nothing_left()

    gate.touch()
    ended = cli("resume", study)
    assert ended.code == 0, ended.err
    assert_each_trial_exactly_once(study, 4)


def test_a_master_that_reads_the_model_for_long_lives(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no locks, another master would take the study over."""
    monkeypatch.setattr("hptune.storage.lock.HEARTBEAT_SECONDS", 0.1)
    model = cli.file("model.py", SLOW_TO_READ)
    ended = cli("run", model, "--trials", 1, *LIGHT, "--study", cli.study())
    assert ended.code == 0, ended.err


def test_what_is_asked_of_a_master_as_soon_as_it_has_the_lock_is_heard(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, study = cli.file("model.py", QUICK), cli.study()
    assert cli("run", model, "--trials", 1, *LIGHT, "--study", study).code == 0
    send(StudyDirectory(study), UserAction.STOP, tool="hptune stop")  # to no master: not heard
    assert cli("resume", study, "--trials", 2).code == 0
    acquire = StudyDirectory.acquire

    def acquired(directory: StudyDirectory, **options: bool) -> MasterLock:
        lock = acquire(directory, **options)
        assert directory.owner() is not None
        send(StudyDirectory(study), UserAction.STOP, tool="hptune stop")
        return lock

    monkeypatch.setattr(StudyDirectory, "acquire", acquired)
    assert cli("resume", study, "--trials", 50).code == INTERRUPTED
    assert count(study, "state = 'COMPLETE'") < 50


def test_a_file_server_that_fails_is_named_and_the_study_stays(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be seen is not removed."""
    model, study = cli.file("model.py", QUICK), cli.study()
    look, append = os.stat, Ledger.append
    complete = 0

    def fail(ledger: Ledger, *events: Any, **options: Any) -> None:
        nonlocal complete
        complete = complete or count(study, "state = 'COMPLETE'")
        if not complete:
            return append(ledger, *events, **options)
        monkeypatch.setattr(os, "stat", stale)
        raise storage_full(study / "study.db", "disk I/O error")

    def stale(path: Any, *options: Any, **named: Any) -> os.stat_result:
        if str(path).endswith("study.db"):
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return look(path, *options, **named)

    monkeypatch.setattr(Ledger, "append", fail)
    ended = cli("run", model, "--trials", 3, *LIGHT, "--study", study)
    monkeypatch.undo()
    assert ended.code == 1
    assert "disk I/O error" in ended.err
    assert count(study, "state = 'COMPLETE'") == complete > 0
