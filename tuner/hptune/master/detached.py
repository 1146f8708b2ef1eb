"""A master that is a Slurm job itself (`--detach`): submit, show, cancel and hand over."""

from __future__ import annotations

import shlex
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hptune_jobqueue.commands import Job
from hptune_jobqueue.config import read_config
from hptune_jobqueue.errors import SlurmUnavailableError

from ..clusters.base import UNLIMITED
from ..clusters.jobs import jobs_name, translated_errors
from ..clusters.layout import trial_resources
from ..clusters.shown_jobs import job_words
from ..clusters.slurm_jobs import check_jobs
from ..config.settings import StudySettings
from ..errors import StudyError, StudyLockedError, UsageError
from ..storage.directory import StudyDirectory
from ..storage.file_errors import storage_errors
from .stop_requests import end_process

if TYPE_CHECKING:  # SQLite is loaded only where a ledger is read
    from ..storage.ledger import LedgerReader

RETRY_FAILED = "--retry-failed"
"""The option that a requeued job leaves out once its master has written to the study."""

_MARGIN_SECONDS = 10.0
"""How long before its end a master leaves at the latest, if Slurm does not say what follows."""

_SILENCE_SECONDS = 30.0
"""How long a master waits until it asks a silent Slurm again."""

_KILL_SECONDS = 20.0
"""How long after the signal a cancelled master leaves: Slurm's KillWait is 30 s by default."""

_HANDOVER_LINES = {
    True: "this job ends; Slurm starts it again, and it then continues the study",
    False: (
        "this job ends, and Slurm does not say whether it starts it again: the study and its jobs "
        "are left as they are, for the next master"
    ),
}
"""Line for the user, by whether Slurm has said that it starts the job again."""


def detach_new(settings: StudySettings, directory: StudyDirectory, arguments: Sequence[str]) -> str:
    """Submit the master of a new study as a job; returns where to look, as text for the user.

    Args:
        settings: What the user asked for.
        directory: Where the study is to be; must not hold one yet.
        arguments: The arguments of `hptune` for the same run in the foreground.

    Raises:
        UsageError: The settings are wrong, there can be no study here, or Slurm would refuse a job
            (in its words). Nothing was submitted.
    """
    from .plan import check_request

    directory.check_place()
    check_request(settings)
    try:
        return _submit(settings, directory, arguments)
    finally:
        directory.give_up()  # if nothing was submitted


def detach_again(
    changes: Mapping[str, Any],
    directory: StudyDirectory,
    arguments: Sequence[str],
    *,
    accept_space: bool = False,
    tries: Sequence[Mapping[str, object]] = (),
    retry_failed: bool = False,
) -> str:
    """Submit the master of a study that is resumed; returns as `detach_new` does.

    Args:
        changes: Fields of `StudySettings` to change.
        directory: Where the study is.
        arguments: As for `detach_new`.
        accept_space: Whether the study may continue in another search space.
        tries: Configurations, given in part, to try next.
        retry_failed: Whether failed trials begin again.

    Raises:
        NoStudyError: There is no study.
        StudyLockedError: It has a master.
        UsageError: As for `detach_new`.
    """
    from ..storage.ledger import LedgerReader
    from .resume_checks import ResumeState, read_settings
    from .resume_plan import ResumeRequest, check_resume

    reader = LedgerReader(directory.open())
    facts = reader.facts()
    stored = read_settings(directory, facts)
    is_timed = changes.get("timeout_seconds")
    used = _active_seconds(directory, reader, stored) if is_timed else 0.0
    state = ResumeState(directory, facts, reader.trials(), used, reader.attempts())
    request = ResumeRequest(stored, changes, accept_space, tries, retry_failed)
    if owner := directory.owner():
        raise StudyLockedError(
            f"{directory} has a master already: process {owner.pid} on {owner.host}. End it first "
            f"with `hptune stop {directory}`"
        )
    check_resume(request, state)
    return _submit(request.settings, directory, arguments)


def _active_seconds(
    directory: StudyDirectory, reader: LedgerReader, stored: StudySettings
) -> float:
    from ..config.plugins import pruner_maker
    from ..core.engine.engine import Engine
    from ..storage.ledger import damage_errors

    engine = Engine(pruner_maker(stored))
    with damage_errors(directory):
        for event in reader.events():
            engine.handle(event)
    return engine.active_seconds


