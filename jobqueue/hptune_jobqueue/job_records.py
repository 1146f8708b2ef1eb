"""Records of a study's jobs, as Slurm last showed them."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .commands import Job, JobState
from .config import Shape
from .plan import LiveJob

ALIVE = (JobState.PENDING, JobState.RUNNING)
"""The states of jobs that can still be useful."""

_ENDING_SECONDS = 120.0
"""How long a job that ends counts as a job: Slurm may requeue it. A silent node takes longer."""

UNSHOWN_SECONDS = 60.0
"""How long squeue may not show a job that Slurm has accepted: some sites keep its answers."""

UNJOINED_SECONDS = 120.0
"""How long a job may run without a worker that takes trials until the user is told."""

_SIGNAL_SECONDS = 60.0
"""How much earlier than asked Slurm may signal a job."""


@dataclass(slots=True)
class JobRecord:
    """State of one job.

    Attributes:
        job: As Slurm last showed it.
        has_run: Whether it was ever started.
        was_useful: Whether its worker could ever take trials, perhaps under an earlier master.
        was_idle: Whether no trial ran on it at the last poll.
        is_drained: Whether it takes no more trials, to make room for another job.
        is_cancelled: Whether this process has cancelled it.
        ending_since: Since when it ends, by the monotonic clock; None if it does not.
        unshown_since: When it was submitted, by the same clock; None once Slurm has shown it.
        limit_at: When its walltime ends, in seconds since the epoch; None if unknown.
        unjoined_since: Since when it runs without a worker that takes trials, in seconds since
            the epoch; None if it does not.
    """

    job: Job
    has_run: bool = False
    was_useful: bool = False
    was_idle: bool = False
    is_drained: bool = False
    is_cancelled: bool = False
    ending_since: float | None = None
    unshown_since: float | None = None
    limit_at: float | None = None
    unjoined_since: float | None = None

    @property
    def is_delayed(self) -> bool:
        """Whether Slurm has requeued it, and lets it wait although a node may be idle."""
        job = self.job
        return job.state is JobState.PENDING and self.has_run and job.reason == "BeginTime"

    @property
    def may_be_shown_later(self) -> bool:
        """Whether it is so new that Slurm may not show it yet."""
        if self.unshown_since is None or self.is_cancelled:
            return False
        return time.monotonic() - self.unshown_since < UNSHOWN_SECONDS

    @property
    def is_lost(self) -> bool:
        """Whether neither Slurm nor a worker has ever shown that the job is there."""
        return self.unshown_since is not None and not self.was_useful

    def on_hidden(self) -> None:
        """Take over that Slurm does not show the job, although its worker takes trials."""
        if self.job.state is JobState.PENDING:
            self.job = replace(self.job, state=JobState.RUNNING, slurm_state="RUNNING", reason="")
        self.has_run = True

    def update(self, job: Job) -> None:
        """Take over what Slurm shows of the job now."""
        if job.state in ALIVE:
            self.is_cancelled = False  # requeued by hand, or not cancelled after all
        self.unshown_since = None
        self.job = job if job.node else replace(job, node=self.job.node)
        if job.state is JobState.RUNNING and job.ends_at is not None:
            self.limit_at = job.ends_at
        if job.state is not JobState.ENDING:
            self.ending_since = None
        elif self.ending_since is None:
            self.ending_since = time.monotonic()
        self.has_run |= job.state in (JobState.RUNNING, JobState.ENDING) or bool(job.node)

    def live(self, shape: Shape, *, is_busy: bool) -> LiveJob:
        """Return the job as a plan counts it.

        Args:
            shape: What it asked for.
            is_busy: Whether trials run on its worker.
        """
        job, is_pending = self.job, self.job.state is JobState.PENDING
        left = None
        if job.ends_at is not None and not is_pending:
            # Short jobs are not replaced in their first half.
            margin = min(shape.notice_seconds + _SIGNAL_SECONDS, shape.walltime_seconds / 2)
            left = job.ends_at - time.time() - margin
        return LiveJob(
            job.id,
            job.name,
            is_pending=is_pending,
            is_busy=is_busy and not is_pending,
            is_drained=self.is_drained,
            seconds_left=left,
        )


def failing_node(ended: JobRecord, records: Iterable[JobRecord]) -> str:
    """Return the node at fault for a job that was not useful; empty if unknown.

    A node is at fault if jobs have been useful on other nodes only. It must be excluded, because a
    broken node is free again at once, and would take one job after the other. Of the several nodes
    of a job, the one at fault is unknown.
    """
    useful = {node for record in records if record.was_useful for node in record.job.nodes}
    nodes = ended.job.nodes
    return nodes[0] if len(nodes) == 1 and useful and nodes[0] not in useful else ""


class JobRecords:
    """The records of a study's jobs, by id. All methods may be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: dict[str, JobRecord] = {}

    def __iter__(self) -> Iterator[JobRecord]:
        with self._lock:
            return iter(list(self._records.values()))

    def present(self) -> tuple[Job, ...]:
        """Return the jobs that are not over, but for those that this process has cancelled."""
        return tuple(
            record.job
            for record in self
            if record.job.state is not JobState.OVER and not record.is_cancelled
        )

    def alive(self) -> list[Job]:
        """Return those of the present jobs that can still be useful."""
        return [job for job in self.present() if job.state in ALIVE]

    def unjoined(self) -> list[JobRecord]:
        """Return the records of the jobs that have run for long without a worker of use."""
        latest = time.time() - UNJOINED_SECONDS
        found = [self._records[job.id] for job in self.alive()]
        return [each for each in found if (each.unjoined_since or math.inf) <= latest]

    def drained(self) -> frozenset[str]:
        """Return the ids of the jobs whose workers must take no more trials."""
        return frozenset(record.job.id for record in self if record.is_drained)

    def live(self, workers: Mapping[str, bool], shape_of: Callable[[str], Shape]) -> list[LiveJob]:
        """Return the present jobs as a plan counts them; once at each poll.

        Args:
            workers: The ids of the jobs whose workers take trials, and whether trials run there.
            shape_of: What jobs of a name have asked for.
        """
        jobs = []
        for record in [self._records[job.id] for job in self.present()]:
            job = record.job
            if job.state not in ALIVE:
                since = record.ending_since or 0.0
                if time.monotonic() - since < _ENDING_SECONDS:
                    jobs.append(LiveJob(job.id, job.name, is_ending=True))
                continue
            if record.is_delayed:
                continue  # others may start at once; if it is too many later, it is cancelled
            is_idle = not workers.get(job.id, False)
            # A job counts as idle after two polls: trials may be on their way to its worker.
            is_busy = not (is_idle and record.was_idle)
            live = record.live(shape_of(job.name), is_busy=is_busy)
            jobs.append(live)
            record.was_idle = is_idle
            is_leaving = live.seconds_left is not None and live.seconds_left <= 0
            # A node that is still being booted for a job (CONFIGURING) is Slurm's business.
            if job.slurm_state != "RUNNING" or job.id in workers or is_leaving:
                record.unjoined_since = None
            elif record.unjoined_since is None:
                record.unjoined_since = time.time()
        return jobs

    def missing(self, shown: Sequence[Job], useful: Container[str] = ()) -> list[str]:
        """Return the ids of the jobs that are over because Slurm does not show them.

        A job that is so new that Slurm may not show it yet is not over, nor is one whose worker
        takes trials.

        Args:
            shown: The jobs that Slurm shows.
            useful: The ids of the jobs whose workers take trials.
        """
        ids = {job.id for job in shown}
        return [
            record.job.id
            for record in self
            if record.job.id not in ids
            and record.job.state is not JobState.OVER
            and record.job.id not in useful
            and not record.may_be_shown_later
        ]

    def update(
        self, shown: Sequence[Job], missing: Container[str] = (), *, is_first: bool = False
    ) -> list[JobRecord]:
        """Take over what Slurm shows; returns the records of the jobs that have ended since.

        Args:
            shown: The jobs.
            missing: The ids of those that are over because they are missing among the jobs.
            is_first: Whether the jobs are those of an earlier master, and may have been useful.
        """
        ended = []
        with self._lock:
            for job in shown:
                record = self._records.setdefault(job.id, JobRecord(job, was_useful=is_first))
                if job.state is JobState.OVER and record.job.state is not JobState.OVER:
                    ended.append(record)
                record.update(job)
            for job_id in self._records.keys() - {job.id for job in shown}:
                record = self._records[job_id]
                if job_id in missing:
                    record.job = replace(record.job, state=JobState.OVER, slurm_state="", reason="")
                    ended.append(record)
                if record.job.state is JobState.OVER:
                    del self._records[job_id]
                elif not record.may_be_shown_later:
                    record.on_hidden()
        return ended

    def submitted(self, ids: Iterable[str], name: str) -> None:
        """Add jobs that were just submitted."""
        with self._lock:
            for job_id in ids:
                job = Job(job_id, name, JobState.PENDING, "PENDING")
                self._records[job_id] = JobRecord(job, unshown_since=time.monotonic())

    def cancelled(self, ids: Iterable[str]) -> None:
        """Record that this process has cancelled jobs."""
        with self._lock:
            for job_id in ids:
                self._records[job_id].is_cancelled = True

    def drain(self, job_id: str) -> Job:
        """Record that a job's worker must take no more trials; returns the job."""
        with self._lock:
            self._records[job_id].is_drained = True
            return self._records[job_id].job

    def useful(self, ids: Iterable[str]) -> list[Job]:
        """Record that the workers of jobs take trials; returns the jobs of which that is new.

        Such a job runs, also if Slurm has not shown that yet.
        """
        with self._lock:
            known = (self._records[job_id] for job_id in ids if job_id in self._records)
            new = [record for record in known if not record.was_useful]
            for record in new:
                record.was_useful = True
                record.on_hidden()
            return [record.job for record in new]
