"""The same checks inside Slurm jobs, one for each shape of a slurm.toml."""

from __future__ import annotations

import contextlib
import json
import secrets
import shlex
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from hptune_jobqueue.cluster import ClusterOrder, job_kinds, scheduler_file
from hptune_jobqueue.commands import Job
from hptune_jobqueue.config import Shape, SlurmConfig, read_config
from hptune_jobqueue.errors import (
    ClosedForNowError,
    ConfigError,
    JobQueueError,
    NotStartedError,
    SlurmUnavailableError,
)
from hptune_jobqueue.job_kinds import JobKind
from hptune_jobqueue.job_reports import ending_text, read_output
from hptune_jobqueue.sizing import Need

from ..core.clock import polls
from ..core.resources import size
from ..errors import UsageError
from ..text import plural
from .findings import Finding, Subject, failed, passed
from .one_off_job import run_one_off_job, shortened
from .storage import folder_for

_NAME = "Slurm job"
_ANSWER_SECONDS = 15.0
"""Time after which a network file system shows a file that a node wrote."""


def read(path: Path) -> SlurmConfig:
    """Read a slurm.toml.

    Raises:
        UsageError: It is not valid.
    """
    try:
        return read_config(path)
    except ConfigError as error:
        raise UsageError(str(error)) from error


def examine_jobs(
    subject: Subject, config: SlurmConfig, *, wait_seconds: float
) -> Iterator[Finding]:
    """Submit a short job of each shape, one after the other, and run the checks inside.

    A job waits in the queue for `wait_seconds` at most.
    No job is left after the generator has ended or was closed.
    """
    yield passed("slurm.toml", f"read from {' and '.join(map(str, config.files))}")
    for shape in config.shapes:
        where = "in a Slurm job"
        where += f" ({shape.name})" if len(config.shapes) > 1 else ""
        try:
            with folder_for(subject) as folder:
                for finding in _examine_one(subject, shape, folder, wait_seconds):
                    yield replace(finding, where=where)
        except SlurmUnavailableError as error:
            yield replace(failed(_NAME, str(error), error.ADVICE), where=where)
        except JobQueueError as error:
            yield replace(failed(_NAME, str(error), _advice(error)), where=where)
        except OSError as error:
            yield replace(failed(_NAME, str(error), "see the study's directory above"), where=where)


def _advice(error: JobQueueError) -> str:
    """Return what to do where no job has run."""
    if isinstance(error, NotStartedError):
        return "increase --wait, or choose another partition; squeue --start has expected starts"
    if isinstance(error, ClosedForNowError):
        return "try again later, or choose another partition in the slurm.toml; see sinfo"
    return "correct the slurm.toml: sinfo lists the partitions, sacctmgr show assoc your accounts"


def _examine_one(
    subject: Subject, shape: Shape, folder: Path, wait_seconds: float
) -> Iterator[Finding]:
    order = ClusterOrder(
        config=SlurmConfig((shortened(shape),)).showing(*_seen(subject, folder)),
        name=f"hptune-doctor-{secrets.token_hex(4)}",
        directory=folder,
        module="hptune worker",
        max_jobs=1,
    )
    gpus = subject.gpus_per_trial
    (kind,) = job_kinds(order, Need(gpus=gpus, takes_cores_of_gpus=gpus != 0))
    answer = folder / "answer.json"
    arguments = ["--json", "--study", subject.study]
    arguments += [] if gpus is None else ["--gpus-per-trial", f"{gpus:g}"]
    arguments += [subject.model_file] if subject.model_file else []
    command = f"-m hptune doctor {shlex.join(arguments)} > {shlex.quote(str(answer))}"
    scheduler_file(folder).touch()  # a job ends early where its node does not see this file
    began = time.monotonic()
    job = run_one_off_job(kind, command, wait_seconds=wait_seconds)
    findings = _read(answer)
    if findings is None:
        yield failed(_NAME, *_without_answer(job, kind))
        return
    worker = kind.worker
    yield passed(
        _NAME,
        f"{job.id} on {job.node}: {plural(worker.cpus, 'core')}, {plural(worker.gpus, 'GPU')}, "
        f"{size(worker.memory_bytes)} for {plural(worker.trials, 'trial')} at once; it took "
        f"{time.monotonic() - began:.0f} s",
    )
    yield from findings


def _seen(subject: Subject, folder: Path) -> list[Path]:
    """Return the directories that the checks use, which the image of a job must show."""
    model = [Path(subject.model_file).absolute().parent] if subject.model_file else []
    return [folder.absolute().parent, *model]


def _read(answer: Path) -> list[Finding] | None:
    """Return the job's findings; None if there are none."""
    for _ in polls(_ANSWER_SECONDS, 0.5):
        list(answer.parent.iterdir())  # makes a network file system look again
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            found = json.loads(answer.read_text(encoding="utf-8"))
            return [Finding.from_json(each) for each in found["findings"]]
    return None


def _without_answer(job: Job, kind: JobKind) -> tuple[str, str]:
    """Return what is known of a job that wrote no findings, and what to do."""
    on = f" on {job.node}" if job.node else ""
    output = read_output(kind.log_of(job.id))
    advice = "check that the job's Python has hptune: modules, prologue and python in slurm.toml"
    if output.text is None:
        advice = "put studies on a file system that all nodes share"
    return f"{job.id}{on} {ending_text(job)} without findings; {output.said}", advice
