"""The report as one page of HTML."""

from __future__ import annotations

import html
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources

from ... import text
from ...core.messages import UserRequested
from ...core.space.space import SearchSpace
from ..results.best import best_line, model_lines, nothing_complete
from ..results.notes import note_lines
from ..results.summary import state_without_master
from ..results.view import StudyView
from . import run_figures, search_figures, space_figures
from .panel import Follows, Panel, Section, Shown, Table, begin_with
from .trials import StudyTrials


@dataclass(frozen=True, slots=True)
class Setup:
    """How a study was started.

    Attributes:
        command: The command that starts the same study again.
        facts: Further facts, such as versions and the seed, by name.
        scaling: Returns how the model scales over devices; None where that was not measured.
        requests: What users asked for while it ran.
    """

    command: str
    facts: Sequence[tuple[str, str]]
    scaling: Callable[[], Panel | None] = lambda: None
    requests: Sequence[UserRequested] = ()


@dataclass(frozen=True, slots=True)
class ReportContents:
    """The contents of a report.

    Attributes:
        title: The page's title.
        head: Lines about the study as a whole.
        sections: The sections, some of which may have nothing to show.
        first_shown: Which trials the figures show at first.
        has_pruned: Whether there are pruned trials, so that the reader has a choice.
        is_running: Whether the study runs.
        paused_by: The user who paused it; empty if it is not paused.
        space: Its search space.
        mark: A text that changes whenever a trial's value or state does.
    """

    title: str
    head: Sequence[str]
    sections: Sequence[Section]
    first_shown: Shown
    has_pruned: bool
    is_running: bool
    paused_by: str = ""
    space: SearchSpace = field(default_factory=SearchSpace)
    mark: str = ""

    def panels(self) -> list[tuple[Section, Panel]]:
        """Make the sections that have something to show."""
        return [(each, panel) for each in self.sections if (panel := self.panel(each)) is not None]

    def panel(self, section: Section) -> Panel | None:
        """Make one section; None if it has nothing to show."""
        panel = section.make()
        if panel is not None:
            begin_with(panel, self.first_shown)
        return panel


def make_report(
    trials: StudyTrials, setup: Setup, *, now: float, shown: Shown | None = None
) -> ReportContents:
    """Return the contents of the report of a study."""
    view = trials.view
    return ReportContents(
        f"hptune: {text.clean(view.directory.rstrip('/').rpartition('/')[2])}",
        head_lines(view, now),
        sections(trials, setup, now),
        shown or trials.first_shown,
        bool(trials.pruned),
        view.master is not None,
        view.paused_by,
        trials.space,
        trials.mark,
    )


def page_of(report: ReportContents) -> str:
    """Return a report as one page that needs no other file and no network."""
    panels = report.panels()
    script, drawings = _drawn(panels)
    parts = {
        "BOKEH": bokeh_script() if script else "",
        "SCRIPT": script,
        "PAGE_SCRIPT": page_file("page.js"),
        "LINKS": links(each for each, _ in panels),
        "SECTIONS": "\n".join(
            section_html(each, panel, drawings.get(each.name, ())) for each, panel in panels
        ),
    }
    return filled_page(report, parts)


def filled_page(report: ReportContents, parts: dict[str, str]) -> str:
    """Return the page's template with these parts and those that every page has."""
    parts = {
        "TITLE": html.escape(report.title),
        "STYLE": page_file("page.css"),
        "HEAD": "<br>".join(html.escape(each) for each in report.head),
        "SWITCH": "" if report.has_pruned else "hidden",
        "SHOWN": str(report.first_shown),
        "ONLY": "checked" if report.first_shown is Shown.COMPLETE_ONLY else "",
        "WITH": "checked" if report.first_shown is Shown.WITH_PRUNED else "",
        **parts,
    }
    # One pass: what a part contains is never replaced.
    pieces = page_file("page.html").split("$$")
    return "".join(parts[p] if i % 2 else p for i, p in enumerate(pieces))


def links(shown: Iterable[Section]) -> str:
    """Return links to the sections of a page."""
    return " ".join(f'<a href="#{each.name}">{html.escape(each.title)}</a>' for each in shown)


def sections(trials: StudyTrials, setup: Setup, now: float) -> list[Section]:
    """Return the sections of the report."""

    def of_values(figure: Callable[[StudyTrials], Panel | None]) -> Callable[[], Panel | None]:
        return lambda: figure(trials) if trials.of(Shown.WITH_PRUNED) else None

    everything = Follows.EVERYTHING
    search, space, run = search_figures, space_figures, run_figures
    return [
        Section("best", "Best trial", partial(winner, trials)),
        Section("running", "Running", partial(run.running, trials, now=now), everything),
        Section("front", "The Pareto front", of_values(search.front)),
        Section("history", "Values", of_values(search.history)),
        Section("curves", "Learning curves", of_values(search.curves)),
        Section("importance", "Importance", of_values(search.importance)),
        Section("slices", "One hyperparameter at a time", of_values(space.slices)),
        Section("contour", "Two numbers at a time", of_values(space.contour)),
        Section("parallel", "All configurations", of_values(space.parallel)),
        Section("stopping", "Early stopping", partial(search.stopping, trials)),
        Section("timeline", "Workers", partial(run.timeline, trials, now=now), everything),
        Section("costs", "Costs", partial(run.costs, trials, now=now), everything),
        Section("failures", "Failures", partial(run.failures, trials)),
        Section("scaling", "Scaling", setup.scaling),
        Section("setup", "What was asked", partial(what_was_asked, trials, setup), everything),
        Section("trials", "All trials", partial(run.all_trials, trials), everything),
    ]


