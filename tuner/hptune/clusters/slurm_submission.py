"""The scripts of a study's Slurm jobs, and submitting that of its master (`--detach`)."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from hptune_jobqueue.cluster import job_kinds
from hptune_jobqueue.config import SlurmConfig
from hptune_jobqueue.master import MasterOrder, planned_master_script, submit_master

from ..config.asked import Asked
from ..config.parallel_trials import carrier_of
from ..config.resolved import Resolved
from ..core.resources import Resources
from ..errors import HptuneError, UsageError
from ..files.file_errors import storage_errors
from ..storage.asking import AGENT
from ..storage.directory import StudyDirectory
from .base import UNLIMITED
from .jobs import jobs_folder, jobs_name, translated_errors
from .layout import checked_trial
from .slurm_jobs import check_jobs, need_of, order_of

_OTHER_PYTHON = {"python", "launcher", "image"}
_OTHER_ENVIRONMENT = {"modules", "environment", "prologue"}
RETRY_FAILED = "--retry-failed"
"""The option that a requeued job leaves out once its master has written to the study."""


def submit(
    asked: Asked,
    directory: StudyDirectory,
    arguments: Sequence[str],
    check: Callable[[], Resolved | None],
    notify: Callable[[str], None],
) -> str:
    """Submit the master of a study as a job; returns where to look, as text for the user.

    Args:
        asked: What the user asked for.
        directory: Where the study is, or is to be.
        arguments: The arguments of `hptune` for the same run in the foreground.
        check: Reads the user's code here, and returns what settings and code say; None if its
            Python is only where the job runs. Raises an error if the code cannot be used.
        notify: Takes a line for the user: Slurm does not answer, which is waited for, or the
            code cannot be used here.

    Raises:
        UsageError: Slurm would refuse a job (in its words), or the job could not use the code.
            Nothing was submitted.
    """
    settings = asked.settings
    assert settings.slurm, "the cluster was checked"
    jobs = order_of(
        Path(settings.slurm), directory.path, settings.max_jobs, min_workers=settings.min_workers
    )
    with translated_errors(), storage_errors(directory.path):
        found = _check_code(check, jobs.config, notify)
        constants = {} if found is None else found.code.constants
        resources = checked_trial(asked, constants, UNLIMITED, is_certain=False)
        if found is not None:
            carrier_of(found.code, resources, settings)
        check_jobs(jobs, resources, notify, is_certain=found is not None)
        directory.make()
        order = _master_order(jobs.config, directory, arguments)
        job = submit_master(order)
    log = shlex.quote(str(order.log_file))
    return (
        f"The master is Slurm job {job.id} in partition {job.partition}.\n"
        f"look:  hptune status {directory}   (it writes into {log})\n"
        f"stop:  hptune stop {directory}"
    )


def script_texts(path: Path, study: Path, resources: Resources) -> list[str]:
    """Return the job script of each shape that can hold such a trial; nothing is submitted.

    If the slurm.toml describes the master's job, its script follows, as `--detach` submits it.

    Args:
        path: The slurm.toml.
        study: The study's directory.
        resources: What a trial holds.

    Raises:
        UsageError: The slurm.toml is wrong, or asks for something that does not exist.
    """
    jobs = order_of(path, study)
    with translated_errors():
        scripts = [kind.script for kind in job_kinds(jobs, need_of(resources))]
        if jobs.config.master:
            arguments = ["run", "MODEL_FILE", "--study", str(study), "--slurm", str(path)]
            order = _master_order(jobs.config, StudyDirectory(study), arguments)
            scripts.append(planned_master_script(order))
    return scripts


def _check_code(
    check: Callable[[], Resolved | None],
    config: SlurmConfig,
    notify: Callable[[str], None],
) -> Resolved | None:
    """Return what settings and code say, if the master's job has the same Python as this process.

    Raises:
        UsageError: The job could not use it.
    """
    if config.master.keys() & _OTHER_PYTHON:
        return None
    try:
        return check()
    except HptuneError as error:
        if config.master.keys() & _OTHER_ENVIRONMENT:
            why = "environment is another one (modules, environment or prologue in slurm.toml)"
        elif isinstance(error, UsageError):
            raise
        else:  # this machine failed, such as a login node with little memory
            why = "machine is another one"
        found = error.message.rstrip(".")
        notify(f"on this machine, {found}. The job is submitted nevertheless, because its {why}")
        return None


def _master_order(
    config: SlurmConfig, directory: StudyDirectory, arguments: Sequence[str]
) -> MasterOrder:
    return MasterOrder(
        config=config,
        study=jobs_name(directory.path),
        directory=jobs_folder(directory.path),
        lines=_lines(directory, arguments),
    )


def _lines(directory: StudyDirectory, arguments: Sequence[str]) -> list[str]:
    database = shlex.quote(str(directory.database))
    script = shlex.quote(str(directory.path / "jobs" / "master.sbatch"))
    has_begun = f"[ {database} -nt {script} ]"
    requeued = []
    if not directory.database.exists():
        # `hptune run` starts a new study; `hptune resume` may run any number of times.
        requeued = _requeued(f"[ -e {database} ]", f"python -m hptune resume {directory}")
    elif RETRY_FAILED in arguments:
        # A trial that fails again is not retried whenever the job's time is up; one whose
        # job was requeued before its master began is.
        others = [argument for argument in arguments if argument != RETRY_FAILED]
        requeued = _requeued(has_begun, f"python -m hptune {shlex.join(others)}")
    # A site may let jobs begin without the variables of who submits them. What the agent asked for
    # is noted by the job's first master.
    agent = os.environ.get(AGENT, "")
    noted = [f"export {AGENT}={shlex.quote(agent)}", *_requeued(has_begun, f"unset {AGENT}")]
    backend = os.environ.get("KERAS_BACKEND", "")  # that of the slurm.toml counts more
    keras = f"export KERAS_BACKEND=${{KERAS_BACKEND:-{shlex.quote(backend)}}}"
    return [
        f"cd {shlex.quote(str(Path.cwd()))} || exit",
        *(noted if agent else []),
        *([keras] if backend else []),
        *requeued,
        f"python -m hptune {shlex.join(arguments)}",
    ]


def _requeued(condition: str, line: str) -> list[str]:
    """Return the lines by which a requeued job runs another line, if a condition holds."""
    return [
        f'if [ "${{SLURM_RESTART_COUNT:-0}}" -gt 0 ] && {condition}; then',
        line,
        "fi",
    ]
