"""Trials on workers that outlive the master: they continue without it, and are counted once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hptune.core.messages import AttemptEnded
from hptune.storage.attempt_journal import read_journal
from real_runs import Hptune, Started, rows, trials, wait_for

MODEL = """
import os, time

OBJECTIVE = "loss:min"

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    for step in range(1, 4):
        trial.report(step, loss=x / step)
    while not os.path.exists({gate!r}):
        if trial.should_stop():
            return None
        time.sleep(0.02)
    for step in range(4, 7):
        trial.report(step, loss=x / step)
    return {{"loss": x}}
"""


def begin(hptune: Hptune) -> tuple[Started, Started, Started, Path]:
    """Start a scheduler, a worker of two cores, and a study; return when both trials train."""
    gate = hptune.directory / "gate"
    model = hptune.file("model.py", MODEL.format(gate=str(gate)))
    scheduler = hptune.start("scheduler", "--port", 0)
    assert scheduler.process.stdout is not None
    found = re.search(r"tls://\S+", scheduler.process.stdout.readline())
    assert found
    worker = hptune.start("worker", found[0], "--cpus", 2)
    study = hptune.study()
    master = hptune.start("run", model, "--connect", found[0], "--study", study, "--trials", 2,
                          "--seed", 1, "--search", "random")  # fmt: skip

    def in_the_middle() -> bool:
        assert master.process.poll() is None, master.wait()
        query = "SELECT count(DISTINCT trial) AS n FROM reports WHERE step = 3"
        return (study / "study.db").exists() and rows(study, query)[0]["n"] == 2

    wait_for(in_the_middle, "two trials in their middle")
    return scheduler, worker, master, gate


def have_ended(study: Path) -> bool:
    journals = [read_journal(path) for path in (study / "trials").glob("*/journal/*.events")]
    return sum(isinstance(each, AttemptEnded) for events in journals for each in events) == 2


def assert_counted_once(study: Path) -> None:
    for trial in trials(study):
        assert (trial["state"], trial["value"]) == ("COMPLETE", trial["params"]["x"])
        ends = rows(study, f"SELECT * FROM attempts WHERE trial = {trial['number']}")
        assert [row["outcome"] for row in ends] == ["FINISHED"]
        assert ends[0]["peak_memory_bytes"] > 0
        steps = rows(study, f"SELECT step FROM reports WHERE trial = {trial['number']}")
        assert sorted(row["step"] for row in steps) == [1, 2, 3, 4, 5, 6]
    assert not list((study / "trials").glob("*/journal"))


@pytest.mark.slow
def test_trials_outlive_a_killed_master(hptune: Hptune) -> None:
    scheduler, worker, master, gate = begin(hptune)
    study = hptune.study()
    master.kill()
    gate.touch()
    wait_for(lambda: have_ended(study), "the trials to end without a master")
    assert {row["outcome"] for row in rows(study, "SELECT outcome FROM attempts")} == {None}
    resumed = hptune("resume", study)
    assert resumed.code == 0, resumed
    assert_counted_once(study)
    for each in (worker, scheduler):
        each.process.terminate()
        each.wait()
    hptune.assert_nothing_left()


@pytest.mark.slow
def test_trials_outlive_a_killed_scheduler_and_a_dead_collector(hptune: Hptune) -> None:
    scheduler, worker, master, gate = begin(hptune)
    study = hptune.study()
    scheduler.kill()
    assert master.wait().code == 1
    gate.touch()
    wait_for(lambda: have_ended(study), "the trials to end without a scheduler")
    # The collecting master may die at any time; here, before it has a scheduler.
    collector = hptune.start("resume", study)
    collected = "SELECT count(*) AS n FROM attempts WHERE outcome = 'FINISHED'"
    wait_for(lambda: rows(study, collected)[0]["n"] == 2, "the results to be in the ledger")
    collector.kill()
    worker.process.terminate()
    worker.wait()
    again = hptune.start("scheduler", "--port", 0)
    assert again.process.stdout is not None
    found = re.search(r"tls://\S+", again.process.stdout.readline())
    assert found
    resumed = hptune("resume", study, "--connect", found[0])
    assert resumed.code == 0, resumed
    assert_counted_once(study)
    again.process.terminate()
    again.wait()
    hptune.assert_nothing_left()
