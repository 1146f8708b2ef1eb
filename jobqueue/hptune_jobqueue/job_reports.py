"""What users are told of jobs: lines, and a file with the jobs for other processes to read."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from .commands import Job, JobState
from .config import Shape
from .job_records import JobRecord
from .script import SETUP_FAILED

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
        plain = asdict(replace(shown, jobs=tuple(_by_id(shown.jobs))))
        new.write_text(json.dumps(plain), encoding="utf-8")
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


def _by_id(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs in the order of their ids' numbers: 9_0, 9_10, 10_0."""
    return sorted(jobs, key=lambda job: [int(each) for each in job.id.split("_") if each.isdigit()])


@dataclass(frozen=True, slots=True)
class Output:
    """What a job has written.

    Attributes:
        file: Its file.
        text: The contents; None if it cannot be read.
    """

    file: Path
    text: str | None

    @property
    def tail(self) -> str:
        """The last lines, at most 15."""
        return "(nothing)" if self.text is None else "\n".join(self.text.splitlines()[-15:])

    @property
    def said(self) -> str:
        """What it has written last, as a part of a sentence for the user."""
        if self.text is None:
            return f"its output is missing, as where a node does not see {self.file.parent}"
        if not (text := self.text.strip()):
            return f"it has written nothing into {self.file}"
        return f"its last line: {text.splitlines()[-1].strip()}"

    @property
    def setup_failures(self) -> list[str]:
        """The lines that say what of the job's setup failed."""
        lines = (self.text or "").splitlines()[:_SETUP_LINES]
        return [line[line.index(SETUP_FAILED) :].strip() for line in lines if SETUP_FAILED in line]


def read_output(file: Path) -> Output:
    """Return what a job has written into its file."""
    try:
        return Output(file, file.read_text(errors="replace"))
    except OSError:
        return Output(file, None)


class News:
    """Lines for the user on jobs, each told once, and what keeps jobs from being of use now."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._last: dict[str, str] = {}
        self._problems: dict[str, Problem] = {}

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Why no jobs can be submitted or seen now, or are of no use."""
        return tuple(self._problems.values())

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        lines, self._lines = self._lines, []
        return lines

    def line(self, text: str) -> None:
        """Tell a line."""
        self._lines.append(text)

    def once(self, text: str, *, about: str = "") -> None:
        """Tell a line, unless it is the same as the last one on its subject."""
        if text and text != self._last.get(about):
            self._last[about] = text
            self.line(text)

    def first(self, text: str, *, about: str) -> None:
        """Tell a line, unless there was one on its subject."""
        if about not in self._last:
            self.once(text, about=about)

    def problem(self, text: str, now: float, *, about: str) -> None:
        """Tell a line once, and show it as a problem until the subject is solved."""
        self.once(text, about=about)
        known = self._problems.get(about)
        self._problems[about] = Problem(text, known.since if known else now)

    def solved(self, about: str) -> None:
        """Show no problem on this subject any more."""
        self._problems.pop(about, None)
        self._last.pop(about, None)


_EARLY_SECONDS = 75.0
"""How much earlier than asked Slurm may announce the end of a job's walltime, with a margin."""

_SETUP_LINES = 1000
"""How many lines of a job's output are searched for those of its setup."""


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, such as "2 jobs"."""
    return f"1 {noun}" if number == 1 else f"{number} {noun}s"


def unjoined_text(job: Job, since: float, grace_seconds: float, output: Output) -> str:
    """Return the line for the user on a job that runs, and whose worker has not joined.

    Args:
        job: The job.
        since: Since when it runs like that, in seconds since the epoch.
        grace_seconds: After how long it is cancelled.
        output: What it wrote.
    """
    begin, end = (
        time.strftime("%H:%M", time.localtime(at)) for at in (since, since + grace_seconds)
    )
    return (
        f"no worker has joined from job {job.id}, which has run on {job.node} since {begin}; "
        f"{output.said}. It is cancelled at {end} (grace_seconds in the slurm.toml)"
    )


def ending_text(job: Job) -> str:
    """Return how Slurm says that a job ended, to follow its name in a line for the user."""
    words = f"ended: {job.slurm_state}" if job.slurm_state else "is gone"
    return f"{words} ({job.reason})" if job.reason else words


def how_it_ended(record: JobRecord, shape: Shape, output: Output, now: float) -> str:
    """Return how a job ended, to follow its name in a line for the user.

    Args:
        record: The job, which is over.
        shape: What it asked for.
        output: What it wrote.
        now: The time.
    """
    job = record.job
    if _has_reached_walltime(record, shape, now):
        return f"has reached its walltime ({shape.walltime})"
    if record.is_lost:
        return "is cancelled: Slurm has accepted it, but squeue does not show it"
    words = ending_text(job)
    if record.has_run and not record.was_useful:
        words += f" before its worker had joined; {output.said}"
    return words


def _has_reached_walltime(record: JobRecord, shape: Shape, now: float) -> bool:
    """Return whether a job ended at its walltime, or left shortly before it."""
    state = record.job.slurm_state
    is_left = state in ("COMPLETED", "") and record.limit_at is not None
    notice = shape.notice_seconds + _EARLY_SECONDS
    return state == "TIMEOUT" or (is_left and now > (record.limit_at or 0.0) - notice)
