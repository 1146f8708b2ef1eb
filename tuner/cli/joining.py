"""Commands that bring workers and studies of several machines together: scheduler, worker."""

from __future__ import annotations

import contextlib
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from ..config.kinds import duration, size
from .options import KindType

quiet_option = click.option(
    "-q", "--quiet", is_flag=True, help="Say nothing of workers, studies and trials."
)


@contextlib.contextmanager
def _saying() -> Iterator[Callable[[str], None]]:
    """Says what happens and when; waits for no reader, but for a moment in the end."""
    from ..reporting.terminal.background_writer import BackgroundWriter
    from ..reporting.text import moment

    writer = BackgroundWriter(sys.stdout)

    def say(line: str) -> None:
        writer.write(f"{moment(time.time())}  {line}\n")

    try:
        yield say
    finally:
        writer.finish()


@click.command(short_help="A meeting point for workers and studies.")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    metavar="HOST",
    help="The interface to listen on: this machine's name or address in a network that you "
    "trust. Whoever reaches the port can run code as you.",
)
@click.option(
    "--port", type=int, default=8786, show_default=True, metavar="PORT", help="0 for any."
)
@click.option(
    "--scheduler-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the address to FILE (.json), for those who share the file system.",
)
@quiet_option
def scheduler(host: str, port: int, scheduler_file: Path | None, *, quiet: bool) -> None:
    """Keep a meeting point that workers join and studies use.

    Workers and studies may come and go, in any order. It ends on Ctrl-C; the studies
    that used it can then be resumed with another one.
    """
    from ..clusters.scheduler import serve

    def opened(address: str, dashboard: str) -> None:
        there = address if scheduler_file is None else shlex.quote(str(scheduler_file.absolute()))
        click.echo(f"The scheduler listens at {address}")
        if dashboard:
            click.echo(f"watch: {dashboard}")
        click.echo(f"join:  hptune worker {there}")
        click.echo(f"use:   hptune run MODEL_FILE --connect {there}")
        if address.startswith("tcp://127."):
            click.echo(
                "Only this machine can reach it. For workers on other machines of a trusted "
                "network: --host NAME"
            )
        else:
            click.echo("Whoever reaches this port can run code as you: trusted networks only.")

    with _saying() as say:
        serve(
            host=host,
            port=port,
            scheduler_file=scheduler_file,
            opened=opened,
            say=None if quiet else say,
        )


@click.command(short_help="Give this machine to studies at a scheduler.")
@click.argument("address")
@click.option(
    "--cpus",
    type=click.IntRange(min=1),
    metavar="N",
    help="Cores to give.  [default: all]",
)
@click.option(
    "--gpus", type=click.IntRange(min=0), metavar="N", help="GPUs to give.  [default: all]"
)
@click.option(
    "--memory",
    "memory_bytes",
    type=KindType(size()),
    help="Memory to give, such as 64GB; 0 to count none.  [default: all, or with --cpus as large "
    "a part of it]",
)
@click.option(
    "--nthreads",
    "cores_granted",
    type=click.IntRange(min=1),
    metavar="N",
    help="What a job was granted, as dask-jobqueue says it: no more cores than that are given.",
)
@click.option(
    "--memory-limit",
    "memory_granted_bytes",
    type=KindType(size()),
    help="The same of memory.",
)
@click.option("--name", default="", metavar="NAME", help="What the dashboard is to call it.")
@click.option(
    "--interface",
    metavar="NAME",
    help="The network interface to use, such as ib0.  [default: the one that leads out]",
)
@click.option(
    "--local-directory",
    metavar="DIR",
    help="A directory on this machine's own disk, for Dask's files.",
)
@quiet_option
@click.option(
    "--death-timeout",
    "death_timeout_seconds",
    type=KindType(duration()),
    help="Leave when no scheduler answered for so long, such as 10m.  [default: wait for ever]",
)
def worker(
    address: str,
    *,
    cpus: int | None,
    gpus: int | None,
    memory_bytes: int | None,
    cores_granted: int | None,
    memory_granted_bytes: int | None,
    name: str,
    interface: str | None,
    local_directory: str | None,
    quiet: bool,
    death_timeout_seconds: float | None,
) -> None:
    """Give this machine to the studies that use the scheduler at ADDRESS.

    ADDRESS is what `hptune scheduler` prints, such as tcp://node1:8786, or its scheduler
    file. All that this process may use is given, unless the options say less. A scheduler
    that is not there yet, or not any more, is waited for.

    One worker for each machine is enough. Of several, none knows what the others give of
    cores and memory (only GPUs are never given twice): start each with its part.

    Ctrl-C or SIGTERM: the trials that run here write a checkpoint and go on elsewhere;
    a second one ends all at once.
    """
    from ..worker.dask.worker import join, offered

    offer = offered(
        address,
        cpus=cpus,
        gpus=gpus,
        memory_bytes=memory_bytes,
        granted=(cores_granted, memory_granted_bytes),
        name=name,
        death_timeout_seconds=death_timeout_seconds,
        interface=interface,
        local_directory=local_directory,
    )
    with _saying() as say:
        join(offer, say=say, is_quiet=quiet)
