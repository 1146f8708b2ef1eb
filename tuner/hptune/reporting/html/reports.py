"""The methods of `Study` that plot and report it: figures, one page, or Markdown."""

from __future__ import annotations

import base64
import gzip
import html
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import StudyError, UsageError, check_installed
from ...storage.output_files import write_output
from .panel import Panel, Shown, begin_with
from .trials import StudyTrials

if TYPE_CHECKING:
    from ...core.attempt import ReportedValue
    from ...core.trial import Goal
    from .report import ReportContents, Setup


class Plot:
    """A figure of the report. It shows itself in a notebook.

    Attributes:
        figures: The Bokeh figures, to change or to lay out.
    """

    def __init__(self, title: str, panel: Panel) -> None:
        self._title, self._words = title, panel.words
        self.figures = list(panel.figures)

    def __repr__(self) -> str:
        return f"Plot({self._title!r})"

    def _repr_html_(self) -> str:
        from bokeh.embed import components

        script, places = components(self.figures, wrap_script=False)
        label = html.escape(f"{self._title}. {self._words}")
        columns = "repeat(auto-fit, minmax(20rem, 1fr))" if len(self.figures) > 1 else "1fr"
        return (
            f'<div role="img" aria-label="{label}" style="display: grid; '
            f'grid-template-columns: {columns}">{"".join(places)}</div>'
            f"<script>{_LOADING.replace('$CODE', _bokeh())}.then(() => {{{script}}});</script>"
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
                "its save tool gives a PNG file"
            )
        page = f"<!DOCTYPE html><meta charset=utf-8><body>{self._repr_html_()}"
        write_output(file, page.encode())


class Reports(ABC):
    """The figures and the report of a study; a base class of `Study`.

    Most take `complete_only`: whether to leave out the trials that were stopped early, which are
    shown at their last step. None, the default, leaves them out if five or more are complete. The
    HTML page begins with this choice, and Markdown has the importance for it.

    Each raises a MissingPackageError if Bokeh is not installed. A figure raises a StudyError if the
    study has too few trials for it.
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
    def study_trials(self, known: Sequence[ReportedValue] | None = None) -> StudyTrials:
        """Return the trials as the figures need them.

        Args:
            known: The reports of the first objective; None to read all reports.
        """

    def plot_history(self, *, complete_only: bool | None = None) -> Plot:
        """Return the value of each trial, and the best one so far."""
        return self._plot("history", "no trial has a value yet", complete_only=complete_only)

    def plot_curves(self, *, complete_only: bool | None = None) -> Plot:
        """Return the learning curves."""
        none = "no trial has reported more than one step"
        return self._plot("curves", none, complete_only=complete_only)

    def plot_importance(self, *, complete_only: bool | None = None) -> Plot:
        """Return the importance of the hyperparameters, with 80 % intervals."""
        from ..results.importance import MIN_TRIALS

        none = f"at least {MIN_TRIALS} trials with a value are needed to estimate importance"
        return self._plot("importance", none, complete_only=complete_only)

    def plot_parallel(self, *, complete_only: bool | None = None) -> Plot:
        """Return all configurations as lines across one axis for each hyperparameter."""
        none = "two hyperparameters and a trial with a value are needed"
        return self._plot("parallel", none, complete_only=complete_only)

    def plot_slices(self, *, complete_only: bool | None = None) -> Plot:
        """Return the values over each of six hyperparameters, the most important first."""
        none = "a hyperparameter and a trial with a value are needed"
        return self._plot("slices", none, complete_only=complete_only)

    def plot_contour(self, *, complete_only: bool | None = None) -> Plot:
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

    def report_html(self, *, complete_only: bool | None = None) -> str:
        """Return the report: one HTML page that needs no other file and no network."""
        from .report import page_of

        return page_of(self.report(complete_only=complete_only))

    def report(
        self,
        *,
        complete_only: bool | None = None,
        known: Sequence[ReportedValue] | None = None,
    ) -> ReportContents:
        """Return the contents of the report: figures, tables and words, as the study stands now.

        With `known`, the reports of the first objective, the reports are not read.
        """
        check_installed("bokeh", "the report")
        from .report import make_report

        trials = self.study_trials(known)
        shown = shown_with(trials, complete_only=complete_only)
        return make_report(trials, self.setup(), now=time.time(), shown=shown)

    def report_markdown(self, *, complete_only: bool | None = None) -> str:
        """Return the report in short as Markdown: the best trials, what matters, what was asked."""
        check_installed("bokeh", "the report")
        from .markdown import report_markdown

        trials = self.study_trials()
        shown = shown_with(trials, complete_only=complete_only)
        return report_markdown(trials, self.setup(), shown=shown, now=time.time())

    def _plot(self, name: str, none: str, *, complete_only: bool | None = None) -> Plot:
        """Return the figures of a section of the report; `none` says when there are none."""
        check_installed("bokeh", "a figure")
        from .report import sections

        trials = self.study_trials()
        shown = shown_with(trials, complete_only=complete_only)
        found = {each.name: each for each in sections(trials, self.setup(), time.time())}[name]
        has_trials = bool(trials.of(shown)) or complete_only is None
        panel = found.make() if has_trials else None
        if panel is None or not panel.has_marks:
            raise StudyError(f"there is nothing to plot: {none}")
        begin_with(panel, shown)
        return Plot(found.title, panel)


def shown_with(trials: StudyTrials, *, complete_only: bool | None) -> Shown:
    """Return the choice of trials that `complete_only` means."""
    if complete_only is None:
        return trials.first_shown
    return Shown.COMPLETE_ONLY if complete_only else Shown.WITH_PRUNED


# A cell's output has all that it needs, and is shown alike in Jupyter, VS Code and Colab. It is
# packed, because Jupyter drops the output of a kernel that sends more than 1 MB a second.
_LOADING = """
(window.hptuneBokeh ??= window.Bokeh ? Promise.resolve() : (async () => {
  const packed = Uint8Array.from(atob("$CODE"), each => each.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
})())"""


@cache
def _bokeh() -> str:
    """Return Bokeh's own script, packed."""
    from bokeh.resources import Resources

    code = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    return base64.b64encode(gzip.compress(code.encode(), mtime=0)).decode()
