"""Studies in jobs of several nodes of a real Slurm, whose workers come and go together."""

from __future__ import annotations

import shutil

import pytest

from private_slurm import PrivateSlurm, wait_until
from real_runs import Hptune, rows, states, wait_for
from slurm_studies import GPUS, finish, gangs, job_ids, model, reached, start

PAIRS = GPUS + "nodes = 2\ntrials_per_job = 1\n"
OPTIONS = ("--trials", 2, "--gpus-per-trial", 1, "--max-jobs", 1)


@pytest.mark.slow  # met in test_trials_on_two_nodes too
def test_the_workers_of_one_job_join_and_leave_together(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=15, seconds=0.3)
    run = start(hptune, PAIRS, *OPTIONS, "--min-workers", 2)
    wait_for(lambda: reached(hptune.study(), 3, count=2), "two trials under way", seconds=120)
    (first,) = job_ids(slurm)
    assert gangs(hptune) == [(first, "g1"), (first, "g2")]
    slurm.run("scancel", first)
    wait_until(lambda: len(job_ids(slurm) - {first}) == 1, "another job")
    output = finish(hptune, run, count=2, epochs=15)
    assert "Slurm: 1 running on g1, g2" in output
    assert f"job {first} on g[1-2] ended: CANCELLED" in output
    held = rows(hptune.study(), "SELECT outcome, reason FROM attempts")
    assert sorted(row["outcome"] for row in held) == ["FINISHED"] * 2 + ["RELEASED"] * 2
    # The signal reaches all of the job's workers, and their trials leave in good order.
    assert not [row for row in held if "killed" in (row["reason"] or "")]
    ((second, _), *others) = gangs(hptune)[2:]
    assert [gang for gang, _ in others] == [second]
    wait_until(lambda: not slurm.jobs(), "an empty queue")


@pytest.mark.slow  # a minute: Slurm needs its time to miss a node
def test_the_others_continue_when_one_node_of_a_job_dies(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=40, seconds=0.3)
    run = start(hptune, PAIRS, *OPTIONS)
    wait_for(lambda: reached(hptune.study(), 3, count=2), "two trials under way", seconds=120)
    (job,) = job_ids(slurm)
    slurm.kill_node("g2")
    wait_for(lambda: states(hptune.study()).get("WAITING"), "the loss")
    finish(hptune, run, count=2, epochs=40)
    assert gangs(hptune) == [(job, "g1"), (job, "g2")]
    where = rows(hptune.study(), "SELECT node FROM attempts WHERE outcome = 'FINISHED'")
    assert {row["node"] for row in where} == {"g1"}
    slurm.mend_node("g2")
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    slurm.wait_until_idle(seconds=90)
    for left in hptune.leftovers():  # the lost node could not clean up
        shutil.rmtree(hptune.temporary / left)
