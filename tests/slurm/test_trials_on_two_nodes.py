"""Trials on two nodes of a real Slurm, whose jobs are cancelled, requeued and end by walltime."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from private_slurm import PrivateSlurm, wait_until
from real_runs import Hptune, Started, rows, trials, wait_for
from requirements import require
from slurm_studies import GPUS, SLICES, gangs, go, job_ids, start

PAIR = ("--trials", 1, "--nodes-per-trial", 2, "--gpus-per-trial", 2)
JOB_OF_TWO = GPUS + "nodes = 2\n"
RATE = 0.05

PLAIN = """
def train_epoch(trial, weights):
    return weights * (1 - {rate})
"""

TORCH = """
import torch

X = np.random.default_rng(3).normal(size=(32, len(START)))

def train_epoch(trial, weights):
    "One step of gradient descent towards weights of 0, on a share of the samples on each rank."
    if trial.world_size > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    model = torch.nn.Linear(len(weights), 1, bias=False).double()
    model.weight.data = torch.from_numpy(weights)[None]
    trained = model
    if trial.world_size > 1:
        trained = torch.nn.parallel.DistributedDataParallel(model)
    share = torch.from_numpy(X[trial.rank::trial.world_size])
    trained(share).square().mean().backward()
    return (model.weight - {rate} * model.weight.grad).detach().numpy()[0]
"""

MODEL = """
import json, os, time
import numpy as np

OBJECTIVE = "norm:min"
START = np.array([3.0, -2.0, 1.0])
{training}
def objective(hp, trial):
    hp.Float("unused", 0.0, 1.0)
    saved = trial.checkpoint_dir / "weights.json"
    done, weights = json.loads(saved.read_text()) if saved.exists() else (0, START)
    weights = np.array(weights)
    read = [{notes!r} + f"/read-{{rank}}-{{done}}" for rank in range(trial.world_size)]
    open(read[trial.rank], "w").close()
    while trial.rank == 0 and not all(map(os.path.exists, read)):
        time.sleep(0.01)  # it writes the file that the others have yet to read
    epoch, norm = done, float(np.square(weights).sum())
    for epoch in range(done + 1, {epochs} + 1):
        time.sleep(0.0 if os.path.exists({notes!r} + "/go") else {seconds})
        weights = train_epoch(trial, weights)
        if trial.rank == 0:
            new = saved.with_suffix(".new")
            new.write_text(json.dumps([epoch, weights.tolist()]))
            new.replace(saved)
        norm = float(np.square(weights).sum())
        trial.report(epoch, norm=norm)
        if trial.should_stop():
            break
    with open({notes!r} + f"/rank{{trial.rank}}.jsonl", "a") as file:
        file.write(json.dumps({{
            "first": done + 1, "last": epoch, "ranks": trial.world_size, "norm": norm,
            "node": os.environ["SLURMD_NODENAME"], "gpus": os.environ["CUDA_VISIBLE_DEVICES"],
        }}) + "\\n")
    return {{"norm": norm}}
