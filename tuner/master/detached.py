"""A master that is a Slurm job itself (`--detach`): begun, looked at, ended, and handed on."""

from __future__ import annotations

import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jobqueue.commands import Job
from jobqueue.config import read_config
from jobqueue.errors import SlurmUnavailableError

from ..clusters.jobs import jobs_name, translated_errors
from ..clusters.slurm_jobs import check_jobs
from ..config.settings import StudySettings
from ..errors import StudyLockedError, UsageError
from ..storage.directory import StudyDirectory, storage_errors, study_exists
from .stop_requests import end_process

_MARGIN_SECONDS = 10.0
"""How long before its end at the latest a master leaves that does not know what becomes of it."""

_KILL_SECONDS = 20.0
"""The same for one that is ended: Slurm's KillWait is 30 s, unless a site has another."""

_LAST_WORDS = {
    True: "this job ends; it begins again, and goes on where the study is then",
    False: (
        "this job ends, and Slurm does not say whether it begins again: the study and its jobs are "
        "left as they are, for the next master"
    ),
}
"""By whether it is known that it begins again."""


def detach_new(settings: StudySettings, directory: StudyDirectory, arguments: Sequence[str]) -> str:
    """Submit the master of a new study as a job; returns where to look, in words.

    Args:
        settings: What the user asked for.
        directory: Where the study is to be; must not hold one yet.
        arguments: Of `hptune`, for the same in the foreground.

    Raises:
        UsageError: Something that can be seen now is wrong, or Slurm would refuse a job, in its
            own words. Nothing was submitted.
    """
    if directory.database.exists():
        raise study_exists(directory)
    from .plan import check_request

    check_request(settings)
    try:
        return _submit(settings, directory, arguments)
    finally:
        directory.give_up()  # if nothing came of it


def detach_again(
    changes: Mapping[str, Any],
    directory: StudyDirectory,
    arguments: Sequence[str],
    *,
    accept_space: bool = False,
    tries: Sequence[Mapping[str, object]] = (),
) -> str:
    """The same for a study that is taken up again.

    Args:
        changes: Fields of `StudySettings` to change.
        directory: Where the study is.
        arguments: As above.
        accept_space: Whether the study may go on in another search space.
        tries: Configurations, given in part, to try next.

    Raises:
        NoStudyError: There is no study.
        StudyLockedError: It has a master.
        UsageError: As above.
    """
    from ..storage.ledger import LedgerReader
    from .resume_checks import ResumeState
    from .resume_plan import check_resume

    reader = LedgerReader(directory.open())
    standing = ResumeState(directory, reader.facts(), reader.trials())
    stored = StudySettings.from_json(standing.facts["settings"]).found_in(directory.path)
    settings = stored.changed(changes)
    if owner := directory.owner():
        raise StudyLockedError(
            f"{directory} has a master already: process {owner.pid} on {owner.host}. End it first "
            f"with `hptune stop {directory}`"
        )
    check_resume(
        settings,
        standing,
        epochs=changes.get("epochs"),
        accept_space=accept_space,
        tries=[point for point in tries if point not in stored.start_points],
    )
    return _submit(settings, directory, arguments)


def _submit(settings: StudySettings, directory: StudyDirectory, arguments: Sequence[str]) -> str:
    from jobqueue.master import MasterOrder, submit_master

    if not settings.slurm:
        raise UsageError("--detach makes the master a Slurm job; say with --slurm how jobs are had")
    path = Path(settings.slurm)
    with translated_errors(), storage_errors(directory.path):
        check_jobs(path, directory.path, settings.max_jobs)
        order = MasterOrder(
            config=read_config(path),
            study=jobs_name(directory.path),
            directory=directory.path / "jobs",
            lines=_lines(directory, arguments),
        )
        job = submit_master(order)
    log = shlex.quote(str(order.log_file))
    return (
        f"The master is Slurm job {job.id} in partition {job.partition}.\n"
        f"look:  hptune status {directory}   (it writes into {log})\n"
        f"stop:  hptune stop {directory}"
    )


