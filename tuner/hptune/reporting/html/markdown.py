"""The report in short as Markdown, for pull requests and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ... import text
from ..results.trials import ranked, trial_cells, trial_columns
from . import run_figures, search_figures
from .panel import Panel, Shown, Table
from .report import Setup, head_lines, what_was_asked, winner
from .trials import StudyTrials, described

_BEST = 10


def report_markdown(trials: StudyTrials, setup: Setup, *, shown: Shown, now: float) -> str:
    """Return the best trials, what matters, the costs, and what was asked, as Markdown."""
    view = trials.view
    title = text.clean(view.directory.rstrip("/").rpartition("/")[2])
    panels: Iterable[Panel | None] = (
        winner(trials),
        _best(trials),
        search_figures.importance(trials) if trials.importances[shown] else None,
        search_figures.stopping(trials),
        run_figures.costs(trials, now=now),
        _without_tracebacks(run_figures.failures(trials)),
        setup.scaling(has_figures=False),
        what_was_asked(trials, setup),
    )
    return page(title, head_lines(view, now), panels, shown=shown)


def page(
    title: str,
    head: Sequence[str],
    panels: Iterable[Panel | None],
    *,
    shown: Shown = Shown.ALWAYS,
) -> str:
    """Return a page of sections, without those that are None and without figures, as Markdown."""
    parts = [f"# {_escaped(title)}", "<!-- made by hptune -->", "  \n".join(map(_escaped, head))]
    for panel in panels:
        if panel is not None:
            parts += [f"## {_escaped(panel.title)}", _escaped(panel.words)]
            parts += [_table(each) for each in panel.tables if each.shown in (Shown.ALWAYS, shown)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _best(trials: StudyTrials) -> Panel | None:
    """Return the table of the best trials; None if none has a value."""
    view = trials.view
    known = [trial for trial in ranked(view) if trial.values][:_BEST]
    if not known:
        return None
    rows = [(*trial_cells(view, trial), described(trial)) for trial in known]
    columns = (*trial_columns(view), "configuration")
    words = f"The best {len(known)} of {text.plural(len(view.trials), 'trial')}."
    return Panel("best-trials", "Best trials", words, tables=[Table(columns, rows)])


def _without_tracebacks(panel: Panel | None) -> Panel | None:
    if panel is None:
        return None
    tables = [
        Table(each.columns[:-1], [row[:-1] for row in each.rows], each.shown)
        for each in panel.tables
    ]
    return Panel(panel.name, panel.title, panel.words, tables=tables)


def _table(table: Table) -> str:
    lines = [_row(table.columns), "|---" * len(table.columns) + "|"]
    return "\n".join([*lines, *map(_row, table.rows)])


def _row(cells: Sequence[str]) -> str:
    lines = ("<br>".join(_escaped(each).splitlines()) for each in cells)
    return f"| {' | '.join(lines)} |"


def _escaped(words: str) -> str:
    r"""Return a text without what Markdown or HTML would take for markup.

    >>> print(_escaped("a|b <i> *c* snake_case"))
    a\|b &lt;i> \*c\* snake_case
    """
    return re.sub(r"([\\|*`\[\]])", r"\\\1", words.replace("&", "&amp;").replace("<", "&lt;"))
