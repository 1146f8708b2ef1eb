"""The report as one page of HTML."""

from __future__ import annotations

import html
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from ...core.space.space import SearchSpace
from .. import text
from ..results.best import best_words, model_lines
from ..results.export import ReportedValue
from ..results.view import StudyView
from . import run_figures, search_figures, space_figures
from .panel import Panel, Shown, Table, begin_with
from .trials import StudyTrials


@dataclass(frozen=True, slots=True)
class Setup:
    """How a study was started.

    Attributes:
        command: The command that starts the same study again.
        facts: Further facts, such as versions and the seed, by name.
    """

    command: str
    facts: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class ReportContents:
    """The contents of a report.

    Attributes:
        title: The page's title.
        head: Lines about the study as a whole.
        panels: The sections.
        first_shown: Which trials the figures show at first.
        has_pruned: Whether there are pruned trials, so that the reader has a choice.
        is_running: Whether the study runs.
    """

    title: str
    head: Sequence[str]
    panels: Sequence[Panel]
    first_shown: Shown
    has_pruned: bool
    is_running: bool


def make_report(
    view: StudyView,
    space: SearchSpace,
    reports: Sequence[ReportedValue],
    setup: Setup,
    *,
    now: float,
    shown: Shown | None = None,
) -> ReportContents:
    """Return the contents of the report of a study.

    Args:
        view: The study.
        space: Its search space.
        reports: The reports of all attempts.
        setup: How it was started.
        now: The time in seconds since the epoch, at which running attempts are shown.
        shown: The choice of trials that the page begins with; None for the usual one.
    """
    trials = StudyTrials(view, space, reports)
    panels = report_panels(trials, setup, now)
    first_shown = shown or trials.first_shown
    begin_with(panels, first_shown)
    return ReportContents(
        f"hptune: {text.clean(view.directory.rstrip('/').rpartition('/')[2])}",
        head_lines(view, now),
        panels,
        first_shown,
        bool(trials.pruned),
        view.master is not None,
    )


def page_of(report: ReportContents) -> str:
    """Return a report as one page that needs no other file and no network."""
    script, drawings = _drawn(report.panels)
    parts = {
        "BOKEH": bokeh_script() if drawings else "",
        "SCRIPT": script,
        "PAGE_SCRIPT": page_file("page.js"),
        "LINKS": links(report.panels),
        "SECTIONS": "\n".join(
            section(panel, drawings.get(panel.name, ())) for panel in report.panels
        ),
    }
    return filled_page(report, parts)


def filled_page(report: ReportContents, parts: dict[str, str]) -> str:
    """Return the page's template with these parts and those that every page has."""
    parts = {
        "TITLE": _text(report.title),
        "STYLE": page_file("page.css"),
        "HEAD": "<br>".join(_text(each) for each in report.head),
        "SWITCH": "" if report.has_pruned else "hidden",
        "SHOWN": str(report.first_shown),
        "ONLY": "checked" if report.first_shown is Shown.COMPLETE_ONLY else "",
        "WITH": "checked" if report.first_shown is Shown.WITH_PRUNED else "",
        **parts,
    }
    # One pass: what a part contains is never replaced.
    pieces = page_file("page.html").split("$$")
    return "".join(parts[p] if i % 2 else p for i, p in enumerate(pieces))


def links(panels: Sequence[Panel]) -> str:
    """Return links to the sections of a page."""
    return " ".join(f'<a href="#{p.name}">{_text(p.title)}</a>' for p in panels)


def report_panels(trials: StudyTrials, setup: Setup, now: float) -> list[Panel]:
    """Return the sections of the report that have something to show."""
    return [each for each in _panels(trials, setup, now) if each is not None]


def _panels(trials: StudyTrials, setup: Setup, now: float) -> Iterable[Panel | None]:
    yield winner(trials)
    yield run_figures.running(trials, now=now)
    if trials.of(Shown.WITH_PRUNED):
        yield search_figures.front(trials)
        yield search_figures.history(trials)
        yield search_figures.curves(trials)
        yield search_figures.importance(trials)
        yield space_figures.slices(trials)
        yield space_figures.contour(trials)
        yield space_figures.parallel(trials)
    yield search_figures.stopping(trials)
    yield run_figures.timeline(trials, now=now)
    yield run_figures.costs(trials, now=now)
    yield run_figures.failures(trials)
    yield what_was_asked(trials, setup)
    yield run_figures.all_trials(trials)