def _lines(directory: StudyDirectory, arguments: Sequence[str]) -> list[str]:
    study = [] if directory.database.exists() else _once_begun(directory)
    return [
        f"cd {shlex.quote(str(Path.cwd()))} || exit",
        *study,
        f"python -m tuner {shlex.join(arguments)}",
    ]


def _once_begun(directory: StudyDirectory) -> list[str]:
    """What a requeued job runs in place of `hptune run`, which begins a study only once.

    `hptune resume` may be asked the same again and again.
    """
    database = shlex.quote(str(directory.database))
    return [
        f'if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && [ -e {database} ]; then',
        f"python -m tuner resume {directory}",
        "fi",
    ]


@dataclass(frozen=True, slots=True)
class MasterJob:
    """A detached master, as Slurm shows it.

    Attributes:
        job: Its job; None if that is gone.
        log: What it writes into.
    """

    job: Job | None
    log: Path

    def to_text(self) -> str:
        """A sentence."""
        where = f"it writes into {shlex.quote(str(self.log))}"
        if self.job is None:
            return f"The master was a Slurm job, and is gone; {where}."
        why = f", {self.job.reason}" if self.job.reason else ""
        on = f" on {self.job.node}" if self.job.node else ""
        state = f"{self.job.slurm_state.lower()}{on}{why}"
        return f"The master is Slurm job {self.job.id} ({state}); {where}."

    def to_json(self) -> dict[str, object]:
        """Plain values; `id`, `state` and what follows are None where there is no job."""
        job = self.job
        return {
            "id": job and job.id,
            "state": job and job.slurm_state,
            "reason": job and (job.reason or None),
            "node": job and (job.node or None),
            "log": str(self.log),
        }


def master_job(directory: StudyDirectory) -> MasterJob | None:
    """How the job of a detached master stands; None if there was none, or nobody knows."""
    from jobqueue.master import find_master

    folder = directory.path / "jobs"
    if not (folder / "master.sbatch").exists():
        return None
    try:
        return MasterJob(find_master(jobs_name(directory.path)), folder / "master.log")
    except SlurmUnavailableError:
        return None


def cancel_jobs(directory: StudyDirectory) -> bool:
    """Cancel a detached master that waits to begin, and its jobs; whether there were any.

    Raises:
        UsageError: Slurm does not answer.
    """
    from jobqueue.master import cancel_study

    if not (directory.path / "jobs" / "master.sbatch").exists():
        return False
    with translated_errors():
        return cancel_study(jobs_name(directory.path)) > 0


def handing_on(
    tell: Callable[[str], None], *, last: Callable[[], None]
) -> Callable[[int], bool] | None:
    """What a detached master does when a signal has come; None for a master that is no job.

    What is returned takes the signal's number, and is called again and again. It says whether the
    study is to let go. If the master's job begins again, or Slurm is silent until its end, it
    ends the process instead, and leaves all that runs to the next master.

    Args:
        tell: Takes a line for the user.
        last: Called after the last line, before the process ends.
    """
    from jobqueue.master import RequeueInquiry, RequeueOutcome, notice_seconds

    stall_reason = notice_seconds()
    if stall_reason is None:
        return None
    inquiries: list[RequeueInquiry] = []

    def hand_on(number: int) -> bool:
        if not inquiries:
            # Other signals than that of its time limit mean that it is killed in half a minute.
            in_time = max(stall_reason - _MARGIN_SECONDS, stall_reason / 2)
            inquiries.append(RequeueInquiry(in_time if number == signal.SIGUSR1 else _KILL_SECONDS))
        fate = inquiries[0].answer
        if fate is not None and fate is not RequeueOutcome.ENDS:
            tell(_LAST_WORDS[fate is RequeueOutcome.REQUEUED])
            last()
            end_process()
        if fate is RequeueOutcome.ENDS and (why := inquiries[0].refusal):
            tell(f"{why}. So the study lets go before this job ends")
        return fate is RequeueOutcome.ENDS

    return hand_on
