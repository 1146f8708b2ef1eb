"""The command `hptune certs`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from ..errors import UsageError
from .output import replaced_file


@click.command(short_help="Show, copy or renew the certificates of a scheduler or a study.")
@click.argument("place", type=click.Path(path_type=Path), required=False)
@click.option(
    "--export",
    "copy",
    metavar="FILE",
    help="Write what a worker needs to FILE, for another machine; - for the standard output.",
)
@click.option(
    "--renew",
    is_flag=True,
    help="Make new certificates. Copies of the old ones are refused after the scheduler's restart.",
)
def certs(place: Path | None, *, copy: str | None, renew: bool) -> None:
    """Show the certificates of a scheduler or a study, copy them or make new ones.

    Only processes that have them can connect to the scheduler, its workers and its studies.
    PLACE is a study's directory, a folder of certificates or one of their files; without it,
    these are your own (~/.config/hptune/certs), which `hptune scheduler` uses and makes if
    they are missing.

    \b
    hptune certs --export worker.pem
    scp worker.pem node2:
    ssh node2 hptune worker tls://node1:8786 --certs worker.pem
    """
    from ..clusters.jobs import certificates_folder
    from ..security.certificates import (
        ENDING_DAYS,
        WORKER,
        default_folder,
        ensure,
        read,
        write_private,
    )
    from ..text import plural

    where = (place or default_folder()).absolute()
    if (where / "study.db").exists():
        where = certificates_folder(where)
        if not where.exists():
            raise UsageError(
                f"the study in {place} has no certificates: it has not run in Slurm jobs. "
                "Leave the directory out for your own"
            )
    if renew or place is None:
        if where.is_file():
            raise UsageError(f"{where} is a file; --renew takes the folder of the certificates")
        ensure(where, days=float("-inf"), renew=renew)
    found = read(where)
    text = found.key + found.certificate + found.authority
    if copy == "-":
        click.echo(text, nl=False)
        return
    shown = shlex.quote(found.path)
    if copy is not None:
        try:
            write_private(replaced_file(Path(copy), "--export"), text)
        except OSError as error:
            raise UsageError(f"{copy} cannot be written: {error.strerror}") from error
        shown = shlex.quote(copy)
    days = int(found.days_left)
    click.echo(f"file:   {shown} (a private key: keep it to yourself)")
    click.echo(f"issuer: {found.name}")
    has_ended = found.days_left < 0
    click.echo(f"valid:  until {found.last_day} ({'over' if has_ended else plural(days, 'day')})")
    click.echo(f"copy:   scp {shown} NODE:{WORKER}")
    click.echo(f"join:   hptune worker ADDRESS --certs {WORKER}")
    click.echo(f"use:    hptune run MODEL_FILE --connect ADDRESS --certs {WORKER}")
    if days < ENDING_DAYS:
        state = "have ended" if has_ended else "end soon"
        click.echo(f"They {state}: `hptune certs --renew`, restart the scheduler, and copy again")
