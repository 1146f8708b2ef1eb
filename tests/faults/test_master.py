"""Masters that stop or die in every way: nothing is lost, and no process or file is left."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import psutil
import pytest
from in_process import InProcess
from real_runs import Hptune, Started, is_alive, rows, states, trials, wait_for
from requirements import require_root, unavailable

from tuner.cli.output import INTERRUPTED
from tuner.core.clock import SystemClock
from tuner.core.user_requests import UserAction
from tuner.master.user_requests import send
from tuner.storage.directory import StudyDirectory
from tuner.storage.file_errors import storage_full
from tuner.storage.ledger import Ledger
from tuner.storage.lock import MasterLock

# Trials of a length that the test chooses: they end when their gate is there.
GATED = """\
import os, time

GATE = {gate!r}

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    trial.report(1, value=x)
    while not os.path.exists(GATE):
        if trial.should_stop():
            return None
        time.sleep(0.02)
    return x
"""

# Trials that are never done and do not listen.
DEAF = """\
import time

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    trial.report(1, value=x)
    while True:
        try:
            time.sleep(1)
        except BaseException:
            pass
"""

QUICK = """\
import time

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    trial.report(1, value=x)
    time.sleep(0.3)
    return x
"""

# Reading it takes longer than any test.
NEVER_READ = f"import time\ntime.sleep(600)\n{QUICK}"

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

LIGHT = ("--executor", "joblib")
"""A study that is begun so can be resumed by `cli`, where only its ledger matters."""


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


def count(study: Path, condition: str) -> int:
    if not (study / "study.db").exists():
        return 0
    found: int = rows(study, f"SELECT count(*) AS n FROM trials WHERE {condition}")[0]["n"]
    return found


def wait_until_running(hptune: Hptune, started: Started, *, trials: int = 1) -> None:
    def is_running() -> bool:
        assert started.process.poll() is None, started.wait()
        if not (hptune.study() / "study.db").exists():
            return False
        reports = rows(hptune.study(), "SELECT count(DISTINCT trial) AS n FROM reports")
        return bool(reports[0]["n"] >= trials)

    wait_for(is_running, "trials to run")


def assert_each_trial_exactly_once(study: Path, number: int) -> None:
    found = trials(study)
    assert [trial["number"] for trial in found] == list(range(number))
    assert {trial["state"] for trial in found} == {"COMPLETE"}
    finished = rows(study, "SELECT trial FROM attempts WHERE outcome = 'FINISHED' ORDER BY trial")
    assert [row["trial"] for row in finished] == list(range(number))
    assert rows(study, "SELECT * FROM attempts WHERE outcome IS NULL") == []
    # The sampler learns all trials again: no configuration is tried twice.
    assert len({trial["params"]["x"] for trial in found}) == number


def test_a_closed_terminal_leaves_joblib_without_complaint(hptune: Hptune) -> None:
    model = hptune.file("model.py", GATED.format(gate=str(hptune.directory / "gate")))
    arguments = ("--trials", 5, "--study", hptune.study(), "--executor", "joblib")
    started = hptune.start("run", model, *arguments)
    wait_until_running(hptune, started)
    os.killpg(started.pid, signal.SIGHUP)
    ended = started.wait()
    assert ended.code == 130
    assert "Error" not in ended.err


@pytest.mark.parametrize(
    "how",
    ["Ctrl-C", "SIGTERM to all", "hang-up", "hptune stop"],
)
def test_it_stops_and_is_resumed(hptune: Hptune, cli: InProcess, how: str) -> None:
    gate = hptune.directory / "gate"
    model = hptune.file("model.py", GATED.format(gate=str(gate)))
    executor = LIGHT if how == "hptune stop" else ()
    started = hptune.start("run", model, "--trials", "5", "--study", hptune.study(), *executor)
    wait_until_running(hptune, started)

    if how == "Ctrl-C":
        # Meanwhile, it can be watched, and no other master can run it.
        plain = json.loads(cli("status", "study", "--json").out)
        assert plain["master"]["pid"] == started.pid
        assert "running" in cli("status", "study").out
        assert cli("export", "study").out.startswith("trial,state,origin,value")
        ended = cli("best", "study")
        assert (ended.code, "no trial" in ended.err) == (1, True)
        second = cli("resume", "study")
        assert second.code == 1
        assert str(started.pid) in second.err
        assert cli("run", model, "--study", "study").code == 2
        started.interrupt()
    elif how == "SIGTERM to all":
        os.killpg(started.pid, signal.SIGTERM)
    elif how == "hang-up":
        # The kernel and the shell send one each.
        os.killpg(started.pid, signal.SIGHUP)
        os.killpg(started.pid, signal.SIGHUP)
        wait_for(lambda: not (hptune.study() / "lease").exists(), "the study to be stored")
        os.killpg(started.pid, signal.SIGHUP)
    else:
        stopped = hptune("stop", hptune.study())
        assert stopped.code == 0, stopped.err
        assert "hptune resume" in stopped.out

    ended = started.wait()
    assert ended.code == 130
    assert f"hptune resume {hptune.study().name}" in ended.out
    assert "Traceback" not in ended.err
    hptune.assert_nothing_left()
    assert set(states(hptune.study())) == {"WAITING"}
    assert {row["outcome"] for row in rows(hptune.study(), "SELECT outcome FROM attempts")} == {
        "RELEASED"
    }
    if how == "hptune stop":
        again = cli("stop", "study")
        assert (again.code, "nothing to stop" in again.err) == (1, True)

    gate.touch()
    ended = cli("resume", "study") if executor else hptune("resume", "study")
    assert ended.code == 0, ended.err
    assert_each_trial_exactly_once(hptune.study(), 5)


@pytest.mark.parametrize(
    ("instant", "how"),
    [
        ("forkserver.server", "Ctrl-C twice"),
        ("spawn_main", "SIGTERM"),
        ("spawn_main", "hang-up"),
        pytest.param("forkserver.server", "SIGTERM", marks=pytest.mark.slow),
        pytest.param("spawn_main", "Ctrl-C twice", marks=pytest.mark.slow),
    ],
)
def test_interrupted_while_it_starts(hptune: Hptune, instant: str, how: str) -> None:
    """There is no study yet: the framework is imported, or Dask's worker starts."""
    model = hptune.file("model.py", NEVER_READ)
    started = hptune.start("run", model, "--trials", "500", "--study", hptune.study())
    wait_for(lambda: any(instant in each for each in hptune.processes().values()), instant)
    signals = {
        "Ctrl-C twice": (signal.SIGINT, signal.SIGINT),
        "SIGTERM": (signal.SIGTERM,),
        "hang-up": (signal.SIGHUP, signal.SIGHUP),
    }
    for each in signals[how]:
        os.killpg(started.pid, each)
    ended = started.wait()
    assert ended.code == 130, ended
    assert re.fullmatch(
        r" *\d+s  reading model.py and its data …\n"
        r"(interrupted|Stopped at once); no study was made yet\n",
        ended.err,
    ), ended.err
    assert not hptune.study().exists()


