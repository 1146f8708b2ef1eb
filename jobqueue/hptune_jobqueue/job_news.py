"""What users are told of a study's jobs while it runs: lines, and a file for `hptune status`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from .commands import Job
from .job_reports import JobLine, setup_failures, summary_of
from .jobs_file import Problem, ShownJobs, by_id, write_jobs


class JobNews:
    """The news of one study's jobs; only `line` and `write` may be called from any thread.

    Attributes:
        problems: Why no jobs can be submitted or seen now; may be read from any thread.

    Args:
        tell: Takes a line for the user.
        directory: Where to keep the file.
    """

    def __init__(self, tell: Callable[[JobLine], None], directory: Path) -> None:
        self._tell = tell
        self._directory = directory
        self._last: dict[str, str] = {}
        self._problems: dict[str, Problem] = {}
        self.problems: tuple[Problem, ...] = ()
        self._setups: set[str] = set()
        self._summary = ""
        self._asked_at = time.time()
        self._lock = threading.Lock()

    def line(self, text: str) -> None:
        """Tell a line."""
        self._tell(JobLine(text))

    def once(self, text: str, *, about: str = "") -> None:
        """Tell a line, unless it is the same as the last one on its subject."""
        if text and text != self._last.get(about):
            self._last[about] = text
            self.line(text)

    def problem(self, text: str, *, about: str) -> None:
        """Tell a line once, and show it as why no jobs run until the subject is solved."""
        self.once(text, about=about)
        since = self._problems[about].since if about in self._problems else time.time()
        self._problems[about] = Problem(text, since)
        self.problems = tuple(self._problems.values())

    def solved(self, about: str) -> None:
        """Show no problem on this subject any more."""
        self._problems.pop(about, None)
        self.problems = tuple(self._problems.values())
        self._last.pop(about, None)

    def setup(self, job: Job, log_file: Path) -> None:
        """Tell which lines of its setup have failed in a job that works nevertheless."""
        for text in setup_failures(log_file):
            if text not in self._setups:
                self._setups.add(text)
                self.line(f"job {job.id}: {text}")

    def show(self, jobs: Sequence[Job], wanted: int) -> None:
        """Tell the jobs' states if they have changed, and write the file."""
        summary = summary_of(jobs, wanted)
        if summary and summary != self._summary:
            self._summary = summary
            self._tell(JobLine(summary, is_summary=True))
        self._asked_at = time.time()
        self.write(jobs)

    def write(self, jobs: Sequence[Job]) -> None:
        """Write the file with the jobs, as Slurm last showed them and their workers since."""
        with self._lock:
            shown = ShownJobs(self._asked_at, tuple(by_id(jobs)), self.problems)
            write_jobs(self._directory, shown)
