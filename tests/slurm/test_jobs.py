"""Dask workers as jobs of a real Slurm: submitted, replaced, taken back, cancelled."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, LocalCluster

from hptune.clusters.shown_jobs import states_line
from hptune_jobqueue import commands
from hptune_jobqueue import jobs as shell
from hptune_jobqueue.commands import JobState, Slurm
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.errors import JobsFailError, SubmissionError
from hptune_jobqueue.job_kinds import JobKind, JobKinds
from hptune_jobqueue.job_messages import Demand
from hptune_jobqueue.jobs import Jobs
from hptune_jobqueue.script import WorkerCommand, job_of, job_script
from hptune_jobqueue.sizing import Need, choose_worker
from private_slurm import PrivateSlurm, wait_until


@pytest.fixture
def client() -> Iterator[Any]:
    """Return the client of a Dask scheduler without workers."""
    with (
        LocalCluster(n_workers=0, host="127.0.0.1", dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


Make = Callable[..., Jobs]


@pytest.fixture
def make(
    slurm: PrivateSlurm, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Make]:
    """Return a function that makes `Jobs` from a slurm.toml; all are closed in the end."""
    monkeypatch.setattr(shell, "POLL_SECONDS", 1.0)
    monkeypatch.setattr(shell, "SLOWEST_POLL_SECONDS", 5.0)
    monkeypatch.setattr(commands, "CALLS_AHEAD", sys.maxsize)
    made: list[Jobs] = []

    def make(
        text: str, need: Need, *, max_jobs: int = 4, module: str = "distributed.cli.dask_worker"
    ) -> Jobs:
        kinds = []
        for shape in parse_config(text).shapes:
            worker = choose_worker(Slurm().partitions(), shape, need)
            name = f"test-{shape.name}"
            command = WorkerCommand(address=client.scheduler.address, module=module)
            script = job_script(shape, worker, command, job_name=name, logs=tmp_path)
            kinds.append(JobKind(shape, worker, name, script, tmp_path, need))
        made.append(
            Jobs(
                JobKinds(kinds),
                max_jobs=max_jobs,
                notify=notes.append,
                prefix="test-",
                directory=tmp_path,
            )
        )
        return made[-1]

    notes.clear()
    yield make
    for jobs in made:
        jobs.close()
    # A job that is cancelled takes a moment to be gone.
    wait_until(lambda: not slurm.jobs(), "an empty queue")


notes: list[str] = []


def names(client: Any) -> dict[str, str]:
    """Return the addresses of the workers that have joined, by their jobs' ids."""
    workers = client.run_on_scheduler(
        lambda dask_scheduler: {str(w.name): w.address for w in dask_scheduler.workers.values()}
    )
    return {str(job_of(name)): address for name, address in workers.items()}