def test_a_study_that_is_starting_can_be_stopped(hptune: Hptune, cli: InProcess) -> None:
    reached, gate = hptune.directory / "reached", hptune.directory / "gate"
    reads = f"""\
import os, time
open({str(reached)!r}, "w").close()
while not os.path.exists({str(gate)!r}):
    time.sleep(0.02)
"""
    model = hptune.file("model.py", reads + QUICK)
    started = hptune.start("run", model, "--trials", "500", "--study", hptune.study())
    wait_for(reached.exists, "its code to be read")
    status = cli("status", "study")
    assert (status.code, "is being started by process" in status.err) == (2, True), status
    stop = hptune.start("stop", hptune.study())
    requests = hptune.study() / "requests"
    wait_for(lambda: requests.read_bytes() or stop.process.poll() is not None, "the request")
    gate.touch()
    stopped = stop.wait()
    assert (stopped.code, stopped.err) == (0, "")
    assert f"continue with: hptune resume {hptune.study().name}" in stopped.out
    assert started.wait().code == 130


def test_twice_means_at_once(hptune: Hptune) -> None:
    model = hptune.file("model.py", DEAF)
    started = hptune.start("run", model, "--trials", "3", "--study", hptune.study())
    wait_until_running(hptune, started)
    started.interrupt()
    wait_for(
        lambda: rows(hptune.study(), "SELECT 1 FROM events WHERE kind = 'StopRequested'"),
        "the first Ctrl-C to be taken in",
    )
    started.interrupt()
    ended = started.wait()
    assert ended.code == 130
    # It did not wait until the grace time was over.
    assert rows(hptune.study(), "SELECT DISTINCT outcome FROM attempts") == [{"outcome": None}]
    assert f"Stopped at once; continue with: hptune resume {hptune.study().name}" in ended.err
    assert "leaked semaphore" not in ended.err
    hptune.assert_nothing_left()

    hptune.file("model.py", QUICK)
    assert hptune("resume", hptune.study()).code == 0
    assert_each_trial_exactly_once(hptune.study(), 3)


def test_a_trial_that_ignores_the_order_is_killed_after_the_grace_time(hptune: Hptune) -> None:
    model = hptune.file("model.py", DEAF)
    started = hptune.start("run", model, "--trials", "3", "--study", hptune.study())
    wait_until_running(hptune, started)
    started.interrupt()
    ended = started.wait()
    assert ended.code == 130, ended
    found = rows(hptune.study(), "SELECT outcome, reason FROM attempts WHERE started IS NOT NULL")
    assert {row["outcome"] for row in found} == {"RELEASED"}
    assert all("killed after the grace time" in row["reason"] for row in found)


def test_the_studys_time_is_up(cli: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes forward when a trial is complete, so that the end comes in the middle."""
    time_now = SystemClock.now

    def now(clock: SystemClock) -> float:
        return time_now(clock) + (3600.0 if count(cli.study(), "state = 'COMPLETE'") else 0.0)

    monkeypatch.setattr(SystemClock, "now", now)
    model = cli.file("model.py", QUICK)
    short = ("--trials", "10000", "--timeout", "1h")
    ended = cli("run", model, *LIGHT, *short, "--study", cli.study())
    assert ended.code == 0, ended.err
    assert "time" in ended.out
    assert f"hptune resume {cli.study().name} --timeout" in ended.out
    done = states(cli.study())["COMPLETE"]
    assert 1 <= done < 40
    # No time is left, and none is taken.
    again = cli("resume", "study")
    assert again.code == 0
    assert states(cli.study())["COMPLETE"] == done
    more = cli("resume", "study", "--timeout", "9h", "--trials", str(done + 4))
    assert more.code == 0
    assert_each_trial_exactly_once(cli.study(), len(trials(cli.study())))


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
    wait_for(
        lambda: any("forkserver.server" in p for p in hptune.processes().values()), "the start"
    )
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
    ended = hptune("resume", study, "--trials", "10")
    assert ended.code == 0, ended.err
    assert_each_trial_exactly_once(study, 10)


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
                if is_alive(child.pid) and any(what in argument for argument in child.cmdline()):
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

    (worker,) = children(started.pid, "spawn_main")
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
    monkeypatch.setattr("tuner.storage.lock.HEARTBEAT_SECONDS", 0.1)
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

    def acquired(directory: StudyDirectory) -> MasterLock:
        lock = acquire(directory)
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
        complete = count(study, "state = 'COMPLETE'")
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
