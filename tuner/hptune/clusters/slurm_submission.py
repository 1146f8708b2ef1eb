"""Submitting a master as a Slurm job (`--detach`)."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from hptune_jobqueue.config import read_config

from ..config.settings import StudySettings
from ..files.file_errors import storage_errors
from ..storage.directory import StudyDirectory
from .base import UNLIMITED
from .jobs import jobs_name, translated_errors
from .layout import trial_resources
from .slurm_jobs import check_jobs

RETRY_FAILED = "--retry-failed"
"""The option that a requeued job leaves out once its master has written to the study."""


def submit(
    settings: StudySettings,
    directory: StudyDirectory,
    arguments: Sequence[str],
    notify: Callable[[str], None],
) -> str:
    """Submit the master of a study as a job; returns where to look, as text for the user.

    Args:
        settings: What the user asked for.
        directory: Where the study is, or is to be.
        arguments: The arguments of `hptune` for the same run in the foreground.
        notify: Takes a line for the user if Slurm does not answer, which is waited for.

    Raises:
        UsageError: Slurm would refuse a job (in its words). Nothing was submitted.
    """
    from hptune_jobqueue.master import MasterOrder, submit_master

    assert settings.slurm, "the cluster was checked"
    path = Path(settings.slurm)
    with translated_errors(), storage_errors(directory.path):
        resources = trial_resources(settings, None, UNLIMITED, is_certain=False)
        check_jobs(path, directory.path, settings.max_jobs, resources, notify)
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
        others = [argument for argument in arguments if argument != RETRY_FAILED]
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
