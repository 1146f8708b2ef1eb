"""Records of a study's jobs, as Slurm last showed them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from .commands import ALIVE, Job, JobState
from .config import Shape
from .plan import LiveJob

_ENDING_SECONDS = 120.0
"""How long a job that ends counts as a job: Slurm may requeue it. A silent node takes longer."""

FAILURES_IN_A_ROW = 3
"""How many jobs in a row may fail until no more of their shape are submitted."""

UNSHOWN_SECONDS = 60.0
"""How long squeue may not show a job that Slurm has accepted: some sites keep its answers."""

UNJOINED_SECONDS = 120.0
"""How long a job may run without a worker that takes trials until the user is told."""

_SIGNAL_SECONDS = 60.0
"""How much earlier than asked Slurm may signal a job."""


@dataclass(slots=True)
class JobRecord:
    """State of one job; times are in seconds since the epoch.

    Attributes:
        job: As Slurm last showed it.
        has_run: Whether it was ever started.
        was_useful: Whether its worker could ever take trials, perhaps under an earlier master.
        was_idle: Whether no trial ran on it at the last poll.
        is_drained: Whether it takes no more trials, to make room for another job.
        is_cancelled: Whether this process has cancelled it.
        was_counted: Whether it counts as one that was of no use.
        ending_since: Since when it ends; None if it does not.
        unshown_since: When it was submitted; None once Slurm has shown it.
        limit_at: When its walltime ends; None if unknown.
        unjoined_since: Since when it runs without a worker that takes trials; None if it does not.
        avoids: The nodes on which Slurm was told not to start it, beside those of its shape.
    """

    job: Job
    has_run: bool = False
    was_useful: bool = False
    was_idle: bool = False
    is_drained: bool = False
    is_cancelled: bool = False
    was_counted: bool = False
    ending_since: float | None = None
    unshown_since: float | None = None
    limit_at: float | None = None
    unjoined_since: float | None = None
    avoids: frozenset[str] = frozenset()

    @property
    def is_delayed(self) -> bool:
        """Whether Slurm has requeued it, and lets it wait although a node may be idle."""
        job = self.job
        return job.state is JobState.PENDING and self.has_run and job.reason == "BeginTime"

    def may_be_shown_later(self, now: float) -> bool:
        """Return whether it is so new that Slurm may not show it yet."""
        if self.unshown_since is None or self.is_cancelled:
            return False
        return now - self.unshown_since < UNSHOWN_SECONDS

    @property
    def is_lost(self) -> bool:
        """Whether neither Slurm nor a worker has ever shown that the job is there."""
        return self.unshown_since is not None and not self.was_useful

    def on_hidden(self) -> None:
        """Take over that Slurm does not show the job, although its worker takes trials."""
        if self.job.state is JobState.PENDING:
            self.job = replace(self.job, state=JobState.RUNNING, slurm_state="RUNNING", reason="")
        self.has_run = True

    def update(self, job: Job, now: float) -> None:
        """Take over what Slurm shows of the job now."""
        if job.state in ALIVE:
            self.is_cancelled = False  # requeued by hand, or not cancelled after all
        self.unshown_since = None
        keeps_node = not job.node and job.state is not JobState.PENDING  # else it was requeued
        self.job = replace(job, node=self.job.node) if keeps_node else job
        if job.state is JobState.RUNNING and job.ends_at is not None:
            self.limit_at = job.ends_at
        if job.state is not JobState.ENDING:
            self.ending_since = None
        elif self.ending_since is None:
            self.ending_since = now
        self.has_run |= job.state in (JobState.RUNNING, JobState.ENDING) or bool(job.node)

    def live(self, shape: Shape, *, is_idle: bool, now: float) -> LiveJob:
        """Return the job as a plan counts it; once at each poll.

        Args:
            shape: What it asked for.
            is_idle: Whether no trial runs on its worker.
            now: The time.
        """
        # One on which a trial runs does not wait, also if Slurm has not shown that yet.
        job, is_pending = self.job, is_idle and self.job.state is JobState.PENDING
        left = None
        if job.ends_at is not None and not is_pending:
            # Short jobs are not replaced in their first half.
            margin = min(shape.notice_seconds + _SIGNAL_SECONDS, shape.walltime_seconds / 2)
            left = job.ends_at - now - margin
        # A job counts as idle after two polls: trials may be on their way to its worker.
        is_busy = not is_pending and not (is_idle and self.was_idle)
        self.was_idle = is_idle
        return LiveJob(
            job.id,
            job.name,
            is_pending=is_pending,
            is_busy=is_busy,
            is_drained=self.is_drained,
            seconds_left=left,
        )

    def watch(self, live: LiveJob, *, has_joined: bool, now: float) -> None:
        """Take over whether it runs without a worker that takes trials."""
        is_leaving = live.seconds_left is not None and live.seconds_left <= 0
        # A node that is still being booted for a job (CONFIGURING) is Slurm's business.
        if self.job.slurm_state != "RUNNING" or has_joined or is_leaving:
            self.unjoined_since = None
        elif self.unjoined_since is None:
            self.unjoined_since = now


@dataclass(slots=True)
class ShapeHealth:
    """Successes and failures of the jobs of one shape.

    Attributes:
        failures: How many in a row were not useful.
        message: The line for the user on them.
        most_at_once: How many jobs to submit at once at most.
        refused_until: Until when none is submitted.
    """

    failures: int = 0
    message: str = ""
    most_at_once: int = sys.maxsize
    refused_until: float = 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether no more jobs are submitted, unless one of them proves useful."""
        return self.failures >= FAILURES_IN_A_ROW

    def failed(self, words: str) -> bool:
        """Count a job that was not useful; returns whether the shape is given up by that.

        Args:
            words: What went wrong, to follow "3 jobs in a row".
        """
        self.failures += 1
        self.message = f"{self.failures} jobs in a row {words}"
        return self.failures == FAILURES_IN_A_ROW

    def is_open(self, now: float) -> bool:
        """Return whether jobs may be submitted now."""
        return not self.is_given_up and now >= self.refused_until


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
    """The records of a study's jobs, by id."""

    def __init__(self) -> None:
        self._records: dict[str, JobRecord] = {}

    def __iter__(self) -> Iterator[JobRecord]:
        return iter(self._records.values())

    def __getitem__(self, job_id: str) -> JobRecord:
        return self._records[job_id]

    def present(self) -> list[JobRecord]:
        """Return those that are not over, but for those that this process has cancelled."""
        return [
            each for each in self if each.job.state is not JobState.OVER and not each.is_cancelled
        ]

    def alive(self) -> list[JobRecord]:
        """Return those of the present ones that can still be useful."""
        return [each for each in self.present() if each.job.state in ALIVE]

    def unjoined(self, now: float) -> list[JobRecord]:
        """Return those that have run for long without a worker of use."""
        latest = now - UNJOINED_SECONDS
        return [each for each in self.alive() if (each.unjoined_since or math.inf) <= latest]

    def live(
        self, workers: Mapping[str, bool], shape_of: Callable[[str], Shape], now: float
    ) -> list[LiveJob]:
        """Return the present jobs as a plan counts them; once at each poll.

        Args:
            workers: The ids of the jobs whose workers take trials, and whether trials run there.
            shape_of: What jobs of a name have asked for.
            now: The time.
        """
        jobs = []
        for record in self.present():
            job = record.job
            if job.state not in ALIVE:
                if now - (record.ending_since or 0.0) < _ENDING_SECONDS:
                    jobs.append(LiveJob(job.id, job.name, is_ending=True))
            elif record.is_delayed:  # others may start at once
                record.was_idle = True
            else:
                is_idle = not workers.get(job.id, False)
                live = record.live(shape_of(job.name), is_idle=is_idle, now=now)
                record.watch(live, has_joined=job.id in workers, now=now)
                jobs.append(live)
        return jobs

    def missing(self, shown: Sequence[Job], useful: Container[str], now: float) -> list[str]:
        """Return the ids of the jobs that are over because Slurm does not show them.

        A job that is so new that Slurm may not show it yet is not over, nor is one whose worker
        takes trials.

        Args:
            shown: The jobs that Slurm shows.
            useful: The ids of the jobs whose workers take trials.
            now: The time.
        """
        ids = {job.id for job in shown}
        return [
            record.job.id
            for record in self
            if record.job.id not in ids
            and record.job.state is not JobState.OVER
            and record.job.id not in useful
            and not record.may_be_shown_later(now)
        ]

    def update(
        self, shown: Sequence[Job], missing: Container[str], now: float, *, is_first: bool
    ) -> list[JobRecord]:
        """Take over what Slurm shows; returns the records of the jobs that have ended since.

        Args:
            shown: The jobs.
            missing: The ids of those that are over because they are missing among the jobs.
            now: The time.
            is_first: Whether the jobs are those of an earlier master, and may have been useful.
        """
        ended = []
        for job in shown:
            record = self._records.setdefault(job.id, JobRecord(job, was_useful=is_first))
            if job.state is JobState.OVER and record.job.state is not JobState.OVER:
                ended.append(record)
            record.update(job, now)
        for job_id in self._records.keys() - {job.id for job in shown}:
            record = self._records[job_id]
            if job_id in missing:
                record.job = replace(record.job, state=JobState.OVER, slurm_state="", reason="")
                ended.append(record)
            if record.job.state is JobState.OVER:
                del self._records[job_id]
            elif not record.may_be_shown_later(now):
                record.on_hidden()
        return ended

    def submitted(self, ids: Iterable[str], name: str, now: float) -> None:
        """Add jobs that were just submitted."""
        for job_id in ids:
            job = Job(job_id, name, JobState.PENDING, "PENDING")
            self._records[job_id] = JobRecord(job, unshown_since=now)

    def useful(self, ids: Iterable[str]) -> list[Job]:
        """Record that the workers of jobs take trials; returns the jobs of which that is new.

        Such a job runs, also if Slurm has not shown that yet.
        """
        known = (self._records[job_id] for job_id in ids if job_id in self._records)
        new = [record for record in known if not record.was_useful]
        for record in new:
            record.was_useful = True
            record.on_hidden()
        return [record.job for record in new]
