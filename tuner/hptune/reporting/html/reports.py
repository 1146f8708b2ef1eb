"""The methods of `Study` that plot and report it: figures, one page, or Markdown."""

from __future__ import annotations

import html
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from ...core.kinds import enumerated
from ...errors import StudyError, UsageError
from ...storage.output_files import write_beside_study, write_output
from ...text import path as shown_path
from ...text import without_controls

if TYPE_CHECKING:
    from ...core.trial import Goal
    from ...storage.ledger import FollowedReports
    from .page_data import TrialRows
    from .panel import Panel
    from .report import ReportContents, Setup
    from .trials import Shown, StudyTrials


_Found = TypeVar("_Found")

_MARKS = {
    "report.html": b'<meta name="generator" content="hptune">',
    "report.md": b"<!-- made by hptune -->",
    "methods.md": b"<!-- made by hptune -->",
}
"""What the beginning of a report has; a file that has not is not replaced unasked."""

_FILES = {"html": "report.html", "md": "report.md", "methods": "methods.md"}
"""The file of each format."""
_ENDINGS = {".html": "html", ".htm": "html", ".md": "md"}
_PICTURES = ("png", "svg", "pdf")


class WrittenReport:
    """A report that was written.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Wrote {shown_path(self.path)}"

    def _repr_html_(self) -> str:
        link = html.escape(os.path.relpath(self.path))
        return f'<p><a href="{link}" target="_blank">{link}</a></p>'


class Plot:
    """A figure of the report. It shows itself in a notebook.

    Its picture, a vector graphic (SVG), is saved by the button in its corner.
    """

    def __init__(self, title: str, panel: Panel, data: Mapping[str, object], shown: Shown) -> None:
        self._title, self._panel, self._data, self._shown = title, panel, data, shown

    def __repr__(self) -> str:
        return f"Plot({self._title!r})"

    def _repr_html_(self) -> str:
        from .page_data import script_json
        from .report import FIGURE_SCRIPTS, figure_html, page_file

        places = "".join(map(figure_html, self._panel.figures))
        parts = [page_file(each) for each in (*FIGURE_SCRIPTS, "plot.js")]
        given = html.escape(script_json({"data": self._data, "shown": str(self._shown)}))
        return (
            f"<style>{page_file('figures.css')}</style>"
            f'<div class="hptune-plot" data-study="{given}">{places}</div>'
            f"<script>{''.join(parts)}</script>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure to an HTML file, which needs no network.

        Raises:
            UsageError: The ending is not .html, or the file cannot be written.
        """
        file = Path(path)
        if file.suffix.lower() != ".html":
            raise UsageError(
                f"{file} ends with {file.suffix or 'nothing'}; a figure is written as .html, and "
                "the button in its corner saves it as SVG"
            )
        page = f"<!DOCTYPE html><meta charset=utf-8><body>{self._repr_html_()}"
        write_output(file, page.encode())


