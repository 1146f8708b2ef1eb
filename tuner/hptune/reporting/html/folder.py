"""The page of a folder: all its studies, each with its live page, and a comparison of some.

A study that cannot be read has a row that says why. One that another program keeps locked, or that
lies on a file system that does not answer, does not hold up the others: each is read in a thread,
and an answer waits for none of them long.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ... import text
from ...errors import UsageError
from ..results.best import values_text
from ..results.costs import costs_of_study
from ..results.listing import ListedStudy, trials_cell
from ..results.rows import plain
from ..results.view import StudyView
from .comparison import MOST_COMPARED, comparison, searched, shared_goal
from .live import LivePage
from .live_server import Answer
from .panel import Section
from .report import FIGURE_SCRIPTS, filled, page_file, scripts_html, section_html

_SECONDS = 1.0
"""Shortest time between two readings of a study, or of the folder."""
_REST = 3.0
"""How long a study is not read again, as a multiple of the time that reading took."""
_READING_SECONDS = 0.5
"""Time after which an answer is sent with what was read so far; the other studies come next."""
_READERS = 8
_COMPARED_AT_FIRST = 5
_STUDY = "study/"
"""The begin of the names of what the page of one study asks for."""


@dataclass(frozen=True, slots=True)
class Folder:
    """What the page needs of a folder.

    Attributes:
        name: The folder, for people.
        find: Returns the directories of its studies.
        stamp: Returns a value that changes with a study; much faster than reading it.
        listed: Reads a study.
        facts: Returns how it was started.
        page: Opens it; returns what returns the live page of the study that is there now.
    """

    name: str
    find: Callable[[], Sequence[Path]]
    stamp: Callable[[Path], object]
    listed: Callable[[Path], ListedStudy]
    facts: Callable[[Path], Mapping[str, str]]
    page: Callable[[Path], Callable[[], LivePage]]


@dataclass(frozen=True, slots=True)
class _Known:
    """A study as it was read.

    Attributes:
        listed: What was read.
        stamp: Its stamp before that.
        next_at: When it may be read again, by the monotonic clock.
        row: Its row of the table.
    """

    listed: ListedStudy
    stamp: object
    next_at: float
    row: Mapping[str, object]


class FolderPage:
    """The page of a folder and of its studies; a `PageServer` sends them."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._paths: dict[str, Path] = {}
        self._find_at = 0.0
        self._readers = ThreadPoolExecutor(_READERS, "hptune-folder")
        self._reading: dict[str, Future[_Known]] = {}
        self._known: dict[str, _Known] = {}
        self._pages: dict[str, Callable[[], LivePage]] = {}

    def answer(self, method: str, name: str) -> Answer | None:
        """Return what answers a request of one of the pages; None if nothing does."""
        match method, name:
            case "GET", "":
                return lambda _: self.page()
            case "POST", "state":
                return self.state
        of, _, rest = name.removeprefix(_STUDY).partition("/")
        page = self._study_page(of) if name.startswith(_STUDY) else None
        if page is None:
            return None
        if (method, rest) == ("GET", ""):
            return lambda _: page.page(folder="../../")
        return page.answer(method, rest)

    def page(self) -> str:
        """Return the page, whose table is still empty."""
        parts = {
            "TITLE": html.escape(f"hptune: {self._folder.name}"),
            "STYLE": page_file("figures.css") + page_file("page.css"),
            "SCRIPTS": scripts_html([*FIGURE_SCRIPTS, "folder.js"]),
        }
        return filled("folder.html", parts)

    def state(self, asked: Mapping[str, Any]) -> str:
        """Return the rows of all studies, and the comparison if the page has another one.

        Raises:
            UsageError: What is asked is none of this page.
        """
        chosen, known = asked.get("chosen"), asked.get("known", "")
        if not (chosen is None or isinstance(chosen, list)) or not isinstance(known, str):
            raise UsageError("the request is none of this page; reload it")
        with self._lock:
            is_all = self._refresh()
            found = sorted(self._known.items(), key=lambda each: -each[1].listed.created_at)
            views = {name: view for name, each in found if (view := each.listed.view) is not None}
            names = [each for each in chosen or () if each in views][:MOST_COMPARED]
            state = {
                "head": _head(self._folder.name, [each.listed for _, each in found]),
                "rows": [each.row for _, each in found],
                "chosen": _first_chosen(views) if chosen is None and is_all else None,
                "seconds": 2 * _SECONDS if is_all else 0.0,
                "comparison": self._comparison({each: views[each] for each in names}, known),
            }
        return json.dumps(state)

    def _comparison(self, views: Mapping[str, StudyView], known: str) -> dict[str, object] | None:
        """Return the comparison of studies as a section; None if the page has it."""
        marks = [(n, v.ended, v.best and v.best.number, str(v.state)) for n, v in views.items()]
        version = hashlib.sha256(repr(marks).encode()).hexdigest()[:16]
        if version == known:
            return None
        if len(views) < 2:
            return {"version": version, "html": "", "lines": []}
        paths = {each: self._paths[each] for each in views}
        named = {self._name(paths[each]): view for each, view in views.items()}
        facts = {self._name(path): self._folder.facts(path) for path in paths.values()}
        panel = comparison(named, facts, now=time.time())
        drawn = section_html(Section("comparison", "Comparison", lambda: panel), panel)
        goal = shared_goal(views.values())
        lines = [name for name, view in views.items() if view.goal == goal]
        return {"version": version, "html": drawn, "lines": lines}

    def _name(self, study: Path) -> str:
        return os.path.relpath(study, self._folder.name)

    # --- reading ----------------------------------------------------------------------------

    def _refresh(self) -> bool:
        """Read what has changed; return whether there is nothing more to wait for.

        The caller holds the lock.
        """
        began = time.monotonic()
        if began >= self._find_at:
            found = {_identifier(path): path for path in self._folder.find()}
            self._find_at = _next(began)
            self._paths = found
            self._known = {name: each for name, each in self._known.items() if name in found}
        for name, path in self._paths.items():
            before = self._known.get(name)
            if name not in self._reading and (before is None or began >= before.next_at):
                self._reading[name] = self._readers.submit(self._read, name, path, before)
        ended, others = wait(self._reading.values(), timeout=_READING_SECONDS)
        for name, reading in list(self._reading.items()):
            if reading in ended:
                del self._reading[name]
                if name in self._paths:
                    self._known[name] = reading.result()
        return not others or not ended

    def _read(self, name: str, path: Path, before: _Known | None) -> _Known:
        began, stamp = time.monotonic(), self._folder.stamp(path)
        if before is not None and stamp == before.stamp and _rests(before.listed):
            return replace(before, next_at=_next(began))
        listed = self._folder.listed(path)
        row = _row(name, self._name(path), listed, time.time())
        return _Known(listed, stamp, _next(began), row)

    def _study_page(self, name: str) -> LivePage | None:
        """Return the page of a study; None if there is no such study in the folder."""
        with self._lock:
            if not self._paths:
                self._refresh()
            path, page = self._paths.get(name), self._pages.get(name)
        if page is None and path is not None:
            page = self._pages.setdefault(name, self._folder.page(path))
        return page and page()


