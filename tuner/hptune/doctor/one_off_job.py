"""One short job that is not a worker: it is submitted, waited for, and cancelled in any case."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from dataclasses import replace

from hptune_jobqueue.commands import Job, JobState, Slurm
from hptune_jobqueue.config import Shape
from hptune_jobqueue.errors import NotStartedError, SlurmUnavailableError, SubmissionError
from hptune_jobqueue.job_kinds import JobKind
from hptune_jobqueue.job_records import UNSHOWN_SECONDS
from hptune_jobqueue.script import with_command

from ..worker.process_ids import ignored

LONGEST_SECONDS = 600
"""The walltime of such a job at most, so that Slurm finds a gap for it."""

_POLL_SECONDS = 3.0
"""The time between two looks at the job, which lasts a minute."""

_GONE_SECONDS = 40.0
"""How long a cancelled job may take to end: it may clean up after itself."""


def shortened(shape: Shape) -> Shape:
    """Return the shape for one short job on one node, with its output in the job's directory."""
    walltime = shape.walltime if shape.walltime_seconds < LONGEST_SECONDS else "00:10:00"
    return replace(shape, walltime=walltime, nodes=1, notice_seconds=30, log_directory=None)


def run_one_off_job(kind: JobKind, command: str, *, wait_seconds: float) -> Job:
    """Submit one job and wait until it is over; no job is left however this returns.

    Args:
        kind: What it asks for; no other job may have the name of its jobs.
        command: The arguments of `python` in the job, as shell text.
        wait_seconds: How long it may wait to start.

    Returns:
        The job as Slurm last showed it.

    Raises:
        SubmissionError: Slurm refuses the job, or would never start it; the reason is Slurm's.
        NotStartedError: Slurm has not started it in time.
        SlurmUnavailableError: There is no Slurm here, or it does not answer.
    """
    slurm = Slurm()
    deadline = time.monotonic() + wait_seconds
    ids: tuple[str, ...] = ()
    try:
        script = with_command(kind.script, kind.shape, kind.worker, command)
        ids = slurm.submit(script, 1)
        (job_id,) = ids
        job, is_shown = Job(job_id, kind.job_name, JobState.PENDING, "PENDING"), False
        shown_by = time.monotonic() + UNSHOWN_SECONDS
        while job.state is not JobState.OVER:
            time.sleep(_POLL_SECONDS)
            shown = [each for each in slurm.jobs([kind.job_name]) if each.id == job_id]
            is_shown = is_shown or bool(shown)
            if shown:
                job = shown[0]
            elif is_shown or time.monotonic() > shown_by:
                # Slurm forgets a job some time after its end.
                job = replace(job, state=JobState.OVER)
            late = time.monotonic() > deadline
            if job.state is JobState.PENDING and (late or job.is_hopeless):
                when = "and never will be" if job.is_hopeless else f"in {wait_seconds:g} s"
                make = SubmissionError if job.is_hopeless else NotStartedError
                raise make(
                    f"job {job_id} was not started {when}; Slurm's reason is "
                    f"{job.reason or 'not given'}"
                )
        return job
    finally:
        _end(slurm, kind.job_name, ids)


def _end(slurm: Slurm, name: str, ids: Sequence[str]) -> None:
    """Cancel what is left, also by name: an interrupted sbatch prints no id."""

    def left() -> list[str]:
        return [job.id for job in slurm.jobs([name]) if job.state is not JobState.OVER]

    with contextlib.suppress(SlurmUnavailableError):
        with ignored(signal.SIGINT):
            found = left()
            slurm.cancel([*{*ids, *found}])
        deadline = time.monotonic() + _GONE_SECONDS
        while found and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            found = left()