def winner(trials: StudyTrials) -> Panel:
    """Return the best trial, its configuration and its model."""
    view = trials.view
    best = view.best
    if best is None:
        words = f"No trial is complete yet: {view.counts_text()}."
        return Panel("best", "Best trial", words)
    tables = [
        Table(
            ("hyperparameter", "value"),
            [(text.clean(name), text.param(value)) for name, value in best.params.items()],
        )
    ]
    others = [(text.clean(n), text.measured(v)) for n, v in best.metrics.items()]
    if others:
        tables.append(Table(("metric", "value"), others))
    if view.model:
        tables.append(Table(("model",), [("\n".join(model_lines(view)),)]))
    return Panel("best", "Best trial", best_words(view, best), tables=tables, is_folded=False)


def what_was_asked(trials: StudyTrials, setup: Setup) -> Panel:
    """Return how the study was started, and its search space."""
    ranges = [(text.clean(p.name), p.bounds, _conditions(p)) for p in trials.space]
    return Panel(
        "setup",
        "What was asked",
        f"Start the same study again: {setup.command}",
        tables=[
            Table(("", ""), [(name, value) for name, value in setup.facts]),
            Table(("hyperparameter", "range", "only if"), ranges),
        ],
        is_folded=False,
    )


def _conditions(parameter: Any) -> str:
    return " and ".join(map(str, parameter.conditions)) or text.NOTHING


def head_lines(view: StudyView, now: float) -> list[str]:
    """Return the lines below the title: the search, the progress, the state and the time."""
    state = "running" if view.master is not None else "not running"
    if view.master is None and view.last_finish is not None:
        state = f"ended: {text.clean(view.last_finish.reason)}"
    return [
        f"{view.search} search for {', '.join(map(str, view.goals.objectives))}",
        f"{view.progress}: {view.counts_text()}",
        state,
        f"written {time.strftime('%Y-%m-%d %H:%M', time.localtime(now))}",
    ]


def _drawn(panels: Sequence[Panel]) -> tuple[str, dict[str, Sequence[str]]]:
    """Return the script that draws all figures, and the places for those of each panel."""
    with_figures = [panel for panel in panels if panel.figures]
    if not with_figures:
        return "", {}
    from bokeh.embed import components

    script, places = components([figure for panel in with_figures for figure in panel.figures])
    left = iter(places)
    return script, {panel.name: [next(left) for _ in panel.figures] for panel in with_figures}


def bokeh_script() -> str:
    """Return Bokeh's own script, without what no figure uses."""
    from bokeh.resources import Resources

    script: str = Resources(mode="inline", components=["bokeh"]).render_js()
    return script


def section(panel: Panel, drawn: Sequence[str]) -> str:
    """Return a section of a page.

    Args:
        panel: What it shows.
        drawn: The places of its figures, as HTML.
    """
    label = _text(f"{panel.title}. {panel.words}")
    figures = "".join(
        f'<div class="figure" role="img" aria-label="{label}">{each}</div>' for each in drawn
    )
    several = " several" if len(drawn) > 1 else ""
    tables = "".join(_table(each) for each in panel.tables)
    if tables and panel.is_folded:
        tables = f"<details><summary>As a table</summary>{tables}</details>"
    return (
        f'<section id="{panel.name}"><h2>{_text(panel.title)}</h2><p>{_text(panel.words)}</p>'
        f'<div class="figures{several}">{figures}</div>{tables}</section>'
    )


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{_text(each)}</th>' for each in table.columns)
    head = f"<thead><tr>{head}</tr></thead>" if any(table.columns) else ""
    rows = "".join(f"<tr>{''.join(_cell(each) for each in row)}</tr>" for row in table.rows)
    return (
        f'<div class="scroll {table.shown}" tabindex="0"><table>{head}'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(words: str) -> str:
    if "\n" in words:
        return f"<td><pre>{_text(words)}</pre></td>"
    return f"<td>{_text(words)}</td>"


def _text(words: str) -> str:
    return html.escape(words)


def page_file(name: str) -> str:
    """Return a file of this folder that is a part of every page."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