def _identifier(path: Path) -> str:
    """Return a name for addresses; a path may hold anything."""
    return hashlib.sha256(os.fsencode(path)).hexdigest()[:16]


def _next(began: float) -> float:
    """Return when to read again what was read just now."""
    end = time.monotonic()
    return end + max(_SECONDS, _REST * (end - began))


def _rests(study: ListedStudy) -> bool:
    """Return whether only a new stamp can change what was read: no time passes for it."""
    return study.view is not None and study.view.is_over


def _first_chosen(views: Mapping[str, StudyView]) -> list[str]:
    """Return the newest studies with a result of one model, to be compared at first."""
    known = {name: _model(view) for name, view in views.items() if view.best is not None}
    newest = next(iter(known.values()), None)
    return [name for name, model in known.items() if model == newest][:_COMPARED_AT_FIRST]


def _model(view: StudyView) -> object:
    """Return what studies of one model have in common, by what each of them records."""
    return view.goal, searched(view)


def _head(folder: str, studies: Sequence[ListedStudy]) -> str:
    states = Counter(study.state for study in studies)
    counts = [f"{count} {state}" for state, count in states.most_common()]
    words = f"{len(studies)} {'study' if len(studies) == 1 else 'studies'} in {text.clean(folder)}"
    return f"{words}: {', '.join(counts)}" if counts else words


def _row(name: str, shown: str, study: ListedStudy, now: float) -> dict[str, object]:
    """Return a study as the page shows it; numbers are what the table is sorted by."""
    row: dict[str, object] = {"id": name, "name": text.clean(shown), "who": _user(study.directory)}
    view = study.view
    if view is None:
        return {**row, "state": study.state, "problem": text.clean(study.problem)}
    cost = costs_of_study(view, now)
    hours = [(cost.gpu_hours, "GPU"), (cost.core_hours, "core")]
    best = view.best
    return {
        **row,
        "state": study.state,
        "tags": list(map(text.clean, view.tags_of())),
        "search": view.search,
        "trials": trials_cell(view),
        "ended": view.ended,
        "of": view.all_trials,
        "goal": text.clean(str(view.goals)),
        "best": "" if best is None else values_text(view, best),
        "value": None if best is None or not best.values else plain(best.values[0]),
        "hours": "; ".join(text.held(each, unit) for each, unit in hours if each),
        "device_hours": cost.gpu_hours or cost.core_hours,
        "where": _where(view),
        "started": text.moment(view.created_at)[:-3] if view.created_at else "",
        "created_at": view.created_at,
    }


def _where(view: StudyView) -> str:
    """Return where a study runs, or where its trials ran."""
    if view.master is not None:
        workers = "" if view.workers is None else f", {text.plural(view.workers, 'worker')}"
        return text.clean(f"{view.master.host}{workers}")
    nodes = list(dict.fromkeys(text.clean(attempt.node) for attempt in view.attempts))
    return text.some(nodes, 1)


def _user(directory: str) -> str:
    try:
        return text.clean(Path(directory).owner())
    except (OSError, KeyError):  # a user without a name
        return ""