def wanting_for(jobs: Jobs, *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        jobs.set_demand(Demand(1, {}))
        time.sleep(0.1)


SLICES = """
partition = "gpu"
walltime = "00:10:00"
trials_per_job = 1
"""


@pytest.mark.slow  # GPUs and lost jobs are met in test_runs too
def test_slices_each_see_a_gpu_of_their_own_and_are_replaced_when_lost(
    slurm: PrivateSlurm, client: Any, make: Make
) -> None:
    jobs = make(SLICES + "max_jobs = 3", Need(cpus=2, gpus=1))
    jobs.open(8)
    wait_until(lambda: len(names(client)) == 3, "three workers")
    first = set(names(client))
    assert {job.id for job in jobs.shown().jobs} == first
    gpus = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
    places = {(job.node, gpus[names(client)[job.id]]) for job in Slurm().jobs(["test-workers"])}
    assert len(places) == 3
    assert {gpu for _, gpu in places} == {"0", "1"}
    lost = min(first)
    slurm.run("scancel", lost)
    wait_until(lambda: len(set(names(client)) - {lost}) == 3, "another worker")
    wait_until(lambda: any(f"job {lost} on g" in line for line in notes), "its end")
    assert any("ended: CANCELLED" in line for line in notes)
    jobs.set_demand(Demand(0, dict.fromkeys(names(client), False)))
    wait_until(lambda: not slurm.jobs(), "an empty queue")


@pytest.mark.slow  # kinds are tested without Slurm in tests/jobqueue
def test_a_whole_node_and_two_kinds_of_jobs_at_once(
    slurm: PrivateSlurm, client: Any, make: Make
) -> None:
    jobs = make(
        """
        walltime = "00:10:00"
        [[shape]]
        name = "gpu"
        partition = "gpu"
        max_jobs = 1
        [[shape]]
        name = "cpu"
        partition = "cpu"
        """,
        Need(cpus=2, gpus=None),
    )
    jobs.open(4)
    wait_until(lambda: len(names(client)) == 2, "two workers")
    running = {job.name: job for job in Slurm().jobs(["test-gpu", "test-cpu"])}
    gpus = client.run(os.getenv, "CUDA_VISIBLE_DEVICES")
    seen = {name: gpus[names(client)[job.id]] for name, job in running.items()}
    assert seen == {"test-gpu": "0,1", "test-cpu": ""}
    assert running["test-cpu"].node == "c1"
    details = slurm.run("scontrol", "show", "job", running["test-gpu"].id)
    assert "TRES=cpu=4,mem=4000M,node=1" in details.replace("NumCPUs", "")


@pytest.mark.slow  # a resumed run in test_runs does so too
def test_jobs_of_an_earlier_master_are_taken_over(
    slurm: PrivateSlurm, client: Any, make: Make
) -> None:
    first = make(SLICES, Need(gpus=1))
    first.open(2)
    wait_until(lambda: len(names(client)) == 2, "two workers")
    first._stop()
    assert first._thread is not None
    first._thread.join()
    second = make(SLICES, Need(gpus=1))
    second.open(2)
    assert {job.id for job in second.shown().jobs} == set(names(client))
    assert len(slurm.jobs()) == 2
    assert notes[-1] == "took over 2 jobs of an earlier run"


@pytest.mark.slow  # Slurm's reason is met in test_detached too
def test_a_waiting_job_shows_its_reason_and_starts_later(
    slurm: PrivateSlurm, client: Any, make: Make
) -> None:
    occupying = slurm.run("sbatch", "--parsable", "-p", "cpu", "-c", "4", "-o", "/dev/null",
                          "--mem=1G", "--wrap", "sleep 600").strip()  # fmt: skip
    jobs = make('partition = "cpu"\nwalltime = "00:10:00"', Need())
    jobs.open(1)
    reason = "1 pending in cpu: Resources"
    wait_until(lambda: states_line(jobs.shown().jobs) == reason, "the reason")
    slurm.run("scancel", occupying)
    wait_until(lambda: len(names(client)) == 1, "the worker")
    wait_until(lambda: states_line(jobs.shown().jobs) == "1 running on c1", "the good news")


@pytest.mark.slow  # some are met in test_slurm_commands too
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('account = "me"\npartition = "closed"', "Invalid account or account/partition"),
        ('directives = ["--partition=nope"]\npartition = "cpu"', "invalid partition specified"),
        ('directives = ["--time=1-0"]\npartition = "cpu"', "Requested time limit is invalid"),
        ('directives = ["--mem=90G"]\npartition = "cpu"', "Memory specification can not be"),
    ],
)
def test_a_refusal_is_shown_in_slurms_words_and_leaves_nothing(
    slurm: PrivateSlurm, make: Make, text: str, said: str
) -> None:
    jobs = make(f'walltime = "00:10:00"\n{text}', Need())
    with pytest.raises(SubmissionError) as error:
        jobs.open(1)
    assert said in str(error.value)
    assert slurm.jobs() == []


