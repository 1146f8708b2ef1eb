"""The report as a live page: what a small web server on this machine's loopback interface shows.

The page asks twice a second for what has changed: the data of trials, from which it draws figures
and tables itself, and sections that can be seen. A browser with the address and its token may read
the study and ask its master for something. Other users get nothing, also those of this machine.
"""

from __future__ import annotations

import html
import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import cattrs

from ... import text
from ...core.attempt import ReportedValue
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
from .page_data import curve_json, script_json
from .panel import Follows, Section
from .report import ReportContents, filled, filled_page, head_html, links, section_html
from .trials import curves_of

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
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class LiveStudy:
    """What the page needs of a study.

    Attributes:
        read: Returns its report as it is now.
        version: Returns a number that changes with its ledger; much faster than `read`.
        log: Returns what a trial's log has from a byte on, and where it ends.
        reports: Returns the reports of a metric, or all those of a trial.
        act: Asks its master for something, for a trial or with the values of a new one; returns
            what was done, for the user.
        jobs: Returns which jobs bring its workers, in words; empty if there are none.
    """

    read: Callable[[], ReportContents]
    version: Callable[[], int]
    log: Callable[[int, int], tuple[str, int]]
    reports: Callable[[str, int | None], Sequence[ReportedValue]]
    act: Callable[[UserAction, int | None, Mapping[str, object]], str]
    jobs: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class _StateAsked:
    """What the page has already.

    Attributes:
        seen: The names of the sections that may be drawn.
        known: The versions of sections.
        since: Number of the reading whose trials it has.
    """

    seen: frozenset[str] = frozenset()
    known: Mapping[str, str] = field(default_factory=dict)
    since: int = 0


@dataclass(frozen=True, slots=True)
class _CurvesAsked:
    """Of which metric, or of which trial, the curves are asked for."""

    metric: str = ""
    trial: int | None = None


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


_Asked = TypeVar("_Asked", _StateAsked, _LogAsked, _CurvesAsked, _ActionAsked)


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
        seconds: How long it took to draw.
        at: When it was drawn, by the monotonic clock.
    """

    version: str
    html: str
    seconds: float = 0.0
    at: float = 0.0


class LivePage:
    """The live page of one study; a `PageServer` sends it.

    Args:
        study: The study.
        first: A number below those of its readings, and above those of what was shown before.
    """

    def __init__(self, study: LiveStudy, first: int = 0) -> None:
        self._study = study
        self._lock = threading.Lock()
        self._drawn: dict[str, _Drawn] = {}
        self._contents: ReportContents | None = None
        self._rows: dict[int, Mapping[str, Any]] = {}
        self._changed: dict[int, int] = {}
        self._reading = self._first = first
        self._version = -1
        self._read_at = 0.0
        self._read_seconds = 0.0
        self._answers: dict[tuple[str, str], Answer] = {
            ("GET", ""): lambda _: self.page(),
            ("POST", "curves"): lambda asked: self.curves(_read(_CurvesAsked, asked)),
            ("POST", "log"): lambda asked: self.log(_read(_LogAsked, asked)),
            ("POST", "state"): lambda asked: self.state(_read(_StateAsked, asked)),
            ("POST", "act"): lambda asked: self.act(_read(_ActionAsked, asked)),
        }

    # --- answers ----------------------------------------------------------------------------

    def answer(self, method: str, name: str) -> Answer | None:
        """Return what answers a request of the page; None if nothing does."""
        return self._answers.get((method, name))

    def page(self, *, folder: str = "") -> str:
        """Return the page, whose sections are still empty.

        Args:
            folder: Address of the page of its folder, to which a link leads; empty if there is
                none.
        """
        with self._lock:
            contents, reading = self._latest(), self._reading
        home = f'<a href="{html.escape(folder)}">All studies</a>' if folder else ""
        parts = {
            "HOME": home,
            "LINKS": links(contents.sections),
            "SECTIONS": "\n".join(map(_placeholder, contents.sections)),
            "CONTROLS": filled("controls.html", {"FIELDS": _add_trial_form(contents.space)}),
            "DATA": script_json({**contents.data(), "reading": reading}),
        }
        return filled_page(contents, parts, scripts=["live.js"])

    def state(self, asked: _StateAsked) -> str:
        """Return what the page does not have yet, as JSON.

        Raises:
            UsageError: It shows another study.
        """
        if 0 < asked.since <= self._first:
            raise UsageError("another study has taken the place of this one; reload the page")
        with self._lock:
            contents, reading = self._latest(), self._reading
            drawn, is_all = self._sections(contents, asked.seen)
            trials = [self._rows[n] for n, at in self._changed.items() if at > asked.since]
        jobs = html.escape(self._study.jobs())
        state = {
            "head": " · ".join(filter(None, (head_html(contents), jobs and f"jobs: {jobs}"))),
            "tiles": contents.headline,
            "is_running": contents.is_running,
            "is_paused": bool(contents.paused_by),
            "resume": contents.resume_command,
            "seconds": _SECONDS if is_all else 0.0,
            "reading": reading,
            "data": {"facts": contents.facts, "trials": trials} if reading > asked.since else None,
            "sections": {
                name: {"version": each.version, "html": each.html}
                for name, each in drawn.items()
                if asked.known.get(name) != each.version
            },
        }
        return json.dumps(state)

    def curves(self, asked: _CurvesAsked) -> str:
        """Return the curves of a metric, or of a trial, by the trial's number, as JSON."""
        found = curves_of(self._study.reports(asked.metric, asked.trial))
        return json.dumps({number: curve_json(curves) for number, curves in found.items()})

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
            for number, row in self._contents.rows.items():
                if self._rows.get(number) is not row:
                    self._rows[number], self._changed[number] = row, self._reading
            self._read_at = time.monotonic()
            self._read_seconds = self._read_at - began
        return self._contents

    def _sections(
        self, contents: ReportContents, names: Collection[str]
    ) -> tuple[dict[str, _Drawn], bool]:
        """Draw sections that have changed, at least one; first those drawn longest ago.

        Returns:
            The sections by name, and whether there was time for all.
        """
        wanted = [section for section in contents.sections if section.name in names]
        wanted.sort(key=lambda each: self._drawn.get(each.name, _Drawn("", "")).at)
        until = time.monotonic() + _DRAWING_SECONDS
        drawn: dict[str, _Drawn] = {}
        for each in wanted:
            if drawn and time.monotonic() > until:
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
        panel = source.make()
        shown = "" if panel is None else section_html(source, panel)
        end = time.monotonic()
        self._drawn[source.name] = _Drawn(mark, shown, end - now, end)
        return self._drawn[source.name]


def _placeholder(source: Section) -> str:
    wide = "wide coming" if source.is_wide else "coming"
    return (
        f'<section id="{source.name}" class="{wide}"><h2>{html.escape(source.title)}</h2></section>'
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
