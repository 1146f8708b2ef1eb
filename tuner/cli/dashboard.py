"""The command that shows a study live in a browser: dashboard."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path

import click

from ..errors import StudyError, UsageError
from .options import study_directory
from .output import echo

_LOG_CHARACTERS = 200_000


@click.command(short_help="Show a study live in a browser.")
@study_directory
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: a free one]")
@click.option("--open", "opens", is_flag=True, help="Open the page in the browser of this machine.")
def dashboard(directory: Path, *, port: int, opens: bool) -> None:
    """Show the study in DIR live in a browser, also while it runs.

    The page has the figures of `hptune report`, and a button that stops the study. Only this
    machine can reach it, and only who has the address that is printed.
    """
    from ..errors import check_installed
    from ..storage.directory import StudyDirectory
    from ..study import Study

    check_installed("bokeh", "the dashboard")
    from ..reporting.html.live import LivePage, LiveStudy

    found, study = StudyDirectory(directory), Study(directory)
    study.view()  # an error of the study comes now, not in the browser

    def stop() -> str:
        if found.owner() is None:
            return "The study does not run."
        found.request_stop("asked in the dashboard")
        return f"The study stops. Continue it with: hptune resume {found}"

    def log(trial: int) -> str:
        path = directory / "trials" / str(trial) / "log.txt"
        try:
            return path.read_text(errors="replace")[-_LOG_CHARACTERS:]
        except OSError as error:
            return f"{path}: {error.strerror}"

    try:
        page = LivePage(LiveStudy(study.report, log, stop), port)
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be used: {error.strerror}; choose another with --port"
        ) from error
    echo(f"Open {page.address}")
    if "SSH_CONNECTION" in os.environ:
        host = f"{getpass.getuser()}@{socket.getfqdn()}"
        echo(f"from your machine, after: ssh -N -L {page.port}:127.0.0.1:{page.port} {host}")
    echo("Ctrl-C ends the page, not the study.")
    if opens and not click.launch(page.address) == 0:
        raise StudyError("no browser could be opened; open the address by hand")
    page.serve()