class Reports(ABC):
    """The figures and the report of a study; a base class of `Study`.

    Most take `complete_only`: whether to leave out the trials that were pruned, which are
    shown at their last step. A figure raises a StudyError if the study has too few trials for it.
    """

    @property
    @abstractmethod
    def directory(self) -> Path:
        """The study's directory."""

    @property
    @abstractmethod
    def goal(self) -> Goal:
        """The first objective, with its direction."""

    @abstractmethod
    def study_trials(self, known: FollowedReports | None = None) -> StudyTrials:
        """Return the trials as the figures need them.

        Args:
            known: The reports of the first objective that were read before; None to read all.
        """

    @abstractmethod
    def read(self, what: Callable[[Self], _Found]) -> _Found:
        """Return what a function reads, of one state of the study."""

    def plot_history(self, *, complete_only: bool = False) -> Plot:
        """Return the value of each trial, and the best one so far."""
        return self._plot("history", "no trial has a value yet", complete_only=complete_only)

    def plot_curves(self, *, complete_only: bool = False) -> Plot:
        """Return the learning curves."""
        none = "no trial has reported more than one step"
        return self._plot("curves", none, complete_only=complete_only)

    def plot_importance(self, *, complete_only: bool = False) -> Plot:
        """Return the importance of the hyperparameters, with 80 % intervals."""
        from ..results.importance import MIN_TRIALS

        none = f"at least {MIN_TRIALS} trials with a value are needed to estimate importance"
        return self._plot("importance", none, complete_only=complete_only)

    def plot_parallel(self, *, complete_only: bool = False) -> Plot:
        """Return all configurations as lines across one axis for each hyperparameter."""
        none = "two hyperparameters and a trial with a value are needed"
        return self._plot("parallel", none, complete_only=complete_only)

    def plot_slices(self, *, complete_only: bool = False) -> Plot:
        """Return the values over each of six hyperparameters, the most important first."""
        none = "a hyperparameter and a trial with a value are needed"
        return self._plot("slices", none, complete_only=complete_only)

    def plot_contour(self, *, complete_only: bool = False) -> Plot:
        """Return the values over the first two numbers, the most important first, smoothed."""
        none = "two numbers among the hyperparameters and ten complete trials are needed"
        return self._plot("contour", none, complete_only=complete_only)

    def plot_front(self) -> Plot:
        """Return the first two objectives against each other, with the Pareto front."""
        none = "two objectives and a complete trial are needed"
        return self._plot("front", none)

    def plot_timeline(self) -> Plot:
        """Return which worker trained which trial, and when."""
        return self._plot("timeline", "no trial has started yet")

    @abstractmethod
    def setup(self) -> Setup:
        """Return how the study was started."""

    def report_html(self) -> str:
        """Return the report: one HTML page that needs no other file and no network."""
        from .report import page_of

        return page_of(self.report_contents())

    def report(
        self, path: str | os.PathLike[str] | None = None, *, file_format: str = ""
    ) -> WrittenReport:
        """Write the report, as the study stands now, into a file; a notebook shows a link to it.

        Args:
            path: The file; None for `report.html`, `report.md` or `methods.md` in the study's
                directory.
            file_format: "html"; "md" for Markdown; "methods" for the paragraph of a paper on how
                the best configuration was found; empty for that of the file's ending.

        Raises:
            UsageError: The file cannot be written, is another one than a report, or has the ending
                of another format.
        """
        name = _FILES[_report_format(file_format, Path(path or ""))]
        file = self.directory / name if path is None else Path(path)
        make = {"report.md": self.report_markdown, "methods.md": self._methods}
        page = make.get(name, self.report_html)()
        content = without_controls(page).encode()  # a study's names may be anybody's
        if path is None:
            write_beside_study(file, content, mark=_MARKS[name])
        else:
            write_output(file, content)
        return WrittenReport(file)

    def report_contents(
        self,
        *,
        known: FollowedReports | None = None,
        rows: TrialRows | None = None,
    ) -> ReportContents:
        """Return the contents of the report: figures, tables and words, as the study stands now.

        With `known`, only later reports of the first objective are read; `rows` has the trials of
        an earlier report.
        """
        from .report import make_report

        trials, setup = self._contents(known)
        return make_report(trials, setup, now=time.time(), rows=rows)

    def _contents(self, known: FollowedReports | None = None) -> tuple[StudyTrials, Setup]:
        return self.read(lambda now: (now.study_trials(known), now.setup()))

    def report_markdown(self) -> str:
        """Return the report in short as Markdown: the best trials, what matters, what was asked."""
        from .markdown import report_markdown

        return report_markdown(*self._contents(), now=time.time())

    def _methods(self) -> str:
        from .methods import methods_text

        trials, setup = self._contents()
        mark = _MARKS["methods.md"].decode()
        return f"{mark}\n\n{methods_text(trials.view, dict(setup.facts), now=time.time())}"

    def _plot(self, name: str, none: str, *, complete_only: bool = False) -> Plot:
        """Return the figures of a section of the report; `none` says when there are none."""
        from .page_data import TrialRows, facts_of
        from .report import sections
        from .trials import Shown

        (trials, setup), now = self._contents(), time.time()
        shown = Shown.COMPLETE if complete_only else Shown.ALL
        found = {section.name: section for section in sections(trials, setup, now)}[name]
        panel = found.make()
        if panel is None or not panel.figures or (complete_only and not trials.of(shown)):
            raise StudyError(f"there is nothing to plot: {none}")
        rows = TrialRows().of(trials).values()
        keeps = {"curves": "c", "timeline": "a"}.get(name, "")
        kept = [{k: v for k, v in row.items() if k not in "ac" or k == keeps} for row in rows]
        return Plot(found.title, panel, {**facts_of(trials, now=now), "trials": kept}, shown)


def _report_format(given: str, output: Path) -> str:
    ending = output.suffix.lower()
    meant = _ENDINGS.get(ending, "html")
    picture = next((each for each in _PICTURES if each == given or f".{each}" == ending), "")
    if picture:
        raise UsageError(
            f"{picture} is asked for, but a report is html, md or methods; the button of each "
            "figure in the HTML page saves that figure as an SVG file"
        )
    if given and given not in _FILES:
        raise UsageError(f"the format is {given}; allowed are {enumerated(*_FILES)}")
    if given and ending in _ENDINGS and not _FILES[given].endswith(meant):
        raise UsageError(f"the format is {given}, but the ending of {output} is {ending}")
    return given or meant
