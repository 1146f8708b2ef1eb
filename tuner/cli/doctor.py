"""The command `hptune doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import as_json
from .output import echo

if TYPE_CHECKING:
    from ..doctor.findings import Finding


@click.command()
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
@as_json
def doctor(model_file: Path | None, study: Path, connect: str, *, as_json: bool) -> None:
    """Say whether hptune will work here, and what to do where it will not.

    Looks at versions, cores, memory and GPUs, the study directory's file system,
    a real worker, and trains one batch: of MODEL_FILE, or of a tiny model. Nothing
    is left behind. Exits with 1 if anything fails; warnings are no failure.
    """
    from ..doctor.examination import examine
    from ..doctor.findings import Status, Subject
    from ..model_file import check_path

    subject = Subject(
        study=str(study.expanduser().absolute()),
        model_file="" if model_file is None else check_path(model_file).path,
        connect=connect,
    )
    found: list[Finding] = []
    if as_json:
        found.extend(examine(subject))
        ok = not any(each.status is Status.FAIL for each in found)
        echo({"ok": ok, "findings": [each.to_json() for each in found]})
    else:
        found.extend(_shown(examine(subject)))
    if any(each.status is Status.FAIL for each in found):
        raise SystemExit(1)


def _shown(findings: Iterable[Finding]) -> Iterable[Finding]:
    from ..reporting.checkup import Checkup

    with Checkup(sys.stdout) as checkup:
        for each in findings:
            checkup.show(each.name, each.status, each.found, each.advice)
            yield each
