"""Faults of single ranks of parallel trials, in real processes.

A trial of two processes trains four epochs; in each, the ranks exchange data, and rank 0 writes a
checkpoint. At its place, one rank of its first attempt is killed or stopped. The attempt is lost,
unless there is a result; the trial goes on from its checkpoint.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from real_runs import Hptune, rows, trials, wait_for

DEATHS = ("SIGKILL 0", "SIGKILL 1", "SIGSTOP 0", "SIGSTOP 1")
"""Each a signal, and the rank that gets it."""

PLACES = ("mid-training", "during the checkpoint", "after the result")

MODEL = """\
import atexit, json, os, signal, time

def objective(hp, trial):
    place = hp.Choice("place", {places})
    manner, rank = hp.Choice("dies", {dies}).split()
    marker = trial.directory / "died"

    def die(where):
        if where == place and int(rank) == trial.rank and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), getattr(signal, manner))
            time.sleep(600)

    state = trial.checkpoint_dir / "state.json"
    epoch = json.loads(state.read_text()) if state.exists() else 0
    while epoch < 4:
        trial.ranks.gather(b"gradients")
        epoch += 1
        if epoch == 2:
            die("mid-training")
        if epoch == 3:
            die("during the checkpoint")
        if trial.rank == 0:
            fresh = state.with_suffix(".new")
            fresh.write_text(json.dumps(epoch))
            fresh.replace(state)
        trial.report(epoch, value=float(epoch))
        if trial.should_stop():
            return
    atexit.register(die, "after the result")
    return {{"value": epoch * 10.0}}
"""


def run(hptune: Hptune, *, places: tuple[str, ...], dies: tuple[str, ...]) -> Path:
    path = hptune.file("model.py", MODEL.format(places=list(places), dies=list(dies)))
    study = hptune.study()
    ended = hptune(
        "run", path, "--search", "grid", "--study", study, "--processes-per-trial", "2",
        "--workers", "1", seconds=500,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    hptune.assert_nothing_left()
    return study


def check(study: Path, *, cells: int) -> None:
    """Check that each trial has one result, in a second attempt if a rank died before it."""
    found = trials(study)
    assert len(found) == cells
    for trial in found:
        number = trial["number"]
        assert (trial["state"], trial["value"]) == ("COMPLETE", 40.0), trial
        attempts = rows(study, f"SELECT * FROM attempts WHERE trial = {number} ORDER BY number")
        outcomes = [row["outcome"] for row in attempts]
        if trial["params"]["place"] == "after the result":
            assert outcomes == ["FINISHED"]
        else:
            assert outcomes == ["LOST", "FINISHED"]
            manner, rank = trial["params"]["dies"].split()
            assert manner in attempts[0]["reason"]
            assert attempts[0]["reason"].endswith(f"(rank {rank})"), attempts[0]["reason"]
        assert all(row["ended"] - row["started"] < 120.0 for row in attempts)
        steps = rows(study, f"SELECT step FROM reports WHERE trial = {number} ORDER BY rowid")
        assert [row["step"] for row in steps] == [1, 2, 3, 4], "an epoch was trained twice"


def test_a_rank_that_is_killed_or_stopped_ends_its_attempt_alone(hptune: Hptune) -> None:
    # One that is stopped is killed after ten seconds.
    dies = ("SIGKILL 0", "SIGKILL 1", "SIGSTOP 0")
    study = run(hptune, places=("mid-training",), dies=dies)
    check(study, cells=len(dies))


@pytest.mark.slow
def test_every_place_at_which_a_rank_can_die(hptune: Hptune) -> None:
    study = run(hptune, places=PLACES, dies=DEATHS)
    check(study, cells=len(PLACES) * len(DEATHS))


WAITS = """\
import json, pathlib, time

def objective(hp, trial):
    hp.Choice("x", [1])
    state = trial.checkpoint_dir / "state.json"
    epoch = json.loads(state.read_text()) if state.exists() else 0
    while epoch < 4:
        trial.ranks.gather(b"gradients")
        epoch += 1
        if trial.rank == 0:
            state.write_text(json.dumps(epoch))
        trial.report(epoch, value=float(epoch))
        while epoch == 2 and not pathlib.Path("go").exists():
            if trial.should_stop():
                return
            time.sleep(0.01)
    return 40.0
"""


def reported(study: Path) -> int:
    """Return how many epochs the trial has reported; 0 without a study."""
    database = study / "study.db"
    return len(rows(study, "SELECT step FROM reports")) if database.exists() else 0


@pytest.mark.slow
def test_a_parallel_trial_ends_with_its_master_and_goes_on_after_it(hptune: Hptune) -> None:
    path, study = hptune.file("model.py", WAITS), hptune.study()
    started = hptune.start(
        "run", path, "--search", "grid", "--study", study, "--processes-per-trial", 2
    )
    wait_for(lambda: reported(study) >= 2, "two epochs")
    started.kill()
    hptune.assert_nothing_left()
    (hptune.directory / "go").touch()
    ended = hptune("resume", study)
    assert ended.code == 0, ended.err
    (trial,) = trials(study)
    assert (trial["state"], trial["value"]) == ("COMPLETE", 40.0)
    assert reported(study) == 4
    hptune.assert_nothing_left()


@pytest.mark.slow
def test_all_ranks_are_released_when_a_worker_leaves(hptune: Hptune) -> None:
    path, study = hptune.file("model.py", WAITS), hptune.study()
    scheduler = hptune.start("scheduler", "--port", 0, "--scheduler-file", "scheduler.json")
    file = hptune.directory / "scheduler.json"
    wait_for(file.exists, "the scheduler")
    workers = [hptune.start("worker", file, "--cpus", 2) for _ in range(1)]
    started = hptune.start(
        "run", path, "--search", "grid", "--study", study, "--connect", file,
        "--processes-per-trial", 2,
    )  # fmt: skip
    wait_for(lambda: reported(study) >= 2, "two epochs")
    workers[0].process.send_signal(signal.SIGTERM)
    assert workers[0].wait().code == 0
    (hptune.directory / "go").touch()
    workers.append(hptune.start("worker", file, "--cpus", 2))
    ended = started.wait()
    assert ended.code == 0, ended.err
    outcomes = [row["outcome"] for row in rows(study, "SELECT outcome FROM attempts")]
    assert outcomes == ["RELEASED", "FINISHED"]
    assert reported(study) == 4
    for each in (workers[1], scheduler):
        each.process.terminate()
        each.wait()
    hptune.assert_nothing_left()


EARLY = """\
def objective(hp, trial):
    hp.Choice("x", [1])
    for step in range(20_000 if trial.rank == 0 else 3):
        if trial.should_stop():
            return
    if trial.rank == 0:
        trial.ranks.gather(b"a collective of the framework")
    return 1.0
"""


@pytest.mark.slow
def test_a_rank_that_returns_before_the_others_is_named(hptune: Hptune) -> None:
    path, study = hptune.file("model.py", EARLY), hptune.study()
    hptune("run", path, "--search", "grid", "--study", study, "--processes-per-trial", 2)
    (trial,) = trials(study)
    assert trial["state"] == "FAILED"
    assert "rank 1 had finished its training when rank 0" in trial["reason"]
    assert "call should_stop at the same points" in trial["reason"]
    hptune.assert_nothing_left()
