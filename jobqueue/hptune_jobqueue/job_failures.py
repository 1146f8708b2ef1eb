"""Jobs that were of no use: which are told, what they are counted for, and when it is enough."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence

from .commands import Job
from .excluded_nodes import ExcludedNodes
from .job_health import ShapeHealth
from .job_kinds import JobKind, JobKinds
from .job_news import JobNews
from .job_records import JobRecord, JobRecords, failing_node
from .job_reports import how_it_ended, tail_of

_NOT_ITS_FAULT = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL")
"""Slurm's states of jobs that ended through no fault of their own."""


class JobFailures:
    """Failures of the jobs of one study; `useful` may be called from any thread.

    Args:
        kinds: The kinds of jobs.
        records: The jobs.
        news: Tells the user.
        excluded: Takes the nodes at fault.
    """

    def __init__(
        self, kinds: JobKinds, records: JobRecords, news: JobNews, excluded: ExcludedNodes
    ) -> None:
        self._kinds = kinds
        self._records = records
        self._news = news
        self._excluded = excluded
        self._lock = threading.Lock()
        self._health: defaultdict[str, ShapeHealth] = defaultdict(ShapeHealth)

    def of(self, job_name: str) -> ShapeHealth:
        """Return the health of the shape of jobs of this name."""
        return self._health[self._kinds[job_name].shape.name]

    def is_given_up(self, kind: JobKind) -> bool:
        """Return whether no more jobs of a kind are submitted."""
        return self.of(kind.job_name).is_given_up

    def is_open(self, kind: JobKind) -> bool:
        """Return whether jobs of a kind may be submitted now."""
        return self.of(kind.job_name).is_open

    def useful(self, job_name: str) -> None:
        """Forget the failures of the shape of a job whose worker takes trials."""
        with self._lock:
            self.of(job_name).failures = 0

    @property
    def last_words(self) -> str:
        """What went wrong with all shapes; empty while one of them is not given up."""
        health = [self._health[shape] for shape in self._kinds.shapes]
        return "; ".join(h.message for h in health) if all(h.is_given_up for h in health) else ""

    def on_ended(self, ended: Sequence[JobRecord]) -> None:
        """Tell how jobs have ended, and count those that were not useful.

        Those of a kind that never started count as one: what ended them has ended them together.
        """
        unstarted: dict[str, tuple[Job, str]] = {}
        for record in ended:
            job = record.job
            if record.is_cancelled:
                continue
            word = how_it_ended(record, self._kinds[job.name].shape, self._kinds.log_of(job))
            self._news.line(f"job {job.id}{f' on {job.node}' if job.node else ''} {word}")
            if record.was_useful or job.slurm_state in _NOT_ITS_FAULT:
                continue
            if record.has_run:
                self._useless(record, "ended")
            else:
                unstarted[job.name] = (job, word)
        for job, word in unstarted.values():
            self.count(job, f"ended before they started. The last one, {job.id}, {word}")

    def unjoined(self, record: JobRecord) -> None:
        """Tell that a job is cancelled because its worker has not joined, and count it."""
        job = record.job
        words = f"has run for {self._kinds[job.name].shape.grace_seconds} s (grace_seconds)"
        self._news.line(f"job {job.id} on {job.node} is cancelled: it {words} without a worker")
        self._useless(record, "were cancelled")

    def _useless(self, record: JobRecord, how: str) -> None:
        """Count a job that ended before its worker had joined, or exclude the node at fault."""
        job = record.job
        if self._excluded.any_of(job.nodes):
            return
        if node := failing_node(record, self._records):
            why = f"the worker of job {job.id} did not join there"
            self._excluded.add(node, why, is_found=True)
        log_file = self._kinds.log_of(job)
        self.count(
            job,
            f"{how} before their worker had joined. "
            f"The last one, {job.id}, wrote into {log_file}:\n{tail_of(log_file)}",
        )

    def count(self, job: Job, words: str) -> None:
        """Count a job that was not useful, and tell if no more of its shape are submitted.

        Args:
            job: The job.
            words: What went wrong, to follow "3 jobs in a row".
        """
        health = self.of(job.name)
        with self._lock:
            is_given_up = health.failed(words)
        if is_given_up:
            what = f"shape {self._kinds[job.name].shape.name} is given up"
            is_only = len(self._kinds.shapes) == 1
            self._news.line(
                f"{'no more jobs are submitted' if is_only else what}: {health.message}"
            )