@pytest.mark.slow  # excluded nodes are tested without Slurm in tests/jobqueue
def test_jobs_leave_an_excluded_node_unless_there_is_no_other(
    slurm: PrivateSlurm, client: Any, make: Make
) -> None:
    jobs = make(SLICES, Need(gpus=1))
    jobs.open(1)

    def node() -> str:
        running = [job for job in jobs.shown().jobs if job.state is JobState.RUNNING]
        return running[0].node if running and running[0].id in names(client) else ""

    wait_until(lambda: node() != "", "a worker")
    first = node()
    (other,) = {"g1", "g2"} - {first}
    jobs.exclude_node(first, "three attempts were lost there")
    wait_until(lambda: node() == other, "one on the other node")
    assert f"node {first} is excluded from now on (--exclude={first}): three" in "\n".join(notes)
    jobs.exclude_node(other, "there too")
    wait_until(lambda: any("the excluded nodes are used again" in line for line in notes),
               "that none is left", seconds=40)  # fmt: skip
    wait_until(lambda: node() != "", "a worker")


@pytest.mark.slow  # tested without Slurm in tests/jobqueue
def test_a_pending_job_does_not_start_on_a_node_that_is_excluded_meanwhile(
    slurm: PrivateSlurm, client: Any, make: Make
) -> None:
    occupying = slurm.run("sbatch", "--parsable", "-p", "gpu", "-N", "2", "-c", "4", "--mem=4000",
                          "-o", "/dev/null", "--wrap", "sleep 600").strip()  # fmt: skip
    wait_until(lambda: "RUNNING" in "".join(slurm.jobs()), "full nodes")
    jobs = make(SLICES + "directives = ['--exclude=c1']\n", Need(gpus=1), max_jobs=2)
    jobs.open(2)
    wait_until(lambda: len(jobs.shown().jobs) == 2, "two jobs")
    jobs.exclude_node("g1", "three attempts were lost there")
    pending = [job.id for job in jobs.shown().jobs]

    def told() -> list[str]:
        shown = [slurm.run("scontrol", "show", "job", each) for each in pending]
        return [line for text in shown for line in text.split() if line.startswith("ExcNode")]

    wait_until(lambda: told() == ["ExcNodeList=c1,g1"] * 2, "what Slurm knows")
    slurm.run("scancel", occupying)
    wait_until(lambda: len(names(client)) == 2, "two workers")
    wait_until(lambda: {job.node for job in jobs.shown().jobs} == {"g2"}, "the next look")
    assert {job.id for job in jobs.shown().jobs} == set(pending)


@pytest.mark.slow  # held jobs are tested without Slurm in tests/jobqueue
def test_jobs_that_a_failing_prolog_keeps_from_starting_go_to_another_node(
    slurm: PrivateSlurm, client: Any, make: Make
) -> None:
    with slurm.failing_prolog("g1"):
        jobs = make(SLICES, Need(gpus=1))
        jobs.open(1)
        # Until Slurm tries g1; where it chooses g2 first, that is taken away.
        slurm.run("scontrol", "update", "NodeName=g2", "State=DRAIN", "Reason=busy")
        jobs.set_demand(Demand(2, {}))
        wait_until(lambda: any("node g1 is excluded" in line for line in notes), "the broken node")
        slurm.run("scontrol", "update", "NodeName=g2", "State=RESUME")
        wait_until(lambda: bool(names(client)), "a worker on the other node")
        assert {job.node for job in jobs.shown().jobs if job.state is JobState.RUNNING} == {"g2"}
        assert any("launch failed requeued held" in line for line in notes), notes
        jobs.close()


@pytest.mark.slow  # failing jobs are tested without Slurm in tests/jobqueue
def test_jobs_that_never_bring_a_worker_are_given_up_with_what_they_wrote(
    slurm: PrivateSlurm, make: Make
) -> None:
    jobs = make('partition = "cpu"\nwalltime = "00:10:00"', Need(), module="no.such.module")
    jobs.open(1)

    with pytest.raises(JobsFailError, match=r"3 jobs in a row[^$]*No module named 'no'"):
        wanting_for(jobs, seconds=60)
    assert slurm.jobs() == []
