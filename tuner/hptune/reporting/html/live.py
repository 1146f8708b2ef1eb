"""The report as a live page: what a small web server on this machine's loopback interface shows.

The page asks twice a second for what has changed. Sections are made and drawn when they can be
seen, and their tables when they are open, so a study of thousands of trials costs no more than what
is on the screen. A browser with the address and its token may read the study and ask its master for
something. Other users get nothing, also those of this machine.
"""

from __future__ import annotations

import html
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import cattrs

from ... import text
from ...core.space.completion import opening_value
from ...core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    FixedParameter,
    Parameter,
    SearchSpace,
)
from ...core.trial import ParamValue
from ...core.user_requests import UserAction
from ...errors import UsageError
from .live_server import Answer
from .panel import Follows, Panel, Section
from .report import (
    ReportContents,
    bokeh_script,
    filled_page,
    links,
    page_file,
    section_html,
    tables_of,
)

_SECONDS = 0.5
"""Time between two questions of the page, and the shortest time between two readings."""
_STILL_SECONDS = 5.0
"""Time after which a study is read again although its ledger has not changed: time has passed, and
its master may be gone."""
_BUSY_SHARE = 0.5
"""Most of its time that the server spends on reading."""
_REST = 3.0
"""How long a section is not drawn again, as a multiple of the time that drawing took."""
_DRAWING_SECONDS = 0.2
"""Time after which an answer is sent with the sections drawn so far; the others come next."""
_MOST_ROWS = 500
"""Rows of a table that the page shows; the report has all of them."""
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class LiveStudy:
    """What the page needs of a study.

    Attributes:
        read: Returns its report as it is now.
        version: Returns a number that changes with its ledger; much faster than `read`.
        log: Returns what a trial's log has from a byte on, and where it ends.
        act: Asks its master for something, for a trial or with the values of a new one; returns
            what was done, for the user.
        resume_command: The command that continues it when it does not run.
    """

    read: Callable[[], ReportContents]
    version: Callable[[], int]
    log: Callable[[int, int], tuple[str, int]]
    act: Callable[[UserAction, int | None, Mapping[str, object]], str]
    resume_command: str


@dataclass(frozen=True, slots=True)
class _StateAsked:
    """What the page has already.

    Attributes:
        seen: The names of the sections that may be drawn.
        open: Those whose tables are unfolded.
        known: The versions of sections and of tables.
    """

    seen: frozenset[str] = frozenset()
    open: frozenset[str] = frozenset()
    known: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _LogAsked:
    """Whose log is asked for, and from which byte on."""

    trial: int
    start: int = 0


@dataclass(frozen=True, slots=True)
class _ActionAsked:
    """What the study's master is asked for."""

    action: UserAction
    trial: int | None = None
    values: Mapping[str, Any] = field(default_factory=dict)


_Asked = TypeVar("_Asked", _StateAsked, _LogAsked, _ActionAsked)


