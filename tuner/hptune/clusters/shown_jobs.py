"""A study's Slurm jobs, as `hptune status` shows them: from the file that its run keeps."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hptune_jobqueue.commands import Job, JobState
from hptune_jobqueue.job_reports import Problem, read_jobs

from .. import text

_JOBS_SHOWN = 12
_NODES_NAMED = 4


def jobs_text(study: Path, *, now: float) -> str:
    """Return the jobs and what Slurm says of them, for the user; empty if there are none.

    Args:
        study: The study's directory.
        now: The time in seconds since the epoch.
    """
    shown = read_jobs(study / "jobs")
    if shown is None or not (shown.jobs or shown.problems):
        return ""
    states = Counter(str(job.state) for job in shown.jobs)
    counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items(), reverse=True))
    ago = text.duration(max(0.0, now - shown.at))
    alike: dict[str, list[str]] = {}
    for job in shown.jobs:
        alike.setdefault(job_text(job, now=now), []).append(job.id)
    rows = [f"{_named(ids)}  {words}" for words, ids in alike.items()]
    if len(rows) > _JOBS_SHOWN:
        more = sum(map(len, [*alike.values()][_JOBS_SHOWN:]))
        rows[_JOBS_SHOWN:] = [f"and {text.plural(more, 'other')}: hptune status --json"]
    lines = [f"jobs     {counts or 'none'}, as Slurm showed them {ago} ago"]
    rows += _problem_texts(shown.problems, now)
    return "\n".join([*lines, *(f"         {row}" for row in rows)])


def watched_jobs_text(study: Path, *, now: float) -> str:
    """Return the same as one paragraph, which the run's own screen has; empty if there are none."""
    shown = read_jobs(study / "jobs")
    if shown is None or not (line := jobs_line(shown.jobs, shown.problems, now=now)):
        return ""
    return f"{line} (as Slurm showed them {text.duration(max(0.0, now - shown.at))} ago)"


def _problem_texts(problems: Sequence[Problem], now: float) -> list[str]:
    return [f"since {_clock(each.since, now)}: {text.clean(each.text)}" for each in problems]


def _named(ids: Sequence[str]) -> str:
    return ids[0] if len(ids) == 1 else f"{ids[0]} and {text.plural(len(ids) - 1, 'other')}"


def jobs_line(jobs: Sequence[Job], problems: Sequence[Problem] = (), *, now: float) -> str:
    """Return how many jobs run, and how many are pending and why; empty if there are none.

    Args:
        jobs: The jobs that are not over.
        problems: Why there are no others.
        now: The time in seconds since the epoch.
    """
    others = Counter(job.slurm_state.lower() for job in jobs if job.state is not JobState.PENDING)
    parts = []
    for state, count in others.items():
        nodes = sorted({node for job in jobs if job.slurm_state.lower() == state
                        for node in job.nodes})  # fmt: skip
        where = f" on {', '.join(nodes)}" if 0 < len(nodes) <= _NODES_NAMED else ""
        parts.append(f"{count} {state}{where}")
    pending: dict[tuple[str, str], list[Job]] = {}
    for job in jobs:
        if job.state is JobState.PENDING:
            pending.setdefault((job.partition, job.reason), []).append(job)
    for alike in sorted(pending.values(), key=len, reverse=True):
        first = min(alike, key=lambda job: job.starts_at or math.inf)
        parts.append(f"{len(alike)} {job_text(first, now=now)}")
    return "; ".join([*parts, *_problem_texts(problems, now)])


def states_line(jobs: Sequence[Job]) -> str:
    """Return the same of those that Slurm has shown, without times, which change at each look."""
    shown = [
        replace(job, starts_at=None, submitted_at=None)
        for job in jobs
        if job.state is not JobState.PENDING or job.reason or job.partition
    ]
    return jobs_line(shown, now=0.0)


def job_text(job: Job, *, now: float) -> str:
    """Return a job's state and partition, and its nodes or why it waits, for the user."""
    words = job.slurm_state.lower() + (f" in {job.partition}" if job.partition else "")
    if job.state is JobState.PENDING:
        words += f": {job.reason}" if job.reason else ""
        # Slurm keeps an estimate that was not met until it makes the next one.
        if job.starts_at is not None and job.starts_at > now:
            words += f", expected to start at {_clock(job.starts_at, now)}"
        if job.submitted_at is not None:
            words += f", submitted at {_clock(job.submitted_at, now)}"
    else:
        words += f" on {job.node}" if job.node else ""
        words += f", until {_clock(job.ends_at, now)}" if job.ends_at else ""
    return text.clean(words)


def _clock(at: float, now: float) -> str:
    """Return a time of day, with its date unless it is today."""
    same_day = time.localtime(at)[:3] == time.localtime(now)[:3]
    return time.strftime("%H:%M" if same_day else "%Y-%m-%d %H:%M", time.localtime(at))


def jobs_json(study: Path) -> dict[str, object] | None:
    """Return the jobs as plain values, with the time when Slurm was asked; None if unknown."""
    shown = read_jobs(study / "jobs")
    if shown is None:
        return None
    return {
        "at": shown.at,
        "problems": [
            {"reason": problem.text, "since": problem.since} for problem in shown.problems
        ],
        "jobs": [
            {
                "id": job.id,
                "name": job.name,
                "state": job.slurm_state,
                "reason": job.reason or None,
                "partition": job.partition or None,
                "nodes": list(job.nodes),
                "submitted": job.submitted_at,
                "expected_start": job.starts_at,
                "ends_at": job.ends_at if job.state is not JobState.PENDING else None,
            }
            for job in shown.jobs
        ],
    }
