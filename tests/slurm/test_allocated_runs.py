"""Studies inside an allocation of several nodes of a real Slurm."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from private_slurm import PrivateSlurm, wait_until
from real_runs import COMMAND, Hptune, rows, states, wait_for
from slurm_studies import model, reached

ON_TWO_NODES = ["--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--gres=gpu:1",
                "--partition=gpu", "--mem=1G", "--time=30", "--no-kill"]  # fmt: skip
RUN = [COMMAND, "run", "model.py", "--study", "study", "--search", "random", "--seed", "1"]


def submitted(hptune: Hptune, *command: object, first: str = "") -> str:
    """Submit a job with two nodes that runs a command, and another one first; return its id."""
    done = subprocess.run(
        ["sbatch", "--parsable", *ON_TWO_NODES, "--output=out.txt",
         f"--wrap={first}exec {' '.join(map(str, command))}"],
        cwd=hptune.directory,
        env=hptune.environment(),
        check=True,
        capture_output=True,
        text=True,
        timeout=200,
    )  # fmt: skip
    return done.stdout.strip()


def test_all_nodes_are_used_and_a_signal_before_the_end_stops_the_study(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    """One master alone: two that srun starts are refused."""
    model(hptune, epochs=1000, seconds=0.2)
    of_srun = f"srun {' '.join(map(str, RUN))}; if [ -e study ]; then exit 1; fi; "
    job = submitted(hptune, *RUN, "--trials", 2, "--gpus-per-trial", 1, first=of_srun)
    study, out = hptune.study(), hptune.directory / "out.txt"
    wait_for(lambda: reached(study, 3, count=2), "two trials under way", seconds=120)
    assert "srun starts this command 2 times, but a study has one master" in out.read_text()
    assert f"on the 2 nodes of Slurm job {job}" in " ".join(out.read_text().split())
    assert {row["node"] for row in rows(study, "SELECT node FROM attempts")} == {"g1", "g2"}
    ends = rows(study, "SELECT json_extract(payload, '$.ends_at') AS at FROM events "
                       "WHERE kind = 'WorkerJoined'")  # fmt: skip
    assert all(row["at"] for row in ends)
    slurm.run("scancel", "--batch", "--signal=TERM", job)
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert f"hptune resume {study.name}" in " ".join(out.read_text().split())
    assert states(study) == {"WAITING": 2}
    assert "SLURM_JOB_ID" not in os.environ


def worker_on(hptune: Hptune, node: str) -> int:
    """Return the process of a node's worker."""
    return next(
        pid
        for pid, words in hptune.processes().items()
        if " hptune worker " in words
        and f"SLURMD_NODENAME={node}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        and "srun" not in words
    )


@pytest.mark.slow  # the restart is tested without Slurm in tests/clusters
def test_a_worker_that_dies_is_replaced(hptune: Hptune, slurm: PrivateSlurm) -> None:
    model(hptune, epochs=40, seconds=0.2)
    submitted(hptune, *RUN, "--trials", 2, "--gpus-per-trial", 1)
    study, out = hptune.study(), hptune.directory / "out.txt"
    wait_for(lambda: reached(study, 3, count=2), "two trials under way", seconds=120)
    os.kill(worker_on(hptune, "g2"), signal.SIGKILL)
    wait_for(lambda: states(study) == {"COMPLETE": 2}, "the end of both", seconds=90)
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert "the worker on g2 has ended (srun's status is " in " ".join(out.read_text().split())
    joined = rows(study, "SELECT json_extract(payload, '$.node') AS node FROM events "
                         "WHERE kind = 'WorkerJoined'")  # fmt: skip
    assert sorted(row["node"] for row in joined) == ["g1", "g2", "g2"]
    finished = rows(study, "SELECT node FROM attempts WHERE outcome = 'FINISHED'")
    assert {row["node"] for row in finished} == {"g1", "g2"}


@pytest.mark.slow  # a minute; a node's failure in a job of several is met in test_gangs too
def test_a_node_that_fails_does_not_end_the_others(hptune: Hptune, slurm: PrivateSlurm) -> None:
    model(hptune, epochs=30, seconds=0.2)
    submitted(hptune, *RUN, "--trials", 2, "--gpus-per-trial", 1)
    study = hptune.study()
    wait_for(lambda: reached(study, 3, count=2), "two trials under way", seconds=120)
    slurm.kill_node("g2")
    wait_for(lambda: states(study) == {"COMPLETE": 2}, "the end of both", seconds=90)
    slurm.mend_node("g2")
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    nodes = rows(study, "SELECT node, outcome FROM attempts WHERE outcome = 'FINISHED'")
    assert {row["node"] for row in nodes} == {"g1"}
    slurm.wait_until_idle(seconds=90)
    for left in hptune.leftovers():  # the lost node could not clean up
        shutil.rmtree(hptune.temporary / left)
