"""A scheduler, workers and a study in containers with networks and limits of their own."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from real_containers import Container, Containers, note
from real_runs import Hptune, rows, trials, wait_for

STEPS = 6
MODEL = """
import json, pathlib, time

OBJECTIVE = "score:max"

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    state, kept = trial.checkpoint_dir / "state.json", [0.0]
    if trial.resumed_from is not None and state.exists():
        kept = json.loads(state.read_text())[:trial.resumed_from + 1]
    for step in range(len(kept), 7):
        kept.append(kept[-1] + x * step)
        state.write_text(json.dumps(kept))
        trial.report(step, score=kept[-1])
        while step >= 3 and not pathlib.Path("/project/go").exists():
            if trial.should_stop():
                return None
            time.sleep(0.02)
    return kept[-1]
"""
"""Model file whose trials wait in their middle until the file `go` is there."""

CERTS = ("--certs", "/project/certs/worker.pem")


def start_scheduler(containers: Containers) -> tuple[Container, str]:
    """Start a scheduler; return it and its address."""
    given = ("--host", containers.address("scheduler"), "--certs", "/project/certs")
    started = containers.start("scheduler", "scheduler", *given)
    return started, started.until(r"join:  hptune worker (tls://\S+)")[1]


def attempts(study: Path) -> list[dict[str, Any]]:
    if not (study / "study.db").exists():
        return []
    return rows(study, "SELECT * FROM attempts ORDER BY trial, number")


def in_the_middle(study: Path) -> list[int]:
    if not (study / "study.db").exists():
        return []
    return [row["trial"] for row in rows(study, "SELECT trial FROM reports WHERE step = 3")]


def test_containers_join_a_study_use_what_they_may_and_leave_without_loss(
    containers: Containers, hptune: Hptune
) -> None:
    (containers.work / "model.py").write_text(MODEL)
    study = containers.work / "study"
    began = time.monotonic()
    scheduler, address = start_scheduler(containers)
    seconds = time.monotonic() - began
    note(f"from the start of a scheduler's container to its address: {seconds:.1f} s")
    assert address == f"tls://{containers.address('scheduler')}:8786"
    run = containers.start(
        "study", "run", "model.py", "--connect", address, *CERTS, "--study", "study",
        "--trials", "4", "--seed", "5", "--search", "random", "--cpus-per-trial", "1",
    )  # fmt: skip

    def worker(name: str, cpus: str, memory: str, shows: str = "") -> Container:
        limits = (f"--cpus={cpus}", f"--memory={memory}")
        return containers.start(name, "worker", address, *CERTS, options=limits, shows=shows)

    began = time.monotonic()
    one = worker("one", "1", "700m")
    two = worker("two", "2", "900m")
    wait_for(lambda: attempts(study), "a first trial")
    note(
        "from the start of a worker's container to its first trial: "
        f"{time.monotonic() - began:.1f} s"
    )
    wait_for(lambda: len(in_the_middle(study)) == 3, "three trials in their middle")
    assert one.until(r"joined .* with (.*)")[1] == "1 core, 734 MB of memory"
    assert two.until(r"joined .* with (.*)")[1] == "2 cores, 944 MB of memory"
    # It does not see the study: its trial's checkpoint travels over the connection.
    late = worker("late", "1.5", "500m", shows="certs/worker.pem")
    late.until("joined ")
    joined = time.monotonic()
    wait_for(lambda: len(attempts(study)) == 4, "a trial on the worker that came late")
    note(f"from a worker's joining to its first trial: {time.monotonic() - joined:.1f} s")
    wait_for(lambda: len(in_the_middle(study)) == 4, "its middle")

    def is_healthy(name: str) -> bool:
        return containers.health(name).code == 0

    for name in ("scheduler", "one"):
        # Its server has three seconds to answer; a container is unhealthy after several checks.
        wait_for(partial(is_healthy, name), f"{name} to be healthy")
    containers.kill("two")
    assert late.terminate().code == 0
    (containers.work / "go").touch()
    ended = run.end()
    assert ended.code == 0, ended
    by_node: dict[str, list[str]] = {}
    for attempt in attempts(study):
        by_node.setdefault(attempt["node"], []).append(attempt["outcome"])
    assert by_node == {
        "one": ["FINISHED"] * 4,
        "two": ["LOST"] * 2,
        "late": ["RELEASED"],
    }
    for trial in trials(study):
        assert trial["value"] == pytest.approx(trial["params"]["x"] * sum(range(STEPS + 1)))
    steps = rows(study, "SELECT trial, attempt, min(step) AS step FROM reports GROUP BY 1, 2")
    again = [row["step"] for row in steps if row["attempt"] > 0]
    assert again == [4, 4, 4], "they did not continue from their checkpoints"
    for each in (one, scheduler):
        assert each.terminate().code == 0
    wait_for(lambda: not containers.running(), "no container")
    assert (containers.work / "study").stat().st_uid != 0
    status = hptune("status", study)
    assert "4 complete" in status.out, status


def test_sigterm_to_all_at_once_leaves_no_process_no_port_and_no_lock(
    containers: Containers, hptune: Hptune
) -> None:
    (containers.work / "model.py").write_text(MODEL)
    study = containers.work / "study"
    scheduler, address = start_scheduler(containers)
    run = containers.start(
        "study", "run", "model.py", "--connect", address, *CERTS, "--study", "study",
        "--trials", "2", "--cpus-per-trial", "1",
    )  # fmt: skip
    limits = ("--cpus=1", "--memory=700m")
    sees = containers.start("sees", "worker", address, *CERTS, options=limits)
    shows = "certs/worker.pem"
    apart = containers.start("apart", "worker", address, *CERTS, options=limits, shows=shows)
    wait_for(lambda: len(in_the_middle(study)) == 2, "two trials in their middle")
    assert {*containers.listening()} >= {"scheduler", "sees", "apart"}
    together = {"study": run, "scheduler": scheduler, "sees": sees, "apart": apart}
    for each in together.values():
        each.sigterm()
    codes = {name: each.end() for name, each in together.items()}
    assert {name: ended.code for name, ended in codes.items() if name != "study"} == {
        "scheduler": 0,
        "sees": 0,
        "apart": 0,
    }, codes
    assert codes["study"].code in (1, 130), codes
    wait_for(lambda: not containers.running(), "no container")
    assert containers.listening() == []
    assert not (study / "lease").exists(), "a master seems to live"
    assert list(study.glob("incoming/*")) == []
    (containers.work / "go").touch()
    resumed = containers.start("again", "resume", "study", "--connect", "none").end()
    assert resumed.code == 0, resumed
    assert "2 complete" in hptune("status", study).out
