"""The report in short as Markdown, for pull requests and notes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ... import text
from ..results.notes import note_lines
from ..results.trials import order_text, ranked
from .panel import Panel, Section, Table
from .report import Setup, answers_of, head_lines, sections, winner
from .run_figures import OUTPUT, configurations
from .trials import StudyTrials

_BEST = 10
_SECTIONS = (
    *("best", "best-trials", "importance", "stopping", "costs", "failures", "scaling", "setup"),
)


def report_markdown(trials: StudyTrials, setup: Setup, *, now: float) -> str:
    """Return the best trials, what matters, the costs, and what was asked, as Markdown."""
    view = trials.view
    known = {section.name: section for section in sections(trials, setup, now)}
    known["best"] = Section("best", known["best"].title, lambda: winner(trials))
    known["best-trials"] = Section("best-trials", "Best trials", lambda: _best(trials, now))
    if not trials.has_order:
        del known["importance"]
    panels = [(each.title, each.make()) for name in _SECTIONS if (each := known.get(name))]
    *head, written = head_lines(view, now)
    head += [each.sentence for each in answers_of(trials, now)]
    head += [f"{label}: {words}" for label, words in note_lines(view)]
    return page(view.name, [*head, written], panels)


def page(title: str, head: Sequence[str], panels: Iterable[tuple[str, Panel | None]]) -> str:
    """Return a page of sections, by their titles, as Markdown.

    Sections that are None are left out, and so are figures and the output of programs.
    """
    parts = [f"# {escaped(title)}", "<!-- made by hptune -->", "  \n".join(map(escaped, head))]
    for heading, panel in panels:
        if panel is not None:
            parts += [f"## {escaped(heading)}", escaped(panel.words)]
            parts += map(_table, panel.tables)
    return "\n\n".join(part for part in parts if part) + "\n"


def _best(trials: StudyTrials, now: float) -> Panel | None:
    """Return the table of the best trials; None if none has a value."""
    view = trials.view
    known = [trial for trial in ranked(view) if trial.values][:_BEST]
    if not known:
        return None
    words = [f"The best {len(known)} of {text.plural(len(view.trials), 'trial')}."]
    words.append(order_text(view, known))
    return Panel(" ".join(filter(None, words)), tables=[configurations(view, known, now=now)])


def _table(table: Table) -> str:
    kept = [i for i, name in enumerate(table.columns) if name != OUTPUT]
    rows = [[cells[i] for i in kept] for cells in (table.columns, *table.rows)]
    head, *others = map(_row, rows)
    return "\n".join([head, "|---" * len(kept) + "|", *others])


def _row(cells: Sequence[str]) -> str:
    lines = ("<br>".join(escaped(cell).splitlines()) for cell in cells)
    return f"| {' | '.join(lines)} |"


def escaped(words: str) -> str:
    r"""Return a text without what Markdown or HTML would take for markup.

    >>> print(escaped("a|b <i> *c* snake_case"))
    a\|b &lt;i> \*c\* snake_case
    """
    return re.sub(r"([\\|*`\[\]])", r"\\\1", words.replace("&", "&amp;").replace("<", "&lt;"))
