"""Commands that connect workers and studies on several machines: scheduler, worker, certs."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from ..config.kinds import duration, is_scheduler_address, size
from ..errors import UsageError
from .commands import KindType, PathType, WholeNumber, path_option, plain_command
from .options import setting_option
from .output import replaced_file

quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Do not show when workers, studies and trials come and go."
)


@contextlib.contextmanager
def _timestamped_lines() -> Iterator[Callable[[str], None]]:
    """Give a function that prints a line with the time; it never waits for a blocked terminal."""
    from ..reporting.terminal.background_writer import BackgroundWriter
    from ..text import moment

    writer = BackgroundWriter(sys.stdout)

    def say(line: str) -> None:
        writer.write(f"{moment(time.time())}  {line}\n")

    try:
        yield say
    finally:
        writer.finish()


@plain_command(short_help="Start a scheduler, to which workers and studies connect.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="Name or address of this machine, on whose network the scheduler listens.",
)
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=8786,
    show_default=True,
    metavar="PORT",
    help="Port to listen on; 0 for any free one.",
)
@path_option(
    "--scheduler-file",
    text="Also write the address to FILE (.json), for machines with the same file system.",
)
@path_option(
    "--certs",
    "folder",
    type=PathType(path_type=Path, file_okay=False),
    metavar="DIR",
    text="Folder of the certificates, made if missing (see `hptune certs`).  "
    "[default: ~/.config/hptune/certs]",
)
@click.option(
    "--insecure",
    is_flag=True,
    help="Use no certificates: anyone who can connect can then run code as you.",
)
@quiet_option
def scheduler(
    host: str,
    port: int,
    scheduler_file: Path | None,
    *,
    folder: Path | None,
    insecure: bool,
    quiet: bool,
) -> None:
    """Start a scheduler, to which workers and studies connect.

    Workers and studies may come and go, in any order. Ctrl-C stops it; its studies can
    then be resumed with another one. Only those that have its certificates can connect.
    """
    from ..clusters.scheduler import check_file, serve
    from ..security.certificates import WORKER, default_folder, ensure

    if scheduler_file is not None and not scheduler_file.absolute().parent.is_dir():
        raise UsageError(
            f"--scheduler-file is {scheduler_file}, but there is no such folder; make it, or name "
            "a file in another one"
        )
    file = scheduler_file and replaced_file(scheduler_file, "--scheduler-file")
    if file is not None:
        check_file(file)
    certs = (folder or default_folder()).absolute()
    identity = None if insecure else ensure(certs)

    def opened(address: str) -> None:
        where = address if scheduler_file is None else shlex.quote(str(scheduler_file.absolute()))
        more = f" --certs {shlex.quote(str(certs))}" if folder else ""
        more = " --insecure" if insecure else more
        click.echo(f"The scheduler listens at {address}")
        click.echo(f"join:  hptune worker {where}{more}")
        click.echo(f"use:   hptune run MODEL_FILE --connect {where}{more}")
        if "://127." in address:
            click.echo("Only this machine can connect. For workers on other machines: --host NAME")
        if identity is None:
            click.echo(
                "Warning: --insecure: anyone who can connect can run code as you. Use trusted "
                "networks only."
            )
        else:
            click.echo(
                f"Only those with its certificates can connect, until {identity.last_day}. On a "
                "machine that does not\nsee these files, copy "
                f"{shlex.quote(str(certs / WORKER))} there, and add --certs FILE."
            )

    with _timestamped_lines() as say:
        serve(
            host=host,
            port=port,
            scheduler_file=file,
            identity=identity,
            opened=opened,
            notify=None if quiet else say,
        )


@plain_command(short_help="Let studies at a scheduler use this machine.")
@click.argument("address")
@click.option(
    "--cpus",
    type=WholeNumber(min=1),
    metavar="N",
    help="CPU cores to use.  [default: all]",
)
@click.option("--gpus", type=WholeNumber(min=0), metavar="N", help="GPUs to use.  [default: all]")
@click.option(
    "--memory",
    "memory_bytes",
    type=KindType(size()),
    help="Memory to use, such as 64GB; 0 not to count memory.  [default: all; with --cpus, the "
    "same share as of the cores]",
)
@click.option(
    "--nthreads",
    "cores_granted",
    type=WholeNumber(min=1),
    metavar="N",
    help="Most cores to use; dask-jobqueue passes those of its job.",
)
@click.option(
    "--memory-limit",
    "memory_granted_bytes",
    type=KindType(size()),
    help="Most memory to use; dask-jobqueue passes that of its job.",
)
@click.option("--name", default="", metavar="NAME", help="Name in Dask, which no other has.")
@click.option(
    "--interface",
    metavar="NAME",
    help="Network interface to listen on, such as ib0.  [default: the one towards the scheduler]",
)
@click.option(
    "--local-directory",
    metavar="DIR",
    help="Directory of this machine in which a private folder for Dask's files is made.",
)
@setting_option("certs")
@click.option(
    "--insecure",
    is_flag=True,
    help="Accept a scheduler without certificates: anyone on its network can then run code as you.",
)
@quiet_option
@click.option(
    "--death-timeout",
    "death_timeout_seconds",
    type=KindType(duration()),
    help="End if no scheduler answers for this time, such as 10m.  [default: wait forever]",
)
@click.option(
    "--walltime",
    "walltime_seconds",
    type=KindType(duration()),
    help="How long the job of this worker may run, such as 4h. The worker leaves two minutes "
    "before; trials that need longer go to others.  [default: as the batch system says; else no "
    "end]",
)
def worker(address: str, *, quiet: bool, certs: str | None, **limits: Any) -> None:
    """Let the studies that use the scheduler at ADDRESS run trials on this machine.

    ADDRESS is what `hptune scheduler` prints, such as tls://node1:8786, or its scheduler
    file. The worker uses all cores, GPUs and memory that this process may use, unless the
    options limit it. It waits for a scheduler that is not running.

    One worker on each machine is enough. Several workers on a machine share its GPUs, but
    know nothing of each other's cores and memory: limit each to its part.

    After Ctrl-C, SIGTERM, SIGUSR1 or SIGUSR2, if its terminal is closed, and before the end of
    --walltime, trials write a checkpoint and continue on other workers. A second Ctrl-C stops
    at once.
    """
    from ..worker.dask.offer import WorkerOptions, offered
    from ..worker.dask.worker import join

    if not is_scheduler_address(address):
        raise UsageError(
            f"the scheduler is {address!r}; allowed are an address such as tls://node1:8786, as "
            "`hptune scheduler` prints it, and the path of its scheduler file (.json)"
        )
    options = WorkerOptions(address, certs=certs or "", **limits)
    offer = offered(options)
    with _timestamped_lines() as say:
        join(options, offer, say=say, is_quiet=quiet)


@plain_command(short_help="Show, copy or renew the certificates of a scheduler or a study.")
@click.argument("place", type=PathType(path_type=Path), required=False)
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

    where, address = (place or default_folder()).absolute(), "ADDRESS"
    if (where / "study.db").exists():
        where = certificates_folder(where)
        address = shlex.quote(str(where.with_name("scheduler.json")))
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
    if copy == "-":
        click.echo(found.pem, nl=False)
        return
    shown = shlex.quote(found.path)
    if copy is not None:
        try:
            write_private(replaced_file(Path(copy), "--export"), found.pem)
        except OSError as error:
            raise UsageError(f"{copy} cannot be written: {error.strerror}") from error
        shown = shlex.quote(copy)
    days = int(found.days_left)
    click.echo(f"file:   {shown} (a private key: keep it to yourself)")
    click.echo(f"issuer: {found.name}")
    has_ended = found.days_left < 0
    click.echo(f"valid:  until {found.last_day} ({'over' if has_ended else plural(days, 'day')})")
    click.echo(f"copy:   scp {shown} NODE:{WORKER}")
    click.echo(f"join:   hptune worker {address} --certs {WORKER}")
    if address == "ADDRESS":  # a study has its own workers for itself
        click.echo(f"use:    hptune run MODEL_FILE --connect {address} --certs {WORKER}")
    if days < ENDING_DAYS:
        state = "have ended" if has_ended else "end soon"
        click.echo(f"They {state}: `hptune certs --renew`, restart the scheduler, and copy again")
