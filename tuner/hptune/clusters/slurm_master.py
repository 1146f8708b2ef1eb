"""A master that is a Slurm job itself (`--detach`): submit, show, cancel and hand over."""

from __future__ import annotations

import contextlib
import math
import os
import shlex
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hptune_jobqueue.commands import ANSWER_SECONDS, Job, JobState
from hptune_jobqueue.errors import SlurmUnavailableError

from ..errors import StudyError, StudyLockedError
from ..files.access import exists
from ..files.file_errors import storage_errors
from ..storage.directory import StudyDirectory
from .jobs import jobs_name
from .shown_jobs import job_text

_MARGIN_SECONDS = 10.0
"""How long before its end a master leaves at the latest, if Slurm does not say what follows."""

_KILL_SECONDS = 20.0
"""How long after the signal a cancelled master leaves: Slurm's KillWait is 30 s by default."""

_SELDOM_SECONDS = 20.0
"""Shortest time between two questions to Slurm, whose commands may burden a whole site."""

_PATIENCE_SECONDS = 10.0
"""How long Slurm may take to answer one who only looks at studies, and then sees them without."""

_HANDOVER_LINES = {
    True: "this job ends; Slurm starts it again, and it then continues the study",
    False: (
        "this job ends, and Slurm does not say whether it starts it again: the study and its jobs "
        "are left as they are, for the next master"
    ),
}
"""Line for the user, by whether Slurm has said that it starts the job again."""


@dataclass(frozen=True, slots=True)
class MasterJob:
    """A detached master, as Slurm shows it.

    Attributes:
        job: Its job; None if that is gone.
        log: The file that it writes.
    """

    job: Job | None
    log: Path

    def text(self) -> str:
        """Return a sentence for the user."""
        log = shlex.quote(str(self.log))
        if self.job is None:
            return f"The last master that was a Slurm job has ended; its output is in {log}."
        words = job_text(self.job, now=time.time())
        return f"The master is Slurm job {self.job.id} ({words}); it writes into {log}."

    @property
    def is_gone(self) -> bool:
        """Whether Slurm has no such job any more."""
        return self.job is None

    @property
    def waits(self) -> bool:
        """Whether the job waits to start; not that of this process, of which squeue may be late."""
        job, here = self.job, os.environ.get("SLURM_JOB_ID")
        return job is not None and job.state is JobState.PENDING and job.id != here

    def to_json(self) -> dict[str, object]:
        """Return plain values; all but `log` are None if there is no job."""
        job = self.job
        return {
            "id": job and job.id,
            "state": job and job.slurm_state,
            "reason": job and (job.reason or None),
            "node": job and (job.node or None),
            "expected_start": job and job.starts_at,
            "log": str(self.log),
        }


class Masters:
    """The masters that are this user's jobs. Slurm is asked seldom, and for all of them at once.

    It is asked again for a master that was submitted since.

    Args:
        patience_seconds: How long Slurm may take to answer; None as for one who only looks.
    """

    def __init__(self, patience_seconds: float | None = None) -> None:
        self._patience_seconds = _PATIENCE_SECONDS if patience_seconds is None else patience_seconds
        self._asked_at = -math.inf
        self._jobs: Mapping[str, Job] | None = None

    def job_of(self, directory: StudyDirectory) -> MasterJob | None:
        """Return the state of a detached master's job; None if there was none, or if unknown."""
        from hptune_jobqueue.master import find_masters

        folder = directory.path / "jobs"
        script = folder / "master.sbatch"
        with storage_errors(directory.path):
            if not exists(script) or (written := script.stat()).st_uid != os.getuid():
                return None
        is_old = abs(time.time() - self._asked_at) > _SELDOM_SECONDS
        if is_old or written.st_mtime > self._asked_at:
            self._jobs = None
            with contextlib.suppress(SlurmUnavailableError):
                self._jobs = find_masters(self._patience_seconds)
            self._asked_at = time.time()
        if self._jobs is None:
            return None
        return MasterJob(self._jobs.get(jobs_name(directory.path)), folder / "master.log")

    def may_have_job(self, directory: StudyDirectory) -> bool:
        """Return whether a job may be the study's master, or become it.

        True if Slurm does not answer.
        """
        if not exists(directory.path / "jobs" / "master.sbatch"):
            return False
        master = self.job_of(directory)
        return master is None or not master.is_gone


