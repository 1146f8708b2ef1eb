"""The methods of `Study` that plot and report it: figures, one page, or Markdown."""

from __future__ import annotations

import base64
import gzip
import html
import os
import secrets
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
        return self._html(has_script=_carries_script())

    def _html(self, *, has_script: bool) -> str:
        from bokeh.embed import components

        script, places = components(self.figures, wrap_script=False)
        label = html.escape(f"{self._title}. {self._words}")
        columns = "repeat(auto-fit, minmax(20rem, 1fr))" if len(self.figures) > 1 else "1fr"
        name = f"hptune-{secrets.token_hex(6)}"
        loading = _LOADING.replace("$CODE", _bokeh()) if has_script else ""
        waits = "" if has_script else f"<p>{_WAITS}</p>"
        return (
            f'<div id="{name}" role="img" aria-label="{label}" style="display: grid; '
            f'grid-template-columns: {columns}">{waits}{"".join(places)}</div>'
            f"<script>{_COMING}{loading}window.hptuneBokeh.then(() => {{"
            f"document.querySelector('#{name} > p')?.remove();{script}}});</script>"
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
        page = f"<!DOCTYPE html><meta charset=utf-8><body>{self._html(has_script=True)}"
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


# Bokeh's script is in the output of the first figure of a notebook, packed, because Jupyter drops
# the output of a kernel that sends more than 1 MB a second. A browser may show the outputs in
# another order, so the others wait for it. Colab shows each output in a page of its own.
_COMING = """
window.hptuneBokeh ??= window.Bokeh ? Promise.resolve()
  : new Promise(done => { window.hptuneBokehCame = done; });
"""
_LOADING = """
if (!window.Bokeh) window.hptuneBokehLoads ??= (async () => {
  const packed = Uint8Array.from(atob("$CODE"), each => each.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(stream).text();
  document.head.append(script);
  window.hptuneBokehCame();
})();
"""
_WAITS = (
    "This figure is drawn by a script in the output of the notebook's first figure. If that output "
    "is gone, run its cell again, or restart the kernel."
)


@dataclass(slots=True)
class _Carrier:
    """The cell of this kernel's notebook whose output has Bokeh's script, and its execution."""

    cell: str = ""
    execution: int | None = None


_carrier = _Carrier()


def _carries_script() -> bool:
    """Return whether a figure needs Bokeh's script: the first one, and again if its cell runs."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if getattr(shell, "kernel", None) is None or "google.colab" in sys.modules:
        return True
    parent = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = str(parent.get("metadata", {}).get("cellId", ""))
    execution = shell.execution_count
    is_again = cell != "" and cell == _carrier.cell and execution != _carrier.execution
    if _carrier.execution is not None and not is_again:
        return False
    _carrier.cell, _carrier.execution = cell, execution
    return True


@cache
def _bokeh() -> str:
    """Return Bokeh's own script, packed."""
    from bokeh.resources import Resources

    code = "\n".join(Resources(mode="inline", components=["bokeh"]).js_raw)
    return base64.b64encode(gzip.compress(code.encode(), mtime=0)).decode()
