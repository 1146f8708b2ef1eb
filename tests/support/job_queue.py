"""A queue of Slurm jobs whose states a test changes."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hptune_jobqueue import jobs as shell
from hptune_jobqueue import jobs_state
from hptune_jobqueue.commands import ANSWER_SECONDS, Job, JobState, Slurm
from hptune_jobqueue.config import Shape, parse_config
from hptune_jobqueue.job_kinds import JobKind, JobKinds
from hptune_jobqueue.job_messages import Demand
from hptune_jobqueue.jobs import Jobs
from hptune_jobqueue.sizing import WorkerShape

Change = Callable[[Job], Job]


class Queue(Slurm):
    """The part of Slurm that concerns jobs; the test says how their states change.

    Attributes:
        there: The jobs that squeue shows, by their ids.
        change: What becomes of new jobs before squeue shows them; by the script.
        before_answer: Called whenever squeue is asked.
        excluded: The nodes that the last jobs were not to run on.
        failed: The nodes whose prolog has failed, and Slurm's words.
        changed: The nodes on which pending jobs are not to start, by their ids.
    """

    def __init__(self) -> None:
        super().__init__()
        self.there: dict[str, Job] = {}
        self.change: dict[str, Change] = {}
        self.before_answer: Callable[[], None] = lambda: None
        self.looks = 0
        self.excluded: set[str] = set()
        self.failed: dict[str, str] = {}
        self.changed: dict[str, list[str]] = {}
        self._numbers = itertools.count(1)
        self._looked = threading.Condition()

    def jobs(
        self, names: Iterable[str] | None, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> tuple[Job, ...]:
        self.before_answer()
        found = [job for job in self.there.values() if names is None or job.name in set(names)]
        with self._looked:
            self.looks += 1
            self._looked.notify_all()
        return tuple(found)

    def failed_prologs(self) -> dict[str, str]:
        return self.failed

    def submit(self, script: str, count: int, *, exclude: Iterable[str] = ()) -> tuple[str, ...]:
        self.excluded = set(exclude)
        number = next(self._numbers)
        ids = tuple(f"{number}_{i}" for i in range(count))
        for identity in ids:
            job = Job(identity, script, JobState.PENDING, "PENDING", partition="p")
            change = self.change.get(script)
            self.there[identity] = change(job) if change else job
        return ids

    def exclude(self, job: str, nodes: Iterable[str]) -> None:
        self.changed[job] = sorted(nodes)

    def cancel(self, ids: Sequence[str]) -> None:
        for identity in ids:
            self.there[identity] = ended("CANCELLED")(self.there[identity])

    @property
    def alive(self) -> set[str]:
        return {job.id for job in self.there.values() if job.state is not JobState.OVER}

    def wait_for_a_look(self) -> None:
        """Return after the next poll, or soon if there is none any more."""
        with self._looked:
            self._looked.wait(0.1)


def running(job: Job) -> Job:
    return replace(job, state=JobState.RUNNING, slurm_state="RUNNING", node="n1")


def ended(word: str) -> Change:
    return lambda job: replace(job, state=JobState.OVER, slurm_state=word, node=job.node)


def ran_and_ended(word: str) -> Change:
    return lambda job: ended(word)(running(job))


def pending_for(reason: str) -> Change:
    return lambda job: replace(job, reason=reason)


def in_turn(*changes: Change) -> Change:
    changes_in_turn = itertools.cycle(changes)

    def change(job: Job) -> Job:
        return next(changes_in_turn)(job)

    return change


def quick_queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    """Return an empty queue, which is asked without pauses."""
    monkeypatch.setattr(shell, "POLL_SECONDS", 0.01)
    monkeypatch.setattr(shell, "SUBMITTED_POLL_SECONDS", 0.01)
    monkeypatch.setattr(shell, "SLOWEST_POLL_SECONDS", 0.01)
    monkeypatch.setattr(jobs_state, "REFUSED_SECONDS", 0.02)
    monkeypatch.setattr(shell, "_PAUSE_SECONDS", 0.0)
    return Queue()


def jobs_of(
    queue: Queue,
    path: Path,
    *names: str,
    max_jobs: int = 1,
    notes: list[str] | None = None,
    grace_seconds: int = 600,
) -> Jobs:
    (shape,) = parse_config('partition = "p"\nwalltime = "01:00:00"').shapes
    shape = replace(shape, grace_seconds=grace_seconds)
    kinds = [job_kind(replace(shape, name=name), name, path) for name in names or ("a",)]
    lines = [] if notes is None else notes
    return Jobs(
        JobKinds(kinds),
        max_jobs=max_jobs,
        notify=lines.append,
        prefix="study-",
        directory=path,
        slurm=queue,
    )


def job_kind(shape: Shape, name: str, path: Path) -> JobKind:
    return JobKind(shape, WorkerShape(1, 0, 0, 1), name, name, path)


Useful = Callable[[Queue], dict[str, bool]]
Refused = Callable[[Queue], dict[str, str]]


def drive(
    jobs: Jobs,
    queue: Queue,
    *,
    looks: int = 60,
    wanted: int = 1,
    useful: Useful = lambda queue: {},
    refused: Refused = lambda queue: {},
) -> None:
    """Ask for trials at least this often, for as many polls; raise the error of a failure."""
    try:
        jobs.open(wanted)
        end = queue.looks + looks
        asked = 0
        while queue.looks < end or asked < looks:
            jobs.set_demand(Demand(wanted, useful(queue), refused(queue)))
            queue.wait_for_a_look()
            asked += 1
    finally:
        jobs.close()
    assert not queue.alive
