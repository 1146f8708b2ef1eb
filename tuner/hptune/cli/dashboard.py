"""The command that shows studies live in a browser: dashboard."""

from __future__ import annotations

import contextlib
import tempfile
import time
from functools import partial
from pathlib import Path

import click

from ..errors import StudyError, UsageError
from .commands import WholeNumber, newest_study, plain_command
from .options import setting_option
from .output import echo

_DOOR = '<meta http-equiv="refresh" content="0; url={address}">'
"""A page that leads to another one."""

_BEGIN_SECONDS = 0.2
"""How often a study that begins is looked for."""


@plain_command(short_help="Show a study, or all of a folder, live in a browser.")
@click.argument("place", metavar="[DIR|FOLDER|ADDRESS]", required=False)
@click.option(
    "--port",
    type=WholeNumber(0, 65535),
    default=0,
    metavar="PORT",
    help="Port of the page on this machine.  [default: a free one]",
)
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser of this machine.")
@setting_option("certs")
@click.option("--insecure", is_flag=True, help="Accept a scheduler without certificates.")
def dashboard(
    place: str | None, *, port: int, opens: bool, certs: str | None, insecure: bool
) -> None:
    """Show the study in DIR live in a browser, also while it runs.

    The page is that of `hptune report`. It stops the study or one of its trials, pauses it,
    adds trials, and follows the logs of trials. Only this machine can reach it, and only who has
    the address that is printed.

    Of a FOLDER, the page lists all studies in and below it, each with a link to its page, and
    compares some: the best value over trials and over device hours.

    ADDRESS is that of a scheduler, or its file: the page shows the study that runs there.
    """
    from ..clusters.shown_jobs import watched_jobs_text
    from ..clusters.slurm_master import Masters
    from ..study.dashboard import folder_server, study_server
    from ..study.study import Study, find_directories, listed
    from ..worker.addresses import behind_hub, tunnel

    directory = _directory(place, certs or "", insecure=insecure)
    is_folder, job_of = _is_folder(directory), Masters().job_of

    def jobs(path: Path) -> str:
        return watched_jobs_text(path, now=time.time())

    try:
        if is_folder:
            page = folder_server(
                directory,
                port,
                find=partial(find_directories, directory),
                listed=partial(listed, job_of=job_of),
                opened=partial(Study, _job_of=job_of),
                jobs=jobs,
            )
        else:
            study = Study(_begun(directory), _job_of=job_of)
            study.view()  # an error of the study comes now, not in the browser
            page = study_server(study, port, jobs=jobs)
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be used: {error.strerror}; choose another with --port"
        ) from error
    echo(f"Open {page.address}")
    if command := tunnel(page.address):
        echo(f"from your own machine, after: {command}")
    if path := behind_hub(page.address):
        echo(f"or at the address of this JupyterHub, if it has jupyter-server-proxy: {path}")
    echo("Ctrl-C ends the page, not a study.")
    with contextlib.ExitStack() as stack:
        if opens:
            # A program's arguments are visible to all users of the machine, and so the token.
            door = Path(stack.enter_context(tempfile.TemporaryDirectory()), "hptune.html")
            door.write_text(_DOOR.format(address=page.address))
            if click.launch(str(door)) != 0:
                raise StudyError("no browser could be opened; open the address by hand")
        page.serve()


def _begun(directory: Path) -> Path:
    """Return a study's directory as soon as its master has begun the study."""
    from ..storage.directory import StudyDirectory

    study, is_told = StudyDirectory(directory), False
    while not study.has_ledger and study.owner() is not None:
        if not is_told:
            echo(f"The study in {study} begins; its page follows …")
            is_told = True
        time.sleep(_BEGIN_SECONDS)
    return directory


def _directory(place: str | None, certs: str, *, insecure: bool) -> Path:
    """Return the directory of the study that DIR or ADDRESS means."""
    if place is None or ("://" not in place and not Path(place).is_file()):
        if given := "--certs" if certs else "--insecure" if insecure else "":
            found = "none is named" if place is None else f"{place} is a study's directory"
            raise UsageError(
                f"{given} is for a scheduler, but {found}; leave out {given}, or name the "
                "scheduler's address or its file"
            )
        return newest_study() if place is None else Path(place)
    from ..clusters.running_studies import study_at

    directory = study_at(place, certs=certs, insecure=insecure)
    echo(f"The study that runs there is in {directory}")
    return directory


def _is_folder(directory: Path) -> bool:
    """Return whether a directory is no study, and has studies below it."""
    from ..study.study import find_directories

    return any(not each.samefile(directory) for each in find_directories(directory))
