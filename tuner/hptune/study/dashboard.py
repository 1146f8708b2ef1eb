"""The live page of a study, and that of a folder of studies: what they read, and what they ask for.

It joins the pages of `reporting` with the ledger and the requests to a master.
"""

from __future__ import annotations

import codecs
import functools
import html
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..config.plugins import pause_text
from ..core.attempt import ReportedValue
from ..core.user_requests import UserAction
from ..errors import HptuneError, StudyError
from ..files.access import exists, open_plain
from ..reporting.html.folder import Folder, FolderPage
from ..reporting.html.live import LivePage, LiveStudy
from ..reporting.html.live_server import PageServer
from ..reporting.html.page_data import TrialRows
from ..reporting.html.reports import Reports
from ..reporting.results.listing import ListedStudy
from ..storage.asking import ask, check, send
from ..storage.directory import StudyDirectory
from ..storage.ledger import FollowedReports, LedgerReader
from ..worker.addresses import behind_hub, tunnel

_LOG_BYTES = 200_000
"""How much of the end of a log is shown."""

_ANSWER_SECONDS = 15.0
"""Longest time for which the page waits for the master's answer."""


JobsText = Callable[[Path], str]
"""Returns which jobs bring the workers of the study in a directory, in words; empty if none do."""


def study_server(study: Reports, port: int = 0, *, jobs: JobsText = lambda _: "") -> PageServer:
    """Return a server of the live page of a study.

    Args:
        study: The study.
        port: The port to listen on; 0 for a free one.
        jobs: Returns its jobs in words.

    Raises:
        OSError: The port cannot be had.
    """
    page = _page(study, jobs)
    return PageServer(lambda method, name: page().answer(method, name), port)


class Dashboard:
    """A live page that this process serves beside its other work.

    Args:
        server: The page's server.

    Attributes:
        address: What to open in a browser of this machine. Anyone who has it can read and stop the
            study.
    """

    def __init__(self, server: PageServer) -> None:
        self.address = server.address
        self._server = server
        self._command = tunnel(server.address)
        self._path = html.escape(behind_hub(server.address))
        threading.Thread(target=server.serve, name="hptune-dashboard", daemon=True).start()

    def __repr__(self) -> str:
        remote = f", from your own machine after: {self._command}" if self._command else ""
        return f"Dashboard({self.address}{remote})"

    def _repr_html_(self) -> str:
        link = f'<a href="{self.address}" target="_blank">{self.address}</a>'
        remote = f"<br>from your own machine after: <code>{html.escape(self._command)}</code>"
        hub = f'<br><a href="{self._path}" target="_blank">by jupyter-server-proxy</a>'
        return f"<p>{link}{remote if self._command else ''}{hub if self._path else ''}</p>"

    def close(self) -> None:
        """End the page, not the study."""
        self._server.close()


def folder_server(
    folder: Path,
    port: int = 0,
    *,
    find: Callable[[], list[Path]],
    listed: Callable[[Path], ListedStudy],
    opened: Callable[[Path], Reports],
    jobs: JobsText = lambda _: "",
) -> PageServer:
    """Return a server of the page of a folder.

    Args:
        folder: The folder.
        port: The port to listen on; 0 for a free one.
        find: Returns the directories of its studies.
        listed: Reads one of them.
        opened: Opens one of them.
        jobs: Returns the jobs of one in words.

    Raises:
        OSError: The port cannot be had.
    """
    page = FolderPage(
        Folder(
            str(folder),
            find,
            _stamp,
            listed,
            facts=lambda path: _by_name(opened(path).setup().facts),
            page=lambda path: _page(opened(path), jobs),
        )
    )
    return PageServer(page.answer, port)


def _by_name(facts: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return how a study was started, with all values of an option that was repeated."""
    by_name: dict[str, str] = {}
    for name, value in facts:
        by_name[name] = f"{by_name[name]}, {value}" if name in by_name else value
    return by_name


def _page(study: Reports, jobs: JobsText) -> Callable[[], LivePage]:
    """Return what returns the live page of the study that is in the directory now.

    Another study may take the place of the first one, as by `overwrite=True`. A page that shows
    the first one is told so, as its first reading has a greater number.
    """
    reader = LedgerReader(StudyDirectory(study.directory))
    page = functools.cache(lambda _: LivePage(_live(study, jobs), time.time_ns() // 1_000_000))
    return lambda: page(reader.facts()["created_at"])


def _live(study: Reports, jobs: JobsText) -> LiveStudy:
    directory = StudyDirectory(study.directory)
    reader = LedgerReader(directory)
    first = study.goal.metric
    followed = {first: FollowedReports(first)}
    rows = TrialRows()

    def reports(metric: str, trial: int | None) -> Sequence[ReportedValue]:
        if trial is not None:
            return reader.reports(trial)
        return followed.setdefault(metric, FollowedReports(metric)).rows(reader)

    return LiveStudy(
        read=lambda: study.report_contents(known=followed[first], rows=rows),
        version=reader.event_count,
        log=lambda trial, start: follow_log(directory.log(trial), start),
        reports=reports,
        act=functools.partial(_asked, directory),
        jobs=lambda: jobs(directory.path),
    )


def _stamp(path: Path) -> object:
    """Return a value that changes with a study's ledger, its master, and its master's job."""
    directory, script = StudyDirectory(path), path / "jobs" / "master.sbatch"
    try:
        found = directory.database.stat()
        submitted = script.stat().st_mtime_ns if exists(script) else 0
        return found.st_mtime_ns, found.st_size, directory.owner() is not None, submitted
    except (OSError, HptuneError):
        return None


def follow_log(path: Path, start: int) -> tuple[str, int]:
    """Return what a log has from a byte on, at most its end, and from where to read on."""
    try:
        with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
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
    tool = "the dashboard"
    if action is UserAction.STOP:
        check(directory, LedgerReader(directory), action)
        send(directory, action, tool=tool)
        return f"The study stops. Continue it with: hptune resume {directory}"
    points = [values] if action is UserAction.ENQUEUE else []
    ask(directory, action, tool=tool, trial=trial, points=points, wait_seconds=_ANSWER_SECONDS)
    match action:
        case UserAction.STOP_TRIAL:
            return f"Trial {trial} stops."
        case UserAction.ENQUEUE:
            return "The trial is enqueued; it runs next."
        case UserAction.PAUSE:
            stored = LedgerReader(directory).facts()["settings"]
            return f"The study is paused: {pause_text(directory.path, stored)}."
        case _:
            return "Trials start again."