def _submit(settings: StudySettings, directory: StudyDirectory, arguments: Sequence[str]) -> str:
    from hptune_jobqueue.master import MasterOrder, submit_master

    if not settings.slurm:
        raise UsageError(
            "--detach makes the master a Slurm job; it needs --slurm with a slurm.toml"
        )
    path = Path(settings.slurm)
    with translated_errors(), storage_errors(directory.path):
        resources = trial_resources(settings, None, UNLIMITED, is_certain=False)
        check_jobs(path, directory.path, settings.max_jobs, resources)
        directory.make()
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
    database = shlex.quote(str(directory.database))
    requeued = []
    if not directory.database.exists():
        # `hptune run` starts a new study; `hptune resume` may run any number of times.
        requeued = _requeued(f"[ -e {database} ]", f"resume {directory}")
    elif RETRY_FAILED in arguments:
        # A trial that fails again is not retried whenever the job's time is up; one whose
        # job was requeued before its master began is.
        script = shlex.quote(str(directory.path / "jobs" / "master.sbatch"))
        others = [each for each in arguments if each != RETRY_FAILED]
        requeued = _requeued(f"[ {database} -nt {script} ]", shlex.join(others))
    return [
        f"cd {shlex.quote(str(Path.cwd()))} || exit",
        *requeued,
        f"python -m hptune {shlex.join(arguments)}",
    ]


def _requeued(condition: str, command: str) -> list[str]:
    """Return the lines by which a requeued job runs another command, if a condition holds."""
    return [
        f'if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && {condition}; then',
        f"python -m hptune {command}",
        "fi",
    ]


@dataclass(frozen=True, slots=True)
class MasterJob:
    """A detached master, as Slurm shows it.

    Attributes:
        job: Its job; None if that is gone.
        log: The file that it writes.
    """

    job: Job | None
    log: Path

    def to_text(self) -> str:
        """Return a sentence for the user."""
        where = f"it writes into {shlex.quote(str(self.log))}"
        if self.job is None:
            return f"The master was a Slurm job, and is gone; {where}."
        words = job_words(self.job, now=time.time())
        return f"The master is Slurm job {self.job.id} ({words}); {where}."

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


def master_job(directory: StudyDirectory) -> MasterJob | None:
    """Return the state of a detached master's job; None if there was none, or if unknown."""
    from hptune_jobqueue.master import find_master

    folder = directory.path / "jobs"
    with storage_errors(directory.path):
        if not (folder / "master.sbatch").exists():
            return None
    try:
        return MasterJob(find_master(jobs_name(directory.path)), folder / "master.log")
    except SlurmUnavailableError:
        return None


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
        if not may_have_jobs(folder) and (is_master or not (folder / "master.sbatch").exists()):
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


def wait_for_slurm(notify: Callable[[str], None]) -> None:
    """Wait until Slurm answers, if this master is a job: nobody is there to start it again.

    Where there is no Slurm at all, this returns at once.

    Args:
        notify: Takes a line for the user.
    """
    from hptune_jobqueue.commands import Slurm
    from hptune_jobqueue.master import notice_seconds

    is_silent = False
    while notice_seconds() is not None and shutil.which("sinfo") is not None:
        try:
            Slurm().partitions()
        except SlurmUnavailableError as error:
            if not is_silent:
                notify(f"Slurm does not answer, so this job waits until it does: {error}")
            is_silent = True
        else:
            return
        time.sleep(_SILENCE_SECONDS)


def handover(
    notify: Callable[[str], None], *, give_back: Callable[[], None], last: Callable[[], None]
) -> Callable[[int], bool] | None:
    """Return what a detached master does on a signal; None for a master that is no job.

    The returned function takes the signal's number, is called again and again, and returns
    whether the study must stop. If Slurm starts the master's job again, or does not answer until
    its end, the function ends the process instead, and leaves all that runs to the next master.

    Args:
        notify: Takes a line for the user.
        give_back: Called if Slurm starts the job again, which may take hours: ends the workers
            that run no trial.
        last: Called after the last line, before the process ends.
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
            last()
            end_process()
        if outcome is RequeueOutcome.ENDS and (why := inquiries[0].refusal):
            notify(f"{why}. So the study stops before this job ends")
        return outcome is RequeueOutcome.ENDS

    return may_stop
