"""What a trial starts ends with the trial, however that and the processes above it end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attempts import Attempts
from real_runs import Hptune, is_alive, states, trials

MODEL = """\
import json, multiprocessing, os, pathlib, signal, subprocess, sys, time

HERE = pathlib.Path(__file__).with_name("orphans")

def start_all():
    \"\"\"Start processes that leave the trial's session, and one that shares a semaphore.\"\"\"
    sleep = [sys.executable, "-S", "-c", "import time; time.sleep(600)"]
    own_session = subprocess.Popen(sleep, start_new_session=True).pid
    reading, writing = os.pipe()
    if not os.fork():
        os.setsid()
        if daemon := os.fork():
            os.write(writing, str(daemon).encode())
            os._exit(0)
        time.sleep(600)
    forked = int(os.read(reading, 100))
    shared = multiprocessing.get_context("spawn").Semaphore()
    tracker = multiprocessing.resource_tracker._resource_tracker._pid
    while "resource_tracker" not in pathlib.Path(f"/proc/{{tracker}}/cmdline").read_text():
        time.sleep(0.01)
    pids = [own_session, forked, tracker]
    HERE.write_text(json.dumps([pids, f"/dev/shm/sem.{{shared._semlock.name[1:]}}"]))
    return shared

def left():
    if not HERE.exists():
        return []
    pids, semaphore = json.loads(HERE.read_text())
    return [*filter(is_alive, pids), *filter(os.path.exists, [semaphore])]

def is_alive(pid):
    try:  # a zombie whose parent does not care is dead
        return ") Z" not in pathlib.Path(f"/proc/{{pid}}/stat").read_text()
    except OSError:
        return False

def kill_above():
    # The runner's process, in which hptune's workers live, is killed before it can notice.
    server = os.getppid()
    runner = int(pathlib.Path(f"/proc/{{server}}/stat").read_text().rpartition(")")[2].split()[1])
    master = json.loads((pathlib.Path(os.environ["STUDY"]) / "lease").read_text())["pid"]
    for pid in (server, runner, master):
        os.kill(pid, signal.SIGSTOP)
    for pid in (runner, master, server):
        os.kill(pid, signal.SIGKILL)

WAYS = {{
    "return": lambda: None,
    "os._exit": lambda: os._exit(3),
    "fork server": lambda: os.kill(os.getppid(), signal.SIGKILL),
    "everything": kill_above,
}}

def objective(hp, trial):
    way = hp.Choice("way", {ways})
    found = left()
    if found:
        raise RuntimeError(f"still there: {{found}}")
    marker = trial.checkpoint_dir / "died"
    if not marker.exists():
        marker.touch()
        shared = start_all()
        WAYS[way]()
    return 1.0
"""


def still_there(pids: list[int], semaphore: str) -> list[object]:
    return [*filter(is_alive, pids), *filter(None, [Path(semaphore).exists() and semaphore])]


def test_processes_of_a_trial_end_with_it(hptune: Hptune) -> None:
    model = hptune.file("model.py", MODEL.format(ways=["return", "os._exit", "fork server"]))
    ended = hptune("run", model, "--search", "grid", "--workers", "1", "--executor", "joblib",
                   "--study", hptune.study())  # fmt: skip
    assert ended.code == 0, ended.err
    found = {trial["params"]["way"]: trial["reason"] for trial in trials(hptune.study())}
    exited = "its process exited with status 3 and gave no result"
    assert found == {"return": "", "os._exit": exited, "fork server": ""}
    pids, semaphore = json.loads((hptune.directory / "orphans").read_text())
    hptune.assert_nothing_left()
    assert still_there(pids, semaphore) == []


LONG_TRIAL = """\
import contextlib, os, pathlib, subprocess, time
from hptune.worker.monitoring import usage

def zombies():
    mine = (os.getpid(), os.getppid())
    stats = []
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended since
            stats.append(path.read_text())
    fields = [stat.rpartition(")")[2].split() for stat in stats]
    return sum(state == "Z" and int(parent) in mine for state, parent, *_ in fields)

def objective(hp, trial):
    own = subprocess.Popen(["sh", "-c", "exit 7"])
    for _ in range(20):
        subprocess.run(["sh", "-c", "true &"], check=True)
    start = "setsid sleep 600 > /dev/null 2>&1 & echo $!"
    daemon = subprocess.run(["sh", "-c", start], capture_output=True, text=True).stdout.strip()
    name = pathlib.Path(f"/proc/{daemon}/comm")
    end = time.monotonic() + 60
    while (zombies() != 1 or name.read_text() != "sleep\\n") and time.monotonic() < end:
        time.sleep(0.01)
    found = zombies()
    assert name.read_text() == "sleep\\n"
    assert int(daemon) in usage.sample(os.getpid()).pids
    return {"value": own.wait(), "zombies": found, "daemon": int(daemon)}
"""


def test_a_trial_keeps_no_zombies_of_what_it_did_not_start_itself(attempts: Attempts) -> None:
    """A process per step, for a week, would use up the process ids of its machine."""
    ended = attempts.run(LONG_TRIAL).ending
    assert ended.metrics == {"value": 7.0, "zombies": 1.0, "daemon": ended.metrics["daemon"]}, ended
    assert not is_alive(int(ended.metrics["daemon"]))


def test_the_next_master_ends_what_a_killed_one_left(hptune: Hptune) -> None:
    model = hptune.file("model.py", MODEL.format(ways=["everything"]))
    # The next study of this machine ends them as well; where tests run side by side, at any time.
    for attempt in range(10):
        study = hptune.study(f"study{attempt}")
        ended = hptune("run", model, "--search", "grid", "--workers", "1", "--executor", "joblib",
                       "--study", study, STUDY=str(study))  # fmt: skip
        assert ended.code == -9, ended
        pids, semaphore = json.loads((hptune.directory / "orphans").read_text())
        if [*filter(is_alive, pids[:2])] == pids[:2]:
            break
    else:
        pytest.fail("they ended without a next master")
    ended = hptune("resume", study, STUDY=str(study))
    assert ended.code == 0, ended.err
    assert states(study) == {"COMPLETE": 1}
    hptune.assert_nothing_left()
    assert still_there(pids, semaphore) == []
