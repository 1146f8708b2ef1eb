"""The command that shows a study live in a browser: dashboard."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

import click

from ..errors import StudyError, UsageError
from .options import study_directory
from .output import echo

_LOG_BYTES = 200_000
"""How much of the end of a log is shown."""

_DOOR = '<meta http-equiv="refresh" content="0; url={address}">'
"""A page that leads to another one."""


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
    from ..worker.addresses import tunnel

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
        path = found.log(trial)
        try:
            with path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LOG_BYTES))
                return file.read(_LOG_BYTES).decode(errors="replace")
        except OSError as error:
            return f"{path}: {error.strerror}"

    try:
        page = LivePage(LiveStudy(study.report, log, stop), port)
    except OSError as error:
        raise UsageError(
            f"port {port} cannot be used: {error.strerror}; choose another with --port"
        ) from error
    echo(f"Open {page.address}")
    if command := tunnel(page.address):
        echo(f"from your own machine, after: {command}")
    echo("Ctrl-C ends the page, not the study.")
    with contextlib.ExitStack() as stack:
        if opens:
            # A program's arguments are visible to all users of the machine, and so the token.
            door = Path(stack.enter_context(tempfile.TemporaryDirectory()), "hptune.html")
            door.write_text(_DOOR.format(address=page.address))
            if click.launch(str(door)) != 0:
                raise StudyError("no browser could be opened; open the address by hand")
        page.serve()
