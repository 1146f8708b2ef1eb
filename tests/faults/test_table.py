"""The fault table: every place of a trial by every manner of death, in real processes.

A trial trains four epochs and writes a checkpoint after each. At its place, its first attempt
does what its manner says; so the death is exactly there, and no test has to wait for the moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from pathlib import Path

import pytest

from hptune.worker import process_ids
from real_runs import Hptune, Started, rows, trials, wait_for
from requirements import unavailable

PLACES = ("before start", "mid-epoch", "during the checkpoint", "after the result")
MANNERS = {
    "exception": "raise ValueError('on purpose')",
    "os._exit": "os._exit(3)",
    "SIGKILL": "os.kill(os.getpid(), signal.SIGKILL)",
    "SIGTERM": "os.kill(os.getpid(), signal.SIGTERM)",
    "SIGSTOP": "stop_for(0.5)",
    "out of memory": "raise MemoryError()",
    "lost worker": "end_above('hptune-worker'); time.sleep(60)",
    "lost fork server": "end_above('forkserver.server'); time.sleep(60)",
    "lost master": "kill_master(); time.sleep(60)",
}

MODEL = """\
import atexit, json, os, pathlib, signal, subprocess, sys, time

def stop_for(seconds):
    me = os.getpid()
    # It waits for the stop: a signal that came before it would wake nobody.
    waking = f'''
import os, pathlib, signal, time
while ") T " not in pathlib.Path("/proc/{{me}}/stat").read_text():
    time.sleep(0.01)
time.sleep({{seconds}})
os.kill({{me}}, signal.SIGCONT)
'''
    subprocess.Popen([sys.executable, "-c", waking])
    os.kill(me, signal.SIGSTOP)

def end_above(word):
    study = pathlib.Path(sys.argv[0]).parent
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            ours = os.environ["HPTUNE_TEST_MARK"].encode() in (entry / "environ").read_bytes()
            if ours and word in (entry / "comm").read_text() + (entry / "cmdline").read_text():
                if word == "forkserver.server" and int(entry.name) != os.getppid():
                    continue
                if int(entry.name) != os.getpid():
                    os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            pass

def kill_master():
    lease = pathlib.Path(os.environ["STUDY"]) / "lease"
    os.kill(json.loads(lease.read_text())["pid"], signal.SIGKILL)

def objective(hp, trial):
    place = hp.Choice("place", {places})
    manner = hp.Choice("manner", {manners})
    x = hp.Choice("x", [1])
    marker = trial.checkpoint_dir / "died"

    def die(where):
        if where == place and not marker.exists():
            marker.touch()
            MANNERS[manner]()

    die("before start")
    state = trial.checkpoint_dir / "state.json"
    epoch = json.loads(state.read_text()) if state.exists() else 0
    while epoch < 4:
        epoch += 1
        if epoch == 2:
            die("mid-epoch")
        fresh = state.with_suffix(".new")
        fresh.write_text("[")
        if epoch == 3:
            die("during the checkpoint")
        fresh.write_text(json.dumps(epoch))
        fresh.replace(state)
        trial.report(epoch, value=float(epoch))
    atexit.register(die, "after the result")
    return {{"value": epoch * 10.0}}

