"""The report as one page of HTML."""

from __future__ import annotations

import html
import itertools
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import resources
from typing import Any

from ... import text
from ...core.messages import UserRequested
from ...core.space.space import SearchSpace
from ...core.trial import Trial
from ...core.user_requests import UserAction
from ..results.answers import answers
from ..results.best import best_line, model_lines, nothing_complete
from ..results.evidence import Answer
from ..results.summary import idle_text, resume_command, state_without_master
from ..results.trials import configurations, order_text
from ..results.view import StudyView
from . import run_figures, search_figures
from .headline import headline
from .page_data import TrialRows, facts_of, script_json
from .panel import Figure, Follows, Panel, Section, Table
from .trials import Shown, StudyTrials

FIGURE_SCRIPTS = ("charts.js", "trial_sets.js", "figures.js")
"""The scripts that draw figures; each uses those before it."""
_OF_TRIALS = ("trial", run_figures.WHICH)
"""Columns with the numbers of trials, which lead to their pages."""
_NEXT_BEST, _BEHIND_CHARACTERS = 5, 100
_PAGE_SCRIPTS = ("trial_table.js", "page.js")


@dataclass(frozen=True, slots=True)
class Setup:
    """How a study was started.

    Attributes:
        command: The command that starts the same study again.
        facts: Further facts, such as versions and the seed, by name.
        run_one: The command that runs one trial, without its configuration; empty if there is none.
        scaling: Returns how the model scales over devices; None where that was not measured.
        requests: What users asked for while it ran.
    """

    command: str
    facts: Sequence[tuple[str, str]]
    run_one: str = ""
    scaling: Callable[[], Panel | None] = lambda: None
    requests: Sequence[UserRequested] = ()


@dataclass(frozen=True, slots=True)
class ReportContents:
    """The contents of a report.

    Attributes:
        title: The page's title.
        head: Lines about the study as a whole.
        sections: The sections, some of which may have nothing to show.
        headline: The study in large figures, as HTML.
        facts: What the page's scripts know of the study; empty if there is none.
        rows: What they know of each trial, by its number.
        is_running: Whether the study runs.
        paused_by: The user who paused it; empty if it is not paused.
        space: Its search space.
        mark: A text that changes whenever a trial's value or state does.
        written: When it was made, in words.
        resume_command: The command that continues the study when it does not run.
    """

    title: str
    head: Sequence[str]
    sections: Sequence[Section]
    headline: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    rows: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    is_running: bool = False
    paused_by: str = ""
    space: SearchSpace = field(default_factory=SearchSpace)
    mark: str = ""
    written: str = ""
    resume_command: str = ""

    def data(self) -> dict[str, Any]:
        """Return what the page's scripts know."""
        return {**self.facts, "trials": list(self.rows.values())}


def make_report(
    trials: StudyTrials, setup: Setup, *, now: float, rows: TrialRows | None = None
) -> ReportContents:
    """Return the contents of the report of a study; `rows` has those of an earlier one."""
    view = trials.view
    seen = now if view.is_live else run_figures.last_seen(trials)
    search, _, state, written = head_lines(view, now)  # the headline has the progress
    shown = sections(trials, setup, now)
    titles = {each.name: html.escape(each.title) for each in shown}
    return ReportContents(
        f"hptune: {view.name}",
        [search, state],
        shown,
        headline(view, answers_of(trials, now), titles, now=now),
        facts_of(trials, now=seen, run_one=setup.run_one),
        (rows or TrialRows()).of(trials),
        view.is_run,
        view.paused_by,
        trials.space,
        trials.mark,
        written,
        resume_command(view),
    )


def page_of(report: ReportContents) -> str:
    """Return a report as one page that needs no other file and no network."""
    panels = [
        (section, panel) for section in report.sections if (panel := section.make()) is not None
    ]
    parts = {
        "LINKS": links(each for each, _ in panels),
        "SECTIONS": "\n".join(section_html(each, panel) for each, panel in panels),
        "DATA": script_json(report.data()) if report.facts else "",
        "HEAD": " · ".join(filter(None, (head_html(report), report.written))),
    }
    return filled_page(report, parts)


