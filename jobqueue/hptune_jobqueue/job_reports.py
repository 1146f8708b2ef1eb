"""What users are told of jobs: their states, how they ended, and what they wrote."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from .commands import Job, JobState
from .config import Shape
from .job_records import JobRecord
from .script import SETUP_FAILED


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line for the user on jobs.

    Attributes:
        text: The line.
        is_summary: Whether it has the states of all jobs, in place of the last one that had.
    """

    text: str
    is_summary: bool = False


_EARLY_SECONDS = 75.0
"""How much earlier than asked Slurm may announce the end of a job's walltime, with a margin."""

_SETUP_LINES = 1000
"""How many lines of a job's output are searched for those of its setup."""


def summary_of(jobs: Sequence[Job], wanted: int) -> str:
    """Return the states of the jobs in a line for the user; empty if there is nothing to say."""
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
    if ending := [job for job in jobs if job.state is JobState.ENDING]:
        nodes = sorted({node for job in ending for node in job.nodes})
        where = f" on {', '.join(nodes)}" if 0 < len(nodes) <= 4 else ""
        parts.append(f"{counted(len(ending), 'job')} ending{where}")
    for (partition, reason), count in sorted(waiting.items()):
        why = f": {reason}" if reason else ""
        parts.append(f"{counted(count, 'job')} waiting in partition {partition}{why}")
    return f"Slurm: {'; '.join(parts)}" if parts and wanted else ""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "2 jobs"."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def tail_of(path: Path) -> str:
    """Return the last lines of a file, at most 15."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-15:])
    except OSError:
        return "(nothing)"


def unjoined_text(job: Job, since: float, grace_seconds: float, log_file: Path) -> str:
    """Return the line for the user on a job that runs, and whose worker has not joined.

    Args:
        job: The job.
        since: Since when it runs like that, in seconds since the epoch.
        grace_seconds: After how long it is cancelled.
        log_file: What it wrote.
    """
    begin, end = (
        time.strftime("%H:%M", time.localtime(at)) for at in (since, since + grace_seconds)
    )
    said = _last_line(log_file)
    return (
        f"no worker has joined from job {job.id}, which runs on {job.node} since {begin}. "
        + (f"Its last line: {said}. " if said else f"It has written nothing into {log_file}. ")
        + f"It is cancelled at {end} (grace_seconds in the slurm.toml)"
    )


def how_it_ended(record: JobRecord, shape: Shape, log_file: Path) -> str:
    """Return how a job ended, to follow its name in a line for the user.

    Args:
        record: The job, which is over.
        shape: What it asked for.
        log_file: What it wrote.
    """
    job = record.job
    if _has_reached_walltime(record, shape):
        return f"has reached its walltime ({shape.walltime})"
    if record.is_lost:
        return "is cancelled: Slurm has accepted it, but squeue does not show it"
    words = f"ended: {job.slurm_state}" if job.slurm_state else "is gone"
    words += f" ({job.reason})" if job.reason else ""
    if record.has_run and not record.was_useful:
        if not log_file.exists():
            return (
                f"{words} before its worker had joined, and its output is missing: do the nodes "
                f"see {log_file.parent}?"
            )
        if said := _last_line(log_file):
            words += f" before its worker had joined. Its last line: {said}"
    return words


def _has_reached_walltime(record: JobRecord, shape: Shape) -> bool:
    """Return whether a job ended at its walltime, or left shortly before it."""
    state = record.job.slurm_state
    is_left = state in ("COMPLETED", "") and record.limit_at is not None
    notice = shape.notice_seconds + _EARLY_SECONDS
    return state == "TIMEOUT" or (is_left and time.time() > (record.limit_at or 0.0) - notice)


def setup_failures(path: Path) -> list[str]:
    """Return the lines in which a job's output says what of its setup failed."""
    with contextlib.suppress(OSError), path.open(errors="replace") as file:
        return [
            line[line.index(SETUP_FAILED) :].strip()
            for line in islice(file, _SETUP_LINES)
            if SETUP_FAILED in line
        ]
    return []


def _last_line(path: Path) -> str:
    """Return the last line of a file that is not blank; empty if there is none."""
    lines = tail_of(path).splitlines()
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
