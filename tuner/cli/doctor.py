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
from ..errors import UsageError
from .options import KindType, as_json
from .output import echo

if TYPE_CHECKING:
    from ..doctor.findings import Finding, Subject


@click.command(short_help="Say whether hptune will work here.")
@click.argument("model_file", type=click.Path(path_type=Path), required=False)
@click.option(
    "--study",
    type=click.Path(path_type=Path),
    default=Path("studies"),
    show_default=True,
    metavar="DIR",
    help="Where studies are, or are to be.",
)
@click.option(
    "--connect",
    default="",
    metavar="ADDRESS",
    help="Look at the workers of the scheduler there (see `hptune scheduler`): its address or "
    "its scheduler file.  [default: at one on this machine]",
)
@click.option(
    "--slurm",
    "slurm_toml",
    type=click.Path(path_type=Path),
    metavar="SLURM_TOML",
    help="Look around in a short Slurm job as well, one of each shape in this file.",
)
@click.option(
    "--gpus-per-trial",
    type=float,
    metavar="N",
    help="As for `hptune run`; 0 for models that train on cores.  [default: one where there are "
    "any]",
)
@click.option(
    "--wait",
    "wait_seconds",
    type=KindType(duration()),
    default=300.0,
    show_default="5m",
    help="With --slurm: how long a job may wait to be started; it is cancelled then.",
)
@as_json
def doctor(
    model_file: Path | None,
    study: Path,
    connect: str,
    *,
    slurm_toml: Path | None,
    gpus_per_trial: float | None,
    wait_seconds: float,
    as_json: bool,
) -> None:
    """Say whether hptune will work here, and what to do where it will not.

    Looks at versions, cores, memory and GPUs, the study directory's file system,
    a real worker, and trains one batch: of MODEL_FILE, or of a tiny model. Nothing
    is left behind, nor in Slurm's queue. Exits with 1 if anything fails; warnings
    are no failure.
    """
    from ..config.model_file import check_path
    from ..core.resources import Resources
    from ..doctor.findings import Status, Subject
    from ..storage.directory import whole_path

    try:
        Resources(1, gpus_per_trial)
    except ValueError as error:
        raise UsageError(f"--gpus-per-trial: {error}") from error
    subject = Subject(
        study=str(whole_path(study)),
        model_file="" if model_file is None else check_path(model_file).path,
        connect=connect,
        gpus_per_trial=gpus_per_trial,
    )
    # Its Slurm jobs go with it, and so do its folders where it runs in one that is cancelled.
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

    where = ""
    with DoctorReport(sys.stdout) as checkup:
        for each in findings:
            if each.where != where:
                where = each.where
                checkup.section(where)
            checkup.show(each.name, each.status, each.found, each.advice)
            yield each