def refuse_second_master(directory: StudyDirectory) -> None:
    """Check that no job of a master waits, which would fail when another process is the master.

    Raises:
        StudyLockedError: One does; the message says what to do.
    """
    found = Masters(ANSWER_SECONDS).job_of(directory)
    if found is None or found.job is None or not found.waits:
        return
    words = job_text(found.job, now=time.time())
    raise StudyLockedError(
        f"the master of {directory} is Slurm job {found.job.id} ({words}), which continues the "
        "study by itself when it starts; there is nothing to do. To run it otherwise, cancel that "
        f"job first with `hptune stop {directory}`"
    )


def cancel_jobs(directory: StudyDirectory, *, is_master: bool = False) -> int:
    """Cancel the jobs that a dead master left, and a detached master that waits to start.

    Args:
        directory: The study's directory.
        is_master: Whether this process is the master, whose own job is left alone.

    Returns:
        How many jobs there were.

    Raises:
        StudyError: Slurm does not answer.
    """
    from hptune_jobqueue.cluster import forget_jobs, may_have_jobs
    from hptune_jobqueue.master import cancel_study

    folder = directory.path / "jobs"
    with storage_errors(directory.path):
        if not may_have_jobs(folder) and (is_master or not exists(folder / "master.sbatch")):
            return 0
    try:
        count = cancel_study(jobs_name(directory.path), is_master=is_master)
    except SlurmUnavailableError as error:
        raise StudyError(
            f"Slurm jobs of this study may be left ({error}). Cancel them with "
            f"`hptune stop {directory}` when Slurm answers"
        ) from error
    forget_jobs(folder)
    return count


def handover(
    notify: Callable[[str], None], *, give_back: Callable[[], None], end: Callable[[str], None]
) -> Callable[[int], bool] | None:
    """Return what a detached master does on a signal; None for a master that is no job.

    The returned function takes the signal's number, is called again and again, and returns
    whether the study must stop. If Slurm starts the master's job again, or does not answer until
    its end, the function ends the process instead, and leaves all that runs to the next master.

    Args:
        notify: Takes a line for the user.
        give_back: Called if Slurm starts the job again, which may take hours: ends the workers
            that run no trial.
        end: Ends the process; takes what continues the study by itself, in words, or an empty
            text if that is unknown.
    """
    from hptune_jobqueue.master import RequeueInquiry, RequeueOutcome, notice_seconds

    notice = notice_seconds()
    if notice is None:
        return None
    inquiries: list[RequeueInquiry] = []

    def may_stop(number: int) -> bool:
        if not inquiries:
            # Any signal but that of the time limit means that Slurm kills the job in half a minute.
            in_time = max(notice - _MARGIN_SECONDS, notice / 2)
            inquiries.append(RequeueInquiry(in_time if number == signal.SIGUSR1 else _KILL_SECONDS))
        outcome = inquiries[0].answer
        if outcome is not None and outcome is not RequeueOutcome.ENDS:
            is_requeued = outcome is RequeueOutcome.REQUEUED
            notify(_HANDOVER_LINES[is_requeued])
            if is_requeued:
                give_back()
            job = os.environ.get("SLURM_JOB_ID", "")
            end(f"Slurm starts the master's job {job} again" if is_requeued else "")
        if outcome is RequeueOutcome.ENDS and (why := inquiries[0].refusal):
            notify(f"{why}. So the study stops before this job ends")
        return outcome is RequeueOutcome.ENDS

    return may_stop