MANNERS = {{
{table}
}}
"""


def model(manners: dict[str, str], places: tuple[str, ...] = PLACES) -> str:
    def body(words: str) -> str:
        statements = ", ".join(f"{each.strip()!r}" for each in words.split(";"))
        return f"lambda: [exec(each, globals()) for each in ({statements},)]"

    table = "\n".join(f"    {name!r}: {body(words)}," for name, words in manners.items())
    return MODEL.format(places=list(places), manners=list(manners), table=table)


def assert_all_counted_once(study: Path, failed: set[str], cells: int) -> None:
    """Check that every cell has one trial with one result, and that only these trials failed."""
    found = trials(study)
    assert len({(t["params"]["place"], t["params"]["manner"]) for t in found}) == cells
    assert len(found) == cells
    for trial in found:
        place, manner = trial["params"]["place"], trial["params"]["manner"]
        died = manner in failed and place != "after the result"
        wanted = ("FAILED", None) if died else ("COMPLETE", 40.0)
        assert (trial["state"], trial["value"]) == wanted, trial
        ends = rows(study, f"SELECT outcome FROM attempts WHERE trial = {trial['number']}")
        outcomes = [row["outcome"] for row in ends]
        assert outcomes[-1] == ("ERRORED" if died else "FINISHED")
        assert set(outcomes[:-1]) <= {"LOST", "RELEASED"}
        steps = [row["step"] for row in rows(
            study, f"SELECT step FROM reports WHERE trial = {trial['number']} ORDER BY rowid"
        )]  # fmt: skip
        if not died and manner not in ("lost worker", "lost fork server", "lost master"):
            # No epoch is trained twice.
            assert steps == [1, 2, 3, 4], trial


OF_TRIALS = ("exception", "os._exit", "SIGKILL", "SIGTERM", "SIGSTOP", "out of memory")


def test_every_way_for_a_trial_to_die(hptune: Hptune) -> None:
    manners = {name: MANNERS[name] for name in OF_TRIALS}
    path = hptune.file("model.py", model(manners))
    study = hptune.study()
    ended = hptune(
        "run", path, "--search", "grid", "--study", study, "--workers", "2", "--same-failures", "0"
    )
    assert ended.code == 0, ended.err
    assert_all_counted_once(study, {"exception", "os._exit"}, len(manners) * len(PLACES))
    reasons = {row["reason"] for row in rows(study, "SELECT reason FROM attempts")}
    for word in ("ValueError: on purpose", "exited with status 3", "SIGKILL", "SIGTERM",
                 "MemoryError"):  # fmt: skip
        assert any(word in reason for reason in reasons), reasons
    hptune.assert_nothing_left()


@pytest.mark.slow
def test_a_trial_that_stands_still_for_a_minute_goes_on(hptune: Hptune) -> None:
    """A debugger or a swapping machine makes it late, but it is neither dead nor hung."""
    places = ("mid-epoch", "during the checkpoint")
    path = hptune.file("model.py", model({"SIGSTOP": "stop_for(60)"}, places))
    study = hptune.study()
    ended = hptune("run", path, "--search", "grid", "--study", study, "--workers", "2", seconds=200)
    assert ended.code == 0, ended.err
    assert_all_counted_once(study, set(), len(places))
    attempts = rows(study, "SELECT started, ended FROM attempts")
    assert len(attempts) == len(places)
    assert all(row["ended"] - row["started"] > 59 for row in attempts)
    hptune.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("manner", ["lost worker", "lost fork server"])
def test_what_carries_the_trials_dies(hptune: Hptune, manner: str) -> None:
    path = hptune.file("model.py", model({manner: MANNERS[manner]}))
    study = hptune.study()
    ended = hptune("run", path, "--search", "grid", "--study", study, "--workers", "2")
    assert ended.code == 0, ended.err
    assert_all_counted_once(study, set(), len(PLACES))
    hptune.assert_nothing_left()


def test_what_nobody_was_left_to_remove_goes_with_the_next_run(hptune: Hptune) -> None:
    path = hptune.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)")
    dead, living = (hptune.temporary / name for name in ("hptune-dead", "hptune-living"))
    here = process_ids.place()
    for folder, began in ((dead, "1"), (living, process_ids.began(os.getpid()))):
        folder.mkdir(mode=0o700)
        (folder / "owner").write_text(f"{here} {os.getpid()} {began}")
    assert hptune("run", path, "--trials", "1", "--executor", "joblib").code == 0
    assert [each.name for each in hptune.temporary.glob("hptune-*")] == ["hptune-living"]
    shutil.rmtree(living)


@pytest.mark.parametrize(
    "place",
    [each if each == "mid-epoch" else pytest.param(each, marks=pytest.mark.slow)
     for each in PLACES],
)  # fmt: skip
def test_the_master_is_lost(hptune: Hptune, place: str) -> None:
    path = hptune.file("model.py", model({"lost master": MANNERS["lost master"]}, (place,)))
    study = hptune.study()
    started = hptune.start("run", path, "--search", "grid", "--study", study, "--executor",
                           "joblib", STUDY=str(study))  # fmt: skip
    assert started.wait().code == -9
    hptune.assert_nothing_left()
    ended = hptune("resume", study, STUDY=str(study))
    assert ended.code == 0, ended.err
    assert_all_counted_once(study, set(), 1)
    assert json.loads((study / "best" / "best.json").read_text())["value"] == 40.0
    hptune.assert_nothing_left()


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES)
def test_the_dask_scheduler_is_lost(hptune: Hptune, place: str) -> None:
    manner = {"lost scheduler": "os.kill(int(open('scheduler').read()), signal.SIGKILL)"}
    path = hptune.file("model.py", model(manner, (place,)))
    study = hptune.study()

    def meet(port: int) -> tuple[Started, str]:
        started = hptune.start("scheduler", "--port", port)
        assert started.process.stdout is not None
        found = re.search(r"tls://\S+:\d+", started.process.stdout.readline())
        assert found
        return started, found[0]

    scheduler, address = meet(0)
    (hptune.directory / "scheduler").write_text(str(scheduler.pid))
    worker = hptune.start("worker", address, "--cpus", 1)
    started = hptune.start("run", path, "--search", "grid", "--study", study, "--connect", address)
    ended = started.wait(seconds=200)
    assert (ended.code, "connection to the Dask scheduler is lost" in ended.err) == (1, True)
    scheduler.wait()
    again, _ = meet(int(address.rpartition(":")[2]))
    resumed = hptune("resume", study, seconds=200)
    assert resumed.code == 0, resumed.err
    assert_all_counted_once(study, set(), 1)
    for each in (worker, again):
        each.process.terminate()
        each.wait()
    hptune.assert_nothing_left()


CGROUP = Path("/sys/fs/cgroup")


def small_cgroup() -> Path | None:
    """Return a control group of the memory controller, if this user may make one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(",") or not controllers:
            base = CGROUP / "memory" if controllers else CGROUP
            group = base / path.strip("/") / f"hptune-test-{os.getpid()}"
            limit = "memory.limit_in_bytes" if controllers else "memory.max"
            with contextlib.suppress(OSError):
                group.mkdir()
                if (group / limit).exists():
                    (group / limit).write_text(str(LIMIT_BYTES))
                    return group
                group.rmdir()
    return None


