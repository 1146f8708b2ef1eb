"""The command that shows a study live in a browser: dashboard."""

from __future__ import annotations

import codecs
import contextlib
import os
import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.user_requests import UserAction
from ..errors import StudyError, UsageError
from .asking import pause_text
from .options import newest_study, setting_option
from .output import echo

if TYPE_CHECKING:
    from ..core.attempt import ReportedValue
    from ..storage.directory import StudyDirectory

_LOG_BYTES = 200_000
"""How much of the end of a log is shown."""

_ANSWER_SECONDS = 15.0
"""Longest time for which the page waits for the master's answer."""

_DOOR = '<meta http-equiv="refresh" content="0; url={address}">'
"""A page that leads to another one."""


@click.command(short_help="Show a study live in a browser.")
@click.argument("place", metavar="[DIR|ADDRESS]", required=False)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
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

    ADDRESS is that of a scheduler, or its file: the page shows the study that runs there.
    """
    from ..reporting.html.live import LivePage, LiveStudy
    from ..reporting.html.page_data import TrialRows
    from ..storage.directory import StudyDirectory
    from ..storage.ledger import FollowedReports, LedgerReader
    from ..study import Study
    from ..worker.addresses import tunnel

    directory = _directory(place, certs or "", insecure=insecure)
    found, study = StudyDirectory(directory), Study(directory)
    study.view()  # an error of the study comes now, not in the browser

    reader = LedgerReader(found)
    first = study.goal.metric
    followed = {first: FollowedReports(reader, first)}

    def reports(metric: str, trial: int | None) -> Sequence[ReportedValue]:
        if trial is not None:
            return study.reports(trial)
        return followed.setdefault(metric, FollowedReports(reader, metric)).rows()

    rows = TrialRows()
    shown = LiveStudy(
        read=lambda: study.report(known=reports(first, None), rows=rows),
        version=reader.event_count,
        log=lambda trial, start: follow_log(found.log(trial), start),
        reports=reports,
        act=partial(_asked, found),
        resume_command=f"hptune resume {found}",
    )
    try:
        page = LivePage(shown, port)
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


def follow_log(path: Path, start: int) -> tuple[str, int]:
    """Return what a log has from a byte on, at most its end, and from where to read on."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A log that became too long was cut.
            file.seek(max(start if start <= size else 0, size - _LOG_BYTES))
            # A character whose last bytes are still to come is read next time.
            decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
            found = decoder.decode(file.read(_LOG_BYTES))
            return found, file.tell() - len(decoder.getstate()[0])
    except FileNotFoundError:
        return "", 0
    except OSError as error:
        raise StudyError(f"{path} cannot be read: {error.strerror}") from error


def _asked(
    directory: StudyDirectory,
    action: UserAction,
    trial: int | None,
    values: Mapping[str, object],
) -> str:
    """Ask the study's master for something, and return what was done."""
    from ..master.user_requests import ask, check, send
    from ..storage.ledger import LedgerReader

    tool = "dashboard"
    if action is UserAction.STOP:
        check(directory, LedgerReader(directory), action)
        send(directory, action, tool=tool)
        return f"The study stops. Continue it with: hptune resume {directory}"
    points = [values] if action is UserAction.ADD else []
    ask(directory, action, tool=tool, trial=trial, points=points, wait_seconds=_ANSWER_SECONDS)
    match action:
        case UserAction.STOP_TRIAL:
            return f"Trial {trial} stops."
        case UserAction.ADD:
            return "The trial is added; it runs next."
        case UserAction.PAUSE:
            return f"The study is paused: {pause_text(directory)}."
        case _:
            return "Trials start again."
