"""Kinds of jobs for trials of several nodes: each runs on the nodes of one job."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import Commands
from hptune_jobqueue.cluster import ClusterOrder, job_kinds
from hptune_jobqueue.config import Shape, parse_config
from hptune_jobqueue.job_kinds import JobKind, JobKinds, need_of, size_suffix
from hptune_jobqueue.plan import plan
from hptune_jobqueue.sizing import Need, WorkerShape


@pytest.mark.parametrize(
    ("need", "nodes_of_a_job", "trials", "jobs"),
    [
        (Need(), 1, 3, 1),
        (Need(nodes=2), 2, 1, 1),
        (Need(nodes=2), 2, 20, 3),
        (Need(cpus=8, nodes=2), 2, 3, 3),
        (Need(cpus=8, nodes=2), 3, 2, 2),
        (Need(cpus=8, nodes=2), 4, 3, 2),
        (Need(nodes=2), 1, 1, 0),
    ],
)
def test_jobs_for_trials_of_several_nodes(
    tmp_path: Path, need: Need, nodes_of_a_job: int, trials: int, jobs: int
) -> None:
    shape = Shape(name="s", partition="p", walltime="10", nodes=nodes_of_a_job)
    worker = WorkerShape(cpus=8, gpus=0, memory_bytes=0, trials=8 // need.cpus)
    kinds = JobKinds([JobKind(shape, worker, "a-s", "", tmp_path, need)])
    wanted = kinds.wanted(trials, {})
    planned = plan(wanted, [], kinds.to_plan(wanted, lambda _: True), max_jobs=99)
    assert planned.submit.get("a-s", 0) == jobs


@pytest.mark.parametrize(
    "need",
    [
        Need(2, 0.5, 2**30),
        Need(4, None, 2**30),
        Need(4, None, 2**30, processes=2),
        Need(1, 2.0, nodes=3),
        Need(1, None, takes_cores_of_gpus=True),
        Need(2, 4.0, nodes=2, takes_cores_of_gpus=True),
    ],
)
def test_the_name_of_a_job_tells_what_it_was_sized_for(need: Need) -> None:
    assert need_of(f"hptune-a-s{size_suffix(need)}") == need


@pytest.mark.parametrize(
    ("before", "now", "is_used"),
    [
        (Need(), Need(), True),
        (Need(), Need(cpus=3), False),
        (Need(cpus=3), Need(), True),
        (Need(cpus=3, memory_bytes=2**30), Need(cpus=3, memory_bytes=2**33), False),
        (Need(gpus=0.5), Need(gpus=2), False),
        (Need(gpus=1), Need(gpus=0.5), True),
        (Need(), Need(gpus=1), False),
        (Need(), Need(nodes=2), False),
        (Need(nodes=2), Need(), True),
    ],
)
def test_a_later_master_uses_the_jobs_that_hold_its_trials(
    tmp_path: Path, commands: Commands, before: Need, now: Need, *, is_used: bool
) -> None:
    """A study whose jobs hold none of its trials would stand still until they end."""
    commands.make("sinfo", "echo 'p|up|infinite|8|64000|gpu:4|9|idle'")
    config = parse_config('partition = "p"\nwalltime = "10"\ntrials_per_job = 1')
    order = ClusterOrder(config=config, name="a", directory=tmp_path, module="m", max_jobs=1)
    (left,) = job_kinds(order, before)
    kinds = JobKinds(job_kinds(order, now), lambda need: job_kinds(order, need))
    first = next(iter(kinds))
    assert kinds.adopt(left.job_name) is is_used
    planned = plan({now: now.nodes}, [], kinds.to_plan([now], lambda _: True), max_jobs=1)
    assert planned.submit == {first: 1}, "new jobs are of the size of now"