def filled_page(
    report: ReportContents, parts: Mapping[str, str], scripts: Sequence[str] = ()
) -> str:
    """Return the page's template with these parts and those that every page has."""
    names = [*FIGURE_SCRIPTS, *_PAGE_SCRIPTS, *scripts]
    parts = {
        "TITLE": html.escape(report.title),
        "STYLE": page_file("figures.css") + page_file("page.css"),
        "HEAD": head_html(report),
        "TILES": report.headline,
        "HIDDEN": "" if report.facts else "hidden",
        "HOME": "",
        "CONTROLS": "",
        "SCRIPTS": scripts_html(names),
        **parts,
    }
    return filled("page.html", parts)


def filled(name: str, parts: Mapping[str, str]) -> str:
    """Return a file of this folder with its `$$PARTS$$` filled in."""
    # One pass: what a part contains is never replaced.
    pieces = page_file(name).split("$$")
    return "".join(parts[p] if i % 2 else p for i, p in enumerate(pieces))


def scripts_html(names: Iterable[str]) -> str:
    """Return script elements with files of this folder."""
    return "\n".join(f"<script>\n{page_file(name)}</script>" for name in names)


def head_html(report: ReportContents) -> str:
    """Return the lines about the study as a whole, as HTML."""
    return " · ".join(html.escape(each) for each in report.head if each)


def links(shown: Iterable[Section]) -> str:
    """Return links to the sections of a page."""
    return " ".join(f'<a href="#{each.name}">{html.escape(each.title)}</a>' for each in shown)


def sections(trials: StudyTrials, setup: Setup, now: float) -> list[Section]:
    """Return the sections of the report."""
    everything = Follows.EVERYTHING
    search, run = search_figures, run_figures
    best = "Best trial"
    if len(trials.view.goals.objectives) > 1:
        best = f"Best trial in {trials.metric}"

    def made(*named: Any, follows: Follows = Follows.TRIALS, is_wide: bool = False) -> Section:
        name, title, make = named
        return Section(name, title, make, follows, is_wide)

    return [
        made("best", best, partial(winner, trials, others=_NEXT_BEST)),
        made("history", "Values", partial(search.history, trials)),
        made("running", "Running", partial(run.running, trials, now=now), follows=everything,
             is_wide=True),
        made("trials", "All trials", partial(all_trials, trials), is_wide=True),
        made("front", "Pareto front", partial(search.front, trials)),
        made("curves", "Learning curves", partial(search.curves, trials), follows=everything),
        made("importance", "Importance", partial(search.importance, trials)),
        made("parallel", "All configurations", partial(search.parallel, trials), is_wide=True),
        made("slices", "Each hyperparameter", partial(search.slices, trials),
             is_wide=True),
        made("contour", "Two hyperparameters", partial(search.contour, trials)),
        made("stopping", "Early stopping", partial(search.stopping, trials)),
        made("costs", "Costs", partial(run.costs, trials, now=now), follows=everything),
        made("failures", "Failures", partial(run.failures, trials), is_wide=True),
        made("timeline", "Workers", partial(run.timeline, trials, now=now), follows=everything,
             is_wide=True),
        made("scaling", "Scaling", setup.scaling, is_wide=True),
        made("setup", "What was asked", partial(what_was_asked, trials, setup),
             follows=everything),
    ]  # fmt: skip


def all_trials(trials: StudyTrials) -> Panel | None:
    """Return the place of the table of all trials; None without a trial."""
    if not trials.view.trials:
        return None
    words = order_text(trials.view, trials.view.trials, when="Sorted by a metric, ")
    return Panel(words, [Figure("table")])


def winner(trials: StudyTrials, *, others: int = 0) -> Panel:
    """Return the best trial, its configuration and its model, and the trials behind it.

    Args:
        trials: The trials.
        others: How many trials behind it are listed; none with several objectives.
    """
    view = trials.view
    best = view.best
    if best is None:
        return Panel(nothing_complete(view))
    tables = [
        Table(
            ("hyperparameter", "value"),
            [
                (text.clean(name), text.param(value))
                for name, value in text.shown_params(best).items()
            ],
        )
    ]
    goals = [goal.metric for goal in view.goals.objectives]
    metrics = [(text.clean(n), text.measured(v)) for n, v in best.metrics.items() if goals != [n]]
    if metrics:
        tables.append(Table(("metric", "value"), metrics))
    if model := model_lines(view, best):
        tables.append(Table(("model",), [("\n".join(model),)]))
    if len(goals) == 1 and (behind := _behind(trials, best, others)):
        tables.append(behind)
    words = best_line(view, best)
    if (others_on_front := len(view.front) - 1) > 0:
        words += (
            f". The best in {trials.metric} of the Pareto front, which has "
            f"{text.plural(others_on_front, 'other trial')}."
        )
    return Panel(words, tables=tables, is_folded=False)