def winner(trials: StudyTrials) -> Panel:
    """Return the best trial, its configuration and its model."""
    view = trials.view
    best = view.best
    if best is None:
        return Panel(nothing_complete(view))
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
    words = best_line(view, best)
    if (others_on_front := len(view.front) - 1) > 0:
        words += (
            f". The best in {trials.metric} of the Pareto front, which has "
            f"{text.plural(others_on_front, 'other trial')}."
        )
    return Panel(words, tables=tables, is_folded=False)


def what_was_asked(trials: StudyTrials, setup: Setup) -> Panel:
    """Return how the study was started, and its search space."""
    ranges = [
        (text.clean(p.name), p.bounds, " and ".join(map(str, p.conditions)) or text.NOTHING)
        for p in trials.space
    ]
    return Panel(
        f"Start the same study again: {setup.command}",
        tables=[
            Table(("", ""), [(name, value) for name, value in setup.facts]),
            Table(("hyperparameter", "range", "only if"), ranges),
            *([_requests(setup.requests)] if setup.requests else []),
        ],
        is_folded=False,
    )


def _requests(requests: Sequence[UserRequested]) -> Table:
    rows = []
    for each in requests:
        what = [str(each.action) if each.trial is None else f"stop trial {each.trial}"]
        what += [" ".join(text.assignments(added.params)) for added in each.added]
        answer = f"refused: {text.clean(each.refused)}" if each.refused else "done"
        rows.append((text.moment(each.at), text.clean(each.by), "\n".join(what), answer))
    return Table(("asked while it ran", "by", "what", "answer"), rows)


def head_lines(view: StudyView, now: float) -> list[str]:
    """Return the lines below the title: the search, the progress, the state and the time."""
    state = "running" if view.master is not None else state_without_master(view)
    if view.master is not None and view.paused_by:
        state = f"paused by {text.clean(view.paused_by)}: no trial starts"
    return [
        f"{view.search} search for {', '.join(map(str, view.goals.objectives))}",
        f"{view.progress}: {view.counts_text(of=view.all_trials)}",
        state,
        *(f"{label}: {words}" for label, words in note_lines(view)),
        f"written {time.strftime('%Y-%m-%d %H:%M', time.localtime(now))}",
    ]


def _drawn(panels: Sequence[tuple[Section, Panel]]) -> tuple[str, dict[str, Sequence[str]]]:
    """Return the script that draws all figures, and the places for those of each panel."""
    figures = [figure for _, panel in panels for figure in panel.figures]
    if not figures:
        return "", {}
    from bokeh.embed import components

    script, places = components(figures)
    left = iter(places)
    return script, {each.name: [next(left) for _ in panel.figures] for each, panel in panels}


def bokeh_script() -> str:
    """Return Bokeh's own script, without what no figure uses."""
    from bokeh.resources import Resources

    script: str = Resources(mode="inline", components=["bokeh"]).render_js()
    return script


def section_html(
    of: Section, panel: Panel, drawn: Sequence[str], *, has_tables: bool = True
) -> str:
    """Return a section of a page, with the places of its figures as HTML."""
    label = html.escape(f"{of.title}. {panel.words}")
    figures = "".join(
        f'<div class="figure" role="img" aria-label="{label}">{each}</div>' for each in drawn
    )
    several = " several" if len(drawn) > 1 else ""
    tables = tables_of(panel) if has_tables else ""
    if panel.tables and panel.is_folded:
        tables = f"<details><summary>As a table</summary>{tables}</details>"
    elif tables:
        tables = f'<div class="tables">{tables}</div>'
    return (
        f'<section id="{of.name}"><h2>{html.escape(of.title)}</h2>'
        f"<p>{html.escape(panel.words)}</p>"
        f'<div class="figures{several}">{figures}</div>{tables}</section>'
    )


def tables_of(panel: Panel, *, most_rows: int | None = None) -> str:
    """Return the tables of a section.

    Args:
        panel: What it shows.
        most_rows: How many rows of each table are included, the last ones; None for all.
    """
    return "".join(_table(each, most_rows) for each in panel.tables)


def _table(table: Table, most_rows: int | None) -> str:
    head = "".join(f'<th scope="col">{html.escape(each)}</th>' for each in table.columns)
    head = f"<thead><tr>{head}</tr></thead>" if any(table.columns) else ""
    all_rows = len(table.rows)
    shown = table.rows if most_rows is None else table.rows[-most_rows:]
    rows = "".join(f"<tr>{''.join(_cell(each) for each in row)}</tr>" for row in shown)
    note = "" if len(shown) == all_rows else f"<p>The last {len(shown)} of {all_rows} rows.</p>"
    return (
        f'{note}<div class="scroll {table.shown}" tabindex="0"><table>{head}'
        f"<tbody>{rows}</tbody></table></div>"
    )


def _cell(words: str) -> str:
    if "\n" in words:
        return f"<td><pre>{html.escape(words)}</pre></td>"
    return f"<td>{html.escape(words)}</td>"


def page_file(name: str) -> str:
    """Return a file of this folder that is a part of every page."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