def _read(kind: type[_Asked], asked: Mapping[str, Any]) -> _Asked:
    """Return what the page asks for.

    Raises:
        UsageError: It is something else.
    """
    try:
        return cattrs.structure(asked, kind)
    except Exception as error:  # each wrong type raises an error of its own
        shown = text.shorten(repr(dict(asked)), _SHOWN_CHARACTERS)
        raise UsageError(f"the request {shown} is none of this page; reload it") from error


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A section, drawn.

    Attributes:
        version: Changes with its contents.
        html: Its HTML; empty if it has nothing to show.
        figures: Its figures, in Bokeh's JSON form.
        tables: The HTML of its tables, if they are folded.
        seconds: How long it took to draw.
        at: When it was drawn, by the monotonic clock.
    """

    version: str
    html: str
    figures: Sequence[Any] = ()
    tables: str = ""
    seconds: float = 0.0
    at: float = 0.0


class LivePage:
    """The live page of one study; a `PageServer` sends it."""

    def __init__(self, study: LiveStudy) -> None:
        self._study = study
        self._lock = threading.Lock()
        self._drawn: dict[str, _Drawn] = {}
        self._contents: ReportContents | None = None
        self._reading = 0
        self._version = -1
        self._read_at = 0.0
        self._read_seconds = 0.0
        self._answers: dict[tuple[str, str], Answer] = {
            ("GET", ""): lambda _: self.page(),
            ("GET", "log"): lambda _: self.log_page(),
            ("POST", "log"): lambda asked: self.log(_read(_LogAsked, asked)),
            ("POST", "state"): lambda asked: self.state(_read(_StateAsked, asked)),
            ("POST", "act"): lambda asked: self.act(_read(_ActionAsked, asked)),
        }

    # --- answers ----------------------------------------------------------------------------

    def answer(self, method: str, name: str) -> Answer | None:
        """Return what answers a request of the page; None if nothing does."""
        return self._answers.get((method, name))

    def page(self) -> str:
        """Return the page, whose sections are still empty."""
        with self._lock:
            contents = self._latest()
        parts = {
            "BOKEH": bokeh_script(),
            "SCRIPT": "",
            "PAGE_SCRIPT": page_file("page.js") + page_file("live.js"),
            "LINKS": links(contents.sections),
            "SECTIONS": "\n".join(map(_placeholder, contents.sections)),
        }
        controls = page_file("controls.html").split("$$")
        shown = {
            "RESUME": html.escape(self._study.resume_command),
            "FIELDS": _add_trial_form(contents.space),
        }
        filled = "".join(shown[part] if i % 2 else part for i, part in enumerate(controls))
        return filled_page(contents, parts).replace("<nav", f"{filled}<nav", 1)

    def state(self, asked: _StateAsked) -> str:
        """Return what the page does not have yet, as JSON."""
        with self._lock:
            contents = self._latest()
            drawn, is_all = self._sections(contents, asked.seen | asked.open)
        state = {
            "head": "<br>".join(html.escape(each) for each in contents.head),
            "has_pruned": contents.has_pruned,
            "is_running": contents.is_running,
            "is_paused": bool(contents.paused_by),
            "seconds": _SECONDS if is_all else 0.0,
            "sections": {
                name: {"version": each.version, "html": each.html, "figures": each.figures}
                for name, each in drawn.items()
                if name in asked.seen and asked.known.get(name) != each.version
            },
            "tables": {
                name: {"version": each.version, "html": each.tables}
                for name, each in drawn.items()
                if name in asked.open and asked.known.get(f"{name} table") != each.version
            },
        }
        return json.dumps(state)

    def log_page(self) -> str:
        """Return a page that follows the log of the trial that its address names."""
        return page_file("log.html").replace("$$STYLE$$", page_file("page.css"))

    def log(self, asked: _LogAsked) -> str:
        """Return what a trial's log has from a byte on, as JSON."""
        words, end = self._study.log(asked.trial, asked.start)
        return json.dumps({"text": words, "end": end})

    def act(self, asked: _ActionAsked) -> str:
        """Ask the study's master for something."""
        given = {name: each for name, each in asked.values.items() if each != ""}
        said = self._study.act(asked.action, asked.trial, given)
        with self._lock:
            self._read_at = 0.0  # what was done is seen at once
        return said

    # --- drawing ----------------------------------------------------------------------------

    def _latest(self) -> ReportContents:
        """Read the study again if it has changed, unless that was just done.

        The caller holds the lock.
        """
        began = time.monotonic()
        age = began - self._read_at
        is_old = age > max(_SECONDS, self._read_seconds / _BUSY_SHARE)
        if self._contents is not None and not is_old:
            return self._contents
        version = self._study.version()  # before the contents, which may be newer
        if self._contents is None or version != self._version or age > _STILL_SECONDS:
            self._contents = self._study.read()
            self._version = version
            self._reading += 1
            self._read_at = time.monotonic()
            self._read_seconds = self._read_at - began
        return self._contents

    def _sections(
        self, contents: ReportContents, names: Collection[str]
    ) -> tuple[dict[str, _Drawn], bool]:
        """Draw sections that have changed, those first that were drawn longest ago.

        Returns:
            The sections by name, and whether there was time for all.
        """
        wanted = [each for each in contents.sections if each.name in names]
        wanted.sort(key=lambda each: self._drawn.get(each.name, _Drawn("", "")).at)
        until = time.monotonic() + _DRAWING_SECONDS
        drawn: dict[str, _Drawn] = {}
        for each in wanted:
            if time.monotonic() > until:
                return drawn, False
            drawn[each.name] = self._section(contents, each)
        return drawn, True

    def _section(self, contents: ReportContents, source: Section) -> _Drawn:
        # One that follows everything is made after each reading; its version says if it is new.
        is_of_trials = source.follows is Follows.TRIALS
        mark = contents.mark if is_of_trials else f"{contents.mark}-{self._reading}"
        before, now = self._drawn.get(source.name), time.monotonic()
        if before is not None:
            rests = now < before.at + _REST * before.seconds and contents.is_running
            if before.version == mark or rests:
                return before
        drawn = draw_section(source, contents.panel(source), mark)
        end = time.monotonic()
        self._drawn[source.name] = replace(drawn, seconds=end - now, at=end)
        return self._drawn[source.name]


