"""Masters that are told to stop: nothing is lost, and no process or file is left."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import pytest

from hptune.core.clock import SystemClock
from hptune.worker.dask.worker_server import WORKER_NAME
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
from real_runs import COMMAND, Hptune, rows, states, trials, wait_for

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


def test_a_closed_terminal_leaves_joblib_without_complaint(hptune: Hptune) -> None:
    model = hptune.file("model.py", GATED.format(gate=str(hptune.directory / "gate")))
    arguments = ("--trials", 5, "--study", hptune.study(), "--executor", "joblib")
    started = hptune.start("run", model, *arguments)
    wait_until_running(hptune, started)
    os.killpg(started.pid, signal.SIGHUP)
    ended = started.wait()
    assert ended.code == 130
    assert "Error" not in ended.err


def test_a_study_of_its_own_process_survives_the_kernel_of_its_notebook(hptune: Hptune) -> None:
    page = Path(__file__).parents[2] / "docs" / "guide" / "python.md"
    code = re.search(r"^```python\n(import subprocess\n.*?)^```", page.read_text(), re.M | re.S)
    assert code is not None
    hptune.file("model.py", GATED.format(gate=str(hptune.directory / "gate")))
    path = f"{COMMAND.parent}{os.pathsep}{os.environ['PATH']}"
    kernel = hptune.script(f"{code[1]}\nimport time\ntime.sleep(600)\n", PATH=path)
    study = hptune.study("studies/own")
    wait_for(lambda: states(study).get("RUNNING"), "a trial")
    os.killpg(kernel.pid, signal.SIGKILL)
    kernel.wait()
    (hptune.directory / "gate").touch()
    wait_for(lambda: states(study) == {"COMPLETE": 50}, "its end")
    wait_for(lambda: not hptune.processes(), "the end of its processes")


@pytest.mark.parametrize("executor", [(), ("--executor", "joblib")], ids=["dask", "joblib"])
def test_under_nohup_it_survives_its_terminal(hptune: Hptune, executor: tuple[str, ...]) -> None:
    gate = hptune.directory / "gate"
    model = hptune.file("model.py", GATED.format(gate=str(gate)))
    arguments = ("run", model, "--trials", 5, "--study", hptune.study(), *executor)
    started = hptune.other("nohup", COMMAND, *arguments)
    wait_until_running(hptune, started)
    for _ in ("the kernel", "the shell"):
        os.killpg(started.pid, signal.SIGHUP)
    gate.touch()
    ended = started.wait()
    assert ended.code == 0, ended.err
    assert_each_trial_exactly_once(hptune.study(), 5)
    assert len(rows(hptune.study(), "SELECT outcome FROM attempts")) == 5


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
        assert cli("export", "study").out.startswith("trial,state,value,step,")
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

    if how in ("SIGTERM to all", "hang-up"):  # which leave what Ctrl-C leaves
        assert cli("replay", "study").code == 0
        return
    gate.touch()
    ended = cli("resume", "study") if executor else hptune("resume", "study")
    assert ended.code == 0, ended.err
    assert_each_trial_exactly_once(hptune.study(), 5)


@pytest.mark.parametrize(
    ("instant", "how"),
    [
        ("forkserver.server", "Ctrl-C twice"),
        ("forkserver.server", "hang-up"),
        ("forkserver.server", "SIGTERM"),
        (WORKER_NAME, "SIGTERM"),
        pytest.param(WORKER_NAME, "hang-up", marks=pytest.mark.slow),
        pytest.param(WORKER_NAME, "Ctrl-C twice", marks=pytest.mark.slow),
    ],
)
def test_interrupted_while_it_starts(hptune: Hptune, instant: str, how: str) -> None:
    """There is no study yet: both processes import, or Dask's worker starts."""
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
        r"( *\d+s  reading model.py …\n)?"
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
    wait_for(lambda: reached.exists() and (hptune.study() / "lease").exists(), "the start")
    status = cli("status", "study")
    assert (status.code, "is being started by process" in status.err) == (2, True), status
    watched = hptune.start("status", hptune.study(), "--watch")
    stop = hptune.start("stop", hptune.study())
    requests = hptune.study() / "requests"
    wait_for(lambda: requests.read_bytes() or stop.process.poll() is not None, "the request")
    gate.touch()
    stopped = stop.wait()
    waits = r"(waiting until process \d+ on \S+ has stopped …\n)?"  # where that takes seconds
    assert (stopped.code, bool(re.fullmatch(waits, stopped.err))) == (0, True), stopped
    assert f"continue with: hptune resume {hptune.study().name}" in stopped.out
    assert started.wait().code == 130
    seen = watched.wait()
    assert (seen.code, "is being started by process" in seen.out) == (0, True), seen


def test_twice_means_at_once(hptune: Hptune, cli: InProcess) -> None:
    model = hptune.file("model.py", DEAF)
    # At the end of an epoch, which none of them has: nothing but the second Ctrl-C ends them.
    options = ("--trials", "3", "--stop-at", "epoch")
    started = hptune.start("run", model, *options, "--study", hptune.study())
    wait_until_running(hptune, started)
    started.interrupt()
    wait_for(
        lambda: rows(hptune.study(), "SELECT 1 FROM events WHERE kind = 'StopRequested'"),
        "the first Ctrl-C to be taken in",
    )
    started.interrupt()
    ended = started.wait()
    assert ended.code == 130
    assert rows(hptune.study(), "SELECT DISTINCT outcome FROM attempts") == [{"outcome": None}]
    assert f"Stopped at once; continue with: hptune resume {hptune.study().name}" in ended.err
    assert "leaked semaphore" not in ended.err
    hptune.assert_nothing_left()
    assert "not running: interrupted by Ctrl-C; " in cli("status", "study").out
    # It leaves what a killed master leaves; `test_killed_again_and_again` resumes from that.
    assert cli("replay", "study").code == 0


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
    said = "nothing is done: the time limit of 1h00m is reached; a larger --timeout asks for more"
    for more in ((), ("--trials", "20000"), ("--accept-space",)):
        again = cli("resume", "study", *more)
        assert again.code == 0
        assert said in again.err
        assert "resumed" not in again.err
    assert states(cli.study())["COMPLETE"] == done
    last = cli("resume", "study", "--timeout", "9h", "--trials", str(done + 4))
    assert last.code == 0
    assert_each_trial_exactly_once(cli.study(), len(trials(cli.study())))
