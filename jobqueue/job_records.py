"""What is known of a job, how the jobs of one kind have fared, and both in message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import Job, JobState

FAILURES_IN_A_ROW = 3
"""So many jobs of no use, and no more of their kind are submitted."""


@dataclass(slots=True)
class JobRecord:
    """What is known of one job.

    Attributes:
        job: As Slurm last showed it.
        has_run: Whether it was ever started.
        was_useful: Whether its worker could ever take trials, perhaps under an earlier master.
        was_idle: Whether no trial ran on it when we last looked.
        is_drained: Whether it is given no more trials, so that another one can have its place.
        is_cancelled: Whether we have cancelled it.
    """

    job: Job
    has_run: bool = False
    was_useful: bool = False
    was_idle: bool = False
    is_drained: bool = False
    is_cancelled: bool = False


@dataclass(slots=True)
class JobKindHealth:
    """How the jobs of one kind have fared.

    Attributes:
        failures: How many in a row were of no use.
        message: What is to be said of them.
        refused_until: When Slurm may be asked for another one, by the monotonic clock.
    """

    failures: int = 0
    message: str = ""
    refused_until: float = 0.0

    @property
    def is_given_up(self) -> bool:
        """Whether no more of them are submitted, unless one comes to be of use yet."""
        return self.failures >= FAILURES_IN_A_ROW


def summary_of(jobs: Sequence[Job], wanted: int) -> str:
    """How jobs stand, in a line; empty where there is nothing to be said."""
    running = [job for job in jobs if job.state is JobState.RUNNING]
    waiting: dict[tuple[str, str], int] = {}
    for job in jobs:
        if job.state is JobState.PENDING and (job.reason or job.partition):
            key = (job.partition, job.reason)
            waiting[key] = waiting.get(key, 0) + 1
    parts = []
    if running:
        nodes = sorted({node for job in running for node in job.nodes})
        where = f" on {', '.join(nodes)}" if 0 < len(nodes) <= 4 else ""
        parts.append(f"{counted(len(running), 'job')} running{where}")
    for (partition, reason), count in sorted(waiting.items()):
        why = f": {reason}" if reason else ""
        parts.append(f"{counted(count, 'job')} waiting in partition {partition}{why}")
    return f"Slurm: {'; '.join(parts)}" if parts and wanted else ""


def counted(number: int, noun: str) -> str:
    """A number of things, in message."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def tail_of(path: Path, lines: int = 15) -> str:
    """The last lines of a file."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError:
        return "(nothing)"