def draw_section(source: Section, panel: Panel | None, version: str) -> _Drawn:
    """Return a section as the page inserts it."""
    if panel is None:
        return _Drawn(version, "")
    items = []
    if panel.figures:
        from bokeh.embed import json_item

        items = [
            json_item(figure, f"{source.name}-{i}-{version}")
            for i, figure in enumerate(panel.figures)
        ]
    places = [
        f'<div id="{item["target_id"]}" data-root-id="{item["root_id"]}"></div>' for item in items
    ]
    tables = tables_of(panel, most_rows=_MOST_ROWS) if panel.is_folded else ""
    shown = section_html(source, panel, places, has_tables=not panel.is_folded)
    return _Drawn(version, shown, items, tables)


def _placeholder(source: Section) -> str:
    return (
        f'<section id="{source.name}" class="coming"><h2>{html.escape(source.title)}</h2></section>'
    )


def _add_trial_form(space: SearchSpace) -> str:
    """Return a field for each searched hyperparameter, as HTML.

    A field that is left empty means the default, which it shows.
    """
    declared: dict[str, list[Parameter]] = {}
    for parameter in space:
        if not isinstance(parameter, FixedParameter):
            declared.setdefault(parameter.name, []).append(parameter)
    return "\n".join(
        _field(f"value-{number}", name, found)
        for number, (name, found) in enumerate(declared.items())
    )


def _field(identifier: str, name: str, declared: list[Parameter]) -> str:
    hints = "; or ".join(map(_hint, declared))
    default = text.param(opening_value(declared[0]))
    label, described = html.escape(text.clean(name)), f"{identifier}-hint"
    marks = (
        f'id="{identifier}" name="{html.escape(name)}" aria-describedby="{described}" '
        'autocomplete="off"'
    )
    words = [value for each in declared for value in _words(each)]
    if words:
        options = "".join(
            f'<option value="{html.escape(str(value))}">{html.escape(text.param(value))}</option>'
            for value in dict.fromkeys(words)
        )
        default_option = f'<option value="">default ({html.escape(default)})</option>'
        control = f"<select {marks}>{default_option}{options}</select>"
    else:
        control = f'<input {marks} inputmode="decimal" placeholder="{html.escape(default)}">'
    return (
        f'<div class="field"><label for="{identifier}">{label}</label>{control}'
        f'<p id="{described}">{html.escape(hints)}</p></div>'
    )


def _words(parameter: Parameter) -> list[ParamValue]:
    is_listed = isinstance(parameter, ChoiceParameter | BooleanParameter)
    return [*(parameter.values or ())] if is_listed else []


def _hint(parameter: Parameter) -> str:
    conditions = " and ".join(map(str, parameter.conditions))
    return parameter.bounds + (f", if {conditions}" if conditions else "")
