"""Slurm jobs as `JobsState` decides on them: no thread, no commands, and time that a test sets."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hptune_jobqueue.commands import Job, JobState
from hptune_jobqueue.config import parse_config
from hptune_jobqueue.errors import SubmissionError
from hptune_jobqueue.job_kinds import JobKind, JobKinds
from hptune_jobqueue.job_messages import Cancel, Demand, Instruction, Submit, Tell
from hptune_jobqueue.job_reports import Output
from hptune_jobqueue.jobs_state import JobsState
from hptune_jobqueue.sizing import Need, WorkerShape
from job_queue import Change, ended

POLL_SECONDS = 5.0


def kind_of(name: str, *, job_name: str = "", gpus: int = 0, grace_seconds: int = 600) -> JobKind:
    (shape,) = parse_config('partition = "p"\nwalltime = "01:00:00"').shapes
    shape = replace(shape, name=name, grace_seconds=grace_seconds)
    return JobKind(shape, WorkerShape(1, gpus, 0, 1), job_name or name, "", Path("/logs"))


class JobsDriver:
    """Carries out what the state decides, as a Slurm would that does what the test says.

    Attributes:
        there: The jobs that squeue shows, by their ids.
        change: What becomes of new jobs before squeue shows them; by the name of their kind.
        refuse: Raises the error of a refused submission.
        written: What jobs have written, by the name of the file.
        failed: The nodes whose prolog has failed, and Slurm's words.
        lines: The lines for the user.
        orders: What the state has decided.
    """

    def __init__(
        self,
        *kinds: str | JobKind,
        max_jobs: int = 1,
        sized: Callable[[Need], Sequence[JobKind]] = lambda _: (),
    ) -> None:
        made = [kind_of(kind) if isinstance(kind, str) else kind for kind in kinds or ("a",)]
        self.state = JobsState(
            JobKinds(made, sized),
            max_jobs=max_jobs,
            prefix="study-",
            read=lambda file: Output(file, self.written.get(file.name)),
        )
        self.there: dict[str, Job] = {}
        self.change: dict[str, Change] = {}
        self.refuse: Callable[[Submit], None] = lambda _: None
        self.written: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.lines: list[str] = []
        self.orders: list[Instruction] = []
        self.now = 1e9
        self._numbers = itertools.count(1)

    @property
    def alive(self) -> set[str]:
        return {job.id for job in self.there.values() if job.state is not JobState.OVER}

    def of(self, kind: type[Instruction]) -> list[Instruction]:
        """Return the decisions of one kind."""
        return [each for each in self.orders if isinstance(each, kind)]

    def demand(
        self,
        trials: int,
        workers: Mapping[str, bool] | None = None,
        refused: Mapping[str, str] | None = None,
        others: Mapping[Need, int] | None = None,
    ) -> list[Instruction]:
        demand = Demand(trials, workers or {}, refused or {}, others or {})
        return self.do(self.state.demanded(demand, self.now))

    def poll(self, seconds: float = POLL_SECONDS) -> None:
        """Let time pass, and show the jobs; raises the error that ends the study."""
        self.now += seconds
        shown = [
            job
            for job in self.there.values()
            if not self.state.has_taken_over or job.name in self.state.kinds
        ]
        self.do(self.state.shown(shown, self.failed, self.now))
        self.do(self.state.settled())
        if self.state.failure is not None:
            raise self.state.failure

    def drive(
        self,
        polls: int = 20,
        *,
        wanted: int = 1,
        useful: Callable[[], Mapping[str, bool]] = dict,
        refused: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        """Ask for trials before each of these polls."""
        for _ in range(polls):
            self.demand(wanted, useful(), refused())
            self.poll()

    def submit(self, name: str, count: int) -> list[str]:
        """Submit jobs, as the state or an earlier master does."""
        number = next(self._numbers)
        ids = [f"{number}_{i}" for i in range(count)]
        for job_id in ids:
            job = Job(job_id, name, JobState.PENDING, "PENDING", partition="p")
            change = self.change.get(name)
            self.there[job_id] = change(job) if change else job
        return ids

    def do(self, orders: Sequence[Instruction]) -> list[Instruction]:
        """Carry out decisions; returns them."""
        self.orders += orders
        for order in orders:
            match order:
                case Tell(line):
                    self.lines.append(line)
                case Cancel(ids):
                    for job_id in ids:
                        self.there[job_id] = ended("CANCELLED")(self.there[job_id])
                case Submit(kind, count):
                    try:
                        self.refuse(order)
                    except SubmissionError as error:
                        self.do(self.state.refused(order, error, self.now))
                    else:
                        new = self.submit(kind, count)
                        self.do(self.state.submitted(order, new, self.now))
                case _:
                    pass
        return list(orders)


def working(jobs: JobsDriver) -> dict[str, bool]:
    """Return the jobs that are there, each with a worker that takes trials."""
    return dict.fromkeys(jobs.alive, True)


def running_jobs(jobs: JobsDriver) -> dict[str, bool]:
    """Return the same of those that run."""
    return {name: True for name, job in jobs.there.items() if job.state is JobState.RUNNING}