def was_removed(group: Path) -> bool:
    with contextlib.suppress(OSError):
        group.rmdir()
    return not group.exists()


LIMIT_BYTES = 2_500_000_000
GREEDY = """
import time

def objective(hp, trial):
    greedy = hp.Boolean("greedy")
    trial.report(1, value=0.5)
    held = []
    for _ in range(60 if greedy else 0):
        held.append(bytearray(100 << 20))
        time.sleep(0.02)
    return 1.0
"""


@pytest.mark.slow
def test_the_kernel_ends_a_trial_for_its_memory_and_nothing_else(hptune: Hptune) -> None:
    group = small_cgroup()
    if group is None:
        unavailable("no control group can be made here")
    path, study = hptune.file("model.py", GREEDY), hptune.study()
    try:
        started = hptune.start("run", path, "--search", "grid", "--workers", "1", "--study", study)
        (group / "cgroup.procs").write_text(str(started.pid))
        ended = started.wait(seconds=200)
        assert ended.code == 0, ended.err
        hptune.assert_nothing_left()
    finally:
        # The kernel takes a moment to see that the group is empty.
        wait_for(lambda: was_removed(group), "the control group to be empty")
    greedy = rows(study, "SELECT * FROM trials WHERE state = 'FAILED'")
    assert len(greedy) == 1
    ends = rows(study, f"SELECT outcome, reason FROM attempts WHERE trial = {greedy[0]['number']}")
    assert [row["outcome"] for row in ends] == ["LOST", "ERRORED"]
    for row in ends:
        assert "killed by SIGKILL: out of memory (oom_kill in " in row["reason"]
        assert "of 2.5 GB" in row["reason"]
