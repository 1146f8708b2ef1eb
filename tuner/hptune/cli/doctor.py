"""The command `hptune doctor`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..config.kinds import duration
from .commands import KindType, PathType, as_json, path_option, plain_command
from .options import setting_option, setting_options
from .output import echo

if TYPE_CHECKING:
    from ..doctor.findings import Finding, Subject


@plain_command(short_help="Check whether hptune works on this machine.")
@click.argument("model_file", type=PathType(path_type=Path), required=False)
@path_option(
    "--study",
    default=Path("studies"),
    show_default=True,
    metavar="DIR",
    text="Directory for studies; its file system is checked.",
)
@setting_options("connect", "certs", "insecure")
@path_option(
    "--slurm",
    "slurm_toml",
    metavar="SLURM_TOML",
    text="Also check the nodes, in a short Slurm job for each kind of job in this file.",
)
@setting_option("gpus_per_trial")
@click.option(
    "--wait",
    "wait_seconds",
    type=KindType(duration()),
    default=300.0,
    help="With --slurm: longest time that a job may wait in the queue; then it is cancelled.  "
    "[default: 5m]",
)
@as_json
def doctor(
    model_file: Path | None,
    study: Path,
    connect: str | None,
    *,
    certs: str | None,
    insecure: bool | None,
    slurm_toml: Path | None,
    gpus_per_trial: float | str | None,
    wait_seconds: float,
    as_json: bool,
) -> None:
    """Check whether hptune works on this machine, and say how to correct what does not.

    Checks versions, cores, memory, GPUs and the file system of the study's directory,
    starts a worker, and trains one batch of MODEL_FILE or of a tiny model. No files
    and no Slurm jobs remain. The exit code is 1 if a check fails; a warning is not a
    failure.
    """
    from ..doctor.findings import Status, Subject
    from ..files.access import whole_path
    from ..user_code.model_file import check_path

    subject = Subject(
        study=str(whole_path(study)),
        model_file="" if model_file is None else check_path(model_file).path,
        connect=connect or "",
        certs=certs or "",
        insecure=bool(insecure),
        gpus_per_trial=None if isinstance(gpus_per_trial, str) else gpus_per_trial,
    )
    # SIGTERM raises KeyboardInterrupt as Ctrl-C does, so that Slurm jobs and folders are removed
    # also if this command runs in a Slurm job that is cancelled.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    found: list[Finding] = []
    with closing(_findings(subject, slurm_toml, wait_seconds)) as findings:
        if as_json:
            found.extend(findings)
            ok = not any(each.status is Status.FAIL for each in found)
            echo({"ok": ok, "findings": [each.to_json() for each in found]})
        else:
            found.extend(_shown(findings))
    if any(each.status is Status.FAIL for each in found):
        raise SystemExit(1)


def _findings(subject: Subject, slurm_toml: Path | None, wait_seconds: float) -> Generator[Finding]:
    from ..doctor.examination import examine

    if slurm_toml is None:
        yield from examine(subject)
        return
    from ..doctor.slurm_jobs import examine_jobs, read

    config = read(slurm_toml)
    yield from examine(subject)
    yield from examine_jobs(subject, config, wait_seconds=wait_seconds)


def _shown(findings: Iterator[Finding]) -> Iterator[Finding]:
    from ..doctor.report import DoctorReport

    with DoctorReport(sys.stdout) as report:
        for finding in findings:
            report.show(finding)
            yield finding
