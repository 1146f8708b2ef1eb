"""Real trials that mostly wait come to share this machine's cores, and what shares one floats."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3

import pytest

from in_process import InProcess
from real_runs import Hptune

WAITING = """
    import os
    import time

    OBJECTIVE = "loss:min"

    def objective(hp, trial):
        held = bytearray(hp.Int("megabytes", 20, 60) << 20)
        for step in range(1, 13):
            time.sleep(0.5)
            trial.report(step, loss=1 / step)
        return {"loss": len(held), "cores": len(os.sched_getaffinity(0))}
"""


def test_trials_that_wait_share_cores(hptune: Hptune, cli: InProcess) -> None:
    hptune.file("model.py", WAITING)
    cores = len(os.sched_getaffinity(0))
    trials = 6 * cores
    ended = hptune("run", "model.py", "--trials", trials, "--search", "random", "--study", "s")
    assert ended.code == 0, ended.err
    assert "trials share a core (each uses" in ended.err
    with contextlib.closing(sqlite3.connect(hptune.directory / "s" / "study.db")) as database:
        query = "SELECT devices, placed, ended FROM attempts ORDER BY placed"
        rows = [(json.loads(d), placed, over) for d, placed, over in database.execute(query)]
        metrics = [json.loads(each) for (each,) in database.execute("SELECT metrics FROM trials")]
    at_once = max(sum(p <= placed < over for _, p, over in rows) for _, placed, _ in rows)
    assert at_once > cores
    last = rows[-1][0]
    assert last["cpu_share"] < 1
    assert 20 << 20 < last["memory_bytes"] < 400 << 20
    assert "trials share a core (each uses" in last["why"]
    if cores > 1:
        assert {each["cores"] for each in metrics} == {1, cores}
    status = cli("status", "s")
    assert f"packed   {last['why']}"[:40] in status.out


def test_a_search_that_learns_is_left_trials_to_learn_from(hptune: Hptune, cli: InProcess) -> None:
    hptune.file("model.py", WAITING.replace("range(1, 13)", "range(1, 8)"))
    cores = len(os.sched_getaffinity(0))
    arguments = ("--trials", 3 * cores, "--search", "tpe", "--study", "s")
    ended = hptune("run", "model.py", *arguments)
    assert ended.code == 0
    assert ended.err.count("but the search learns from earlier trials; --cpus-per-trial") == 1
    with contextlib.closing(sqlite3.connect(hptune.directory / "s" / "study.db")) as database:
        held = [json.loads(d) for (d,) in database.execute("SELECT devices FROM attempts")]
    assert {each["cpu_share"] for each in held} == {1.0}
    assert "packed" not in cli("status", "s").out, "no trial shared a core"


@pytest.mark.slow
def test_packing_can_be_left_out(hptune: Hptune) -> None:
    hptune.file("model.py", WAITING.replace("range(1, 13)", "range(1, 8)"))
    cores = len(os.sched_getaffinity(0))
    arguments = ("--trials", 2 * cores, "--search", "random", "--pack", "off", "--study", "s")
    assert hptune("run", "model.py", *arguments).code == 0
    with contextlib.closing(sqlite3.connect(hptune.directory / "s" / "study.db")) as database:
        held = [json.loads(d) for (d,) in database.execute("SELECT devices FROM attempts")]
    assert {(each["cpu_share"], each["memory_bytes"]) for each in held} == {(1.0, 0)}
