"""The file with a study's jobs as Slurm last showed them, for other processes to read."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .commands import Job, JobState

_FILE_NAME = "shown.json"


@dataclass(frozen=True, slots=True)
class Problem:
    """Why no jobs can be submitted or seen now, or are of no use.

    Attributes:
        text: The reason, for the user.
        since: Since when, in seconds since the epoch.
    """

    text: str
    since: float


@dataclass(frozen=True, slots=True)
class ShownJobs:
    """The jobs that were not over when Slurm was last asked.

    Attributes:
        at: When Slurm was asked, in seconds since the epoch.
        jobs: The jobs.
        problems: Why there are no others.
    """

    at: float
    jobs: tuple[Job, ...]
    problems: tuple[Problem, ...] = ()


def write_jobs(directory: Path, shown: ShownJobs) -> None:
    """Replace the file; a file system that does not allow it is ignored."""
    file = directory / _FILE_NAME
    new = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        new.write_text(json.dumps(asdict(shown)), encoding="utf-8")
        new.replace(file)


def remove_jobs(directory: Path) -> None:
    """Remove the file, when no job is left; may be repeated."""
    with contextlib.suppress(OSError):
        (directory / _FILE_NAME).unlink(missing_ok=True)


def read_jobs(directory: Path) -> ShownJobs | None:
    """Return the contents of the file; None if there is none."""
    file = directory / _FILE_NAME
    if not file.is_file():  # others may have put a pipe there, which would be waited for
        return None
    try:
        plain = json.loads(file.read_text(encoding="utf-8"))
        jobs = [Job(**{**job, "state": JobState(job["state"])}) for job in plain["jobs"]]
        problems = tuple(Problem(**each) for each in plain["problems"])
        return ShownJobs(plain["at"], tuple(jobs), problems)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def by_id(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs in the order of their ids' numbers: 9_0, 9_10, 10_0."""
    return sorted(jobs, key=lambda job: [int(each) for each in job.id.split("_") if each.isdigit()])