def _behind(trials: StudyTrials, best: Trial, most: int) -> Table | None:
    """Return the next best complete trials, and how they differ; None if there are none."""
    view = trials.view
    complete = [
        each
        for each in configurations(view, states=("complete",))
        if each != best and each.value is not None
    ]
    rows, shown = [], text.shown_params(best)
    for each in complete[:most]:
        others = {k: v for k, v in text.shown_params(each).items() if shown.get(k) != v}
        words = text.shorten(" ".join(text.assignments(others)), _BEHIND_CHARACTERS)
        rows.append((str(each.number), text.measured(each.value), words or "the same"))
    columns = ("trial", trials.metric, "next best, where it differs")
    return Table(columns, rows, name="next") if rows else None


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
            *([Table(("hyperparameter", "range", "only if"), ranges)] if ranges else []),
            *([_requests(setup.requests)] if setup.requests else []),
        ],
        is_folded=False,
    )


def _requests(requests: Sequence[UserRequested]) -> Table:
    rows = []
    for request in requests:
        if request.action is UserAction.TRAIN:
            continue  # there is one for each report
        what = [str(request.action) if request.trial is None else f"stop trial {request.trial}"]
        what += [" ".join(text.assignments(added.params)) for added in request.added]
        answer = f"refused: {text.clean(request.refused)}" if request.refused else "done"
        rows.append((text.moment(request.at), text.clean(request.by), "\n".join(what), answer))
    return Table(("asked while it ran", "by", "what", "answer"), rows)


def head_lines(view: StudyView, now: float) -> list[str]:
    """Return the lines below the title: the search, progress, state and the time."""
    return [
        f"{view.search} search for {', '.join(map(str, view.goals.objectives))}",
        f"{view.progress}: {view.counts_text(of=view.all_trials)}",
        state_without_master(view) if view.master is None else f"running{idle_text(view)}",
        f"written {time.strftime('%Y-%m-%d %H:%M', time.localtime(now))}",
    ]


def answers_of(trials: StudyTrials, now: float) -> list[Answer]:
    """Return what the results say."""
    return answers(trials.view, trials.estimated[Shown.ALL], now=now)


def section_html(of: Section, panel: Panel) -> str:
    """Return a section of a page, with the places of its figures, as HTML."""
    drawn = "".join(map(figure_html, panel.figures))
    several = " several" if len(panel.figures) > 1 else ""
    tables = "".join(map(_table, panel.tables))
    if tables and panel.is_folded:
        tables = f"<details><summary>As a table</summary>{tables}</details>"
    elif tables:
        tables = f'<div class="tables">{tables}</div>'
    words = f"<p>{html.escape(panel.words)}</p>" if panel.words else ""
    wide = ' class="wide"' if of.is_wide else ""
    return (
        f'<section id="{of.name}"{wide}><h2>{html.escape(of.title)}</h2>{words}'
        f'<div class="figures{several}">{drawn}</div>{tables}</section>'
    )


def figure_html(figure: Figure) -> str:
    """Return the place of a figure, with what its script needs, as HTML."""
    given = html.escape(json.dumps([figure.kind, figure.given]))
    return f'<div class="figure" data-figure="{given}"></div>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{html.escape(column)}</th>' for column in table.columns)
    head = f"<thead><tr>{head}</tr></thead>" if any(table.columns) else ""
    rows = "".join(
        f"<tr>{''.join(map(_cell, row, table.columns, itertools.repeat(numbers)))}</tr>"
        for row, numbers in itertools.zip_longest(table.rows, table.trials, fillvalue=())
    )
    kind = " ".join(filter(None, ("scroll", table.name)))
    return f'<div class="{kind}" tabindex="0"><table>{head}<tbody>{rows}</tbody></table></div>'


def _cell(words: str, column: str, trials: Sequence[int]) -> str:
    shown = html.escape(words)
    if column in _OF_TRIALS:
        shown = re.sub(r"(\d+)", r'<a href="#trial-\1">\1</a>', shown)
    if column == run_figures.WHICH and trials:
        numbers = ",".join(map(str, trials))
        shown += f' <button type="button" data-show="{numbers}">Show these</button>'
    return f"<td><pre>{shown}</pre></td>" if "\n" in words else f"<td>{shown}</td>"


def page_file(name: str) -> str:
    """Return a file of this folder that is a part of every page."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