"""
"""Model file whose ranks note where they trained, from which epoch to which."""


def model(hptune: Hptune, training: str, *, epochs: int, seconds: float) -> None:
    training, notes = training.format(rate=RATE), str(hptune.directory)
    text = MODEL.format(training=training, notes=notes, epochs=epochs, seconds=seconds)
    hptune.file("model.py", text)


def undisturbed(*, epochs: int) -> float:
    """Return the result of the `TORCH` training, as one process computes it on all samples."""
    x, weights = np.random.default_rng(3).normal(size=(32, 3)), np.array([3.0, -2.0, 1.0])
    for _ in range(epochs):
        weights = weights - RATE * 2 * x.T @ (x @ weights) / len(x)
    return float(np.square(weights).sum())


def attempts(hptune: Hptune) -> list[dict[str, Any]]:
    """Return the attempts of the only trial, each with the nodes of its ranks."""
    found = rows(hptune.study(), "SELECT * FROM attempts ORDER BY number")
    for row in found:
        peers = json.loads(row["devices"]).get("peers", ())
        row["nodes"] = [row["node"], *(peer["node"] for peer in peers)]
    return found


def notes(hptune: Hptune, rank: int) -> list[Mapping[str, Any]]:
    """Return what a rank noted at the end of each attempt."""
    text = (hptune.directory / f"rank{rank}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def latest_step(hptune: Hptune) -> int:
    """Return the last epoch that was reported; 0 if there is none."""
    if not (hptune.study() / "study.db").exists():
        return 0
    (row,) = rows(hptune.study(), "SELECT max(step) AS step FROM reports")
    return int(row["step"] or 0)


def wait_for_steps(hptune: Hptune, more: int) -> None:
    """Wait until the trial has reported more epochs than now."""
    step = latest_step(hptune)
    wait_for(lambda: latest_step(hptune) >= step + more, "a trial under way", seconds=150)


def check_result(hptune: Hptune, run: Started, *, epochs: int, seconds: float = 200) -> None:
    """Check that the `TORCH` training ended with the result of one undisturbed process."""
    ended = run.wait(seconds=seconds)
    assert ended.code == 0, ended.err
    check_ranks(hptune, epochs=epochs)
    (trial,) = trials(hptune.study())
    assert trial["value"] == pytest.approx(undisturbed(epochs=epochs), rel=1e-9)


def check_ranks(hptune: Hptune, *, epochs: int) -> None:
    """Check that ranks ran on two nodes, and that no epoch was left out or trained twice."""
    first, second = notes(hptune, 0), notes(hptune, 1)
    together = [each for each in first if each["ranks"] == 2]
    assert len(together) == len(second)
    for own, other in zip(together, second, strict=True):
        assert own["node"] != other["node"]
        assert own["gpus"] in ("0", "1")
        assert (own["first"], own["last"], own["norm"]) == (
            other["first"], other["last"], other["norm"],
        )  # fmt: skip
    ends = [0, *(each["last"] for each in first)]
    assert [each["first"] for each in first] == [last + 1 for last in ends[:-1]]
    assert ends[-1] == epochs


def test_a_trial_on_the_two_nodes_of_a_job_continues_in_another_job(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    """The workers of a job join and leave together."""
    model(hptune, PLAIN, epochs=400, seconds=0.25)
    run = start(hptune, JOB_OF_TWO, *PAIR, "--max-jobs", 1)
    wait_for_steps(hptune, 3)
    (first,) = job_ids(slurm)
    assert gangs(hptune) == [(first, "g1"), (first, "g2")]
    slurm.run("scancel", first)
    wait_for(lambda: len(attempts(hptune)) == 2, "another attempt")
    go(hptune)
    ended = run.wait()
    assert ended.code == 0, ended.err
    # Slurm is first asked when the job runs, or only after it was cancelled.
    assert re.search("Slurm: 1 (running|completing) on g1, g2", ended.err)
    assert f"job {first} on g[1-2] ended: CANCELLED" in ended.err
    held = attempts(hptune)
    assert [row["outcome"] for row in held] == ["RELEASED", "FINISHED"]
    # The signal reaches all of the job's workers, and their trials leave in good order.
    assert "killed" not in (held[0]["reason"] or "")
    assert all(sorted(row["nodes"]) == ["g1", "g2"] for row in held)
    check_ranks(hptune, epochs=400)
    ((second, _), *others) = gangs(hptune)[2:]
    assert [gang for gang, _ in others] == [second]
    wait_until(lambda: not slurm.jobs(), "an empty queue")


@pytest.mark.slow  # a minute: Slurm needs its time to miss a node
def test_a_trial_finds_two_nodes_although_one_holds_two_jobs_and_again_after_one_has_failed(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    """Nothing is said of nodes in the slurm.toml. What is left of a job holds no trial."""
    model(hptune, PLAIN, epochs=60, seconds=0.25)
    run = start(hptune, SLICES, *PAIR, "--max-jobs", 1)
    wait_for_steps(hptune, 3)
    (first,) = job_ids(slurm)
    assert gangs(hptune) == [(first, "g1"), (first, "g2")]
    slurm.kill_node("g2")
    wait_until(lambda: all("RUNNING" not in line for line in slurm.jobs()), "the job's end")
    slurm.mend_node("g2")
    ended = run.wait(seconds=200)
    assert ended.code == 0, ended.err
    assert [row["outcome"] for row in attempts(hptune)][-1] == "FINISHED"
    assert all(sorted(row["nodes"]) == ["g1", "g2"] for row in attempts(hptune))
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    slurm.wait_until_idle(seconds=90)
    for left in hptune.leftovers():  # the lost node could not clean up
        shutil.rmtree(hptune.temporary / left)


@pytest.mark.slow  # half a minute
def test_a_job_ends_with_one_of_its_workers_if_its_trials_need_both(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, PLAIN, epochs=60, seconds=0.25)
    run = start(hptune, SLICES, *PAIR, "--max-jobs", 1)
    wait_for_steps(hptune, 3)
    (first,) = job_ids(slurm)
    worker = next(pid for pid, words in hptune.processes().items() if ".1 --nthreads" in words)
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: first not in job_ids(slurm), "the job's end")
    ended = run.wait(seconds=200)
    assert ended.code == 0, ended.err
    assert {row["outcome"] for row in attempts(hptune)} >= {"FINISHED"}
    for left in hptune.leftovers():  # the killed worker could not clean up
        shutil.rmtree(hptune.temporary / left)


@pytest.mark.slow  # a minute: a requeued job waits before it starts again
def test_pytorch_on_two_nodes_of_a_job_that_is_requeued_and_then_cancelled(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    require("torch")
    model(hptune, TORCH, epochs=60, seconds=0.25)
    run = start(hptune, JOB_OF_TWO, *PAIR, "--max-jobs", 1)
    wait_for_steps(hptune, 3)
    (first,) = job_ids(slurm)
    slurm.run("scontrol", "requeue", first)
    wait_for(lambda: len(attempts(hptune)) == 2, "a second attempt", seconds=150)
    wait_for_steps(hptune, 3)
    (second,) = job_ids(slurm)
    slurm.run("scancel", second)
    check_result(hptune, run, epochs=60)
    assert [row["outcome"] for row in attempts(hptune)] == ["RELEASED", "RELEASED", "FINISHED"]
    assert all(sorted(row["nodes"]) == ["g1", "g2"] for row in attempts(hptune))


@pytest.mark.slow  # three to five minutes
@pytest.mark.timeout(600)
def test_a_trial_on_two_nodes_continues_after_their_walltime(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    require("torch")
    # Slurm may send the signal up to a minute early, so a job has between 15 and 75 seconds.
    model(hptune, TORCH, epochs=80, seconds=1.0)
    toml = JOB_OF_TWO.replace("00:10:00", "00:02:00") + "notice_seconds = 45\n"
    run = start(hptune, toml, *PAIR, "--max-jobs", 1)
    check_result(hptune, run, epochs=80, seconds=500)
    *before, last = [row["outcome"] for row in attempts(hptune)]
    assert last == "FINISHED"
    assert set(before) == {"RELEASED"}


@pytest.mark.slow  # a minute: three runs
def test_a_trial_continues_on_one_node_and_then_on_two_again(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    require("torch")
    model(hptune, TORCH, epochs=60, seconds=0.25)
    run = start(hptune, JOB_OF_TWO, *PAIR, "--max-jobs", 1)
    for resumed in (("--nodes-per-trial", 1, "--gpus-per-trial", 1), PAIR[2:]):
        wait_for_steps(hptune, 3)
        run.interrupt()
        assert run.wait().code == 130
        run = hptune.start("resume", "study", *resumed)
    check_result(hptune, run, epochs=60)
    assert [len(row["nodes"]) for row in attempts(hptune)] == [2, 1, 2]
