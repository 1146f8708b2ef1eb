"""The report's figures one by one, for notebooks and scripts."""

from __future__ import annotations

import base64
import gzip
import html
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from ...core.trial import ReportedValue
from ...errors import StudyError, UsageError, check_installed
from .panel import Panel, Shown, begin_with
from .trials import StudyTrials


class Plot:
    """A figure of the report. It shows itself in a notebook.

    Attributes:
        figures: The Bokeh figures, to change or to lay out.
    """

    def __init__(self, panel: Panel) -> None:
        self._panel = panel
        self.figures = list(panel.figures)

    def __repr__(self) -> str:
        return f"Plot({self._panel.title!r})"

    def _repr_html_(self) -> str:
        from bokeh.embed import components

        script, places = components(self.figures, wrap_script=False)
        label = html.escape(f"{self._panel.title}. {self._panel.words}")
        columns = "repeat(auto-fit, minmax(20rem, 1fr))" if len(self.figures) > 1 else "1fr"
        return (
            f'<div role="img" aria-label="{label}" style="display: grid; '
            f'grid-template-columns: {columns}">{"".join(places)}</div>'
            f"<script>{_LOADING.replace('$CODE', _bokeh())}.then(() => {{{script}}});</script>"
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the figure to a file: .html, which needs no network, .png, .svg or .pdf.

        Of several figures, such as slices, all but the first get a number in their names.

        Raises:
            MissingPackageError: matplotlib is not installed, which all but .html need.
            UsageError: The ending is another one, or the file cannot be written.
        """
        from .pictures import FORMATS, save_figures

        file = Path(path)
        kind = file.suffix.lower().removeprefix(".")
        if kind != "html" and kind not in FORMATS:
            raise UsageError(
                f"{file} ends with {file.suffix or 'nothing'}; allowed are .html and "
                f"{', '.join(f'.{each}' for each in FORMATS)}"
            )
        try:
            if kind == "html":
                page = f"<!DOCTYPE html><meta charset=utf-8><body>{self._repr_html_()}"
                file.write_text(page, encoding="utf-8")
            else:
                save_figures(self.figures, file)
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}") from error


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


class Plots(ABC):
    """The methods of `Study` that plot it: the figures of `hptune report`.

    Each takes `complete_only`: whether to leave out the trials that were stopped early, which are
    shown at their last step. None, the default, leaves them out if five or more are complete.

    Each raises a MissingPackageError if Bokeh is not installed, and a StudyError if the study has
    too few trials for the figure.
    """

    @abstractmethod
    def study_trials(self, known: Sequence[ReportedValue] | None = None) -> StudyTrials:
        """Return the trials as the figures need them.

        Args:
            known: The reports of the first objective; None to read all reports.
        """

    def plot_history(self, *, complete_only: bool | None = None) -> Plot:
        """Return the value of each trial, and the best one so far."""
        from .search_figures import history

        return self._plot(history, "no trial has a value yet", complete_only=complete_only)

    def plot_curves(self, *, complete_only: bool | None = None) -> Plot:
        """Return the learning curves."""
        from .search_figures import curves

        none = "no trial has reported more than one step"
        return self._plot(curves, none, complete_only=complete_only)

    def plot_importance(self, *, complete_only: bool | None = None) -> Plot:
        """Return the importance of the hyperparameters, with 80 % intervals."""
        from ..results.importance import MIN_TRIALS
        from .search_figures import importance

        none = f"at least {MIN_TRIALS} trials with a value are needed to tell what matters"
        return self._plot(importance, none, complete_only=complete_only)

    def plot_parallel(self, *, complete_only: bool | None = None) -> Plot:
        """Return all configurations as lines across one axis for each hyperparameter."""
        from .space_figures import parallel

        none = "two hyperparameters and a trial with a value are needed"
        return self._plot(parallel, none, complete_only=complete_only)

    def plot_slices(self, *, complete_only: bool | None = None) -> Plot:
        """Return the values over each of six hyperparameters, the most important first."""
        from .space_figures import slices

        none = "a hyperparameter and a trial with a value are needed"
        return self._plot(slices, none, complete_only=complete_only)

    def plot_contour(self, *, complete_only: bool | None = None) -> Plot:
        """Return the values over the first two numbers, the most important first, smoothed."""
        from .space_figures import contour

        none = "two numbers among the hyperparameters and ten complete trials are needed"
        return self._plot(contour, none, complete_only=complete_only)

    def plot_front(self) -> Plot:
        """Return the first two objectives against each other, with the Pareto front."""
        from .search_figures import front

        none = "two objectives and a complete trial are needed"
        return self._plot(front, none, complete_only=None)

    def plot_timeline(self) -> Plot:
        """Return which worker trained which trial, and when."""
        from .run_figures import timeline

        def at_present(trials: StudyTrials) -> Panel | None:
            return timeline(trials, now=time.time())

        return self._plot(at_present, "no trial has started yet", complete_only=None)

    def _plot(
        self,
        figure: Callable[[StudyTrials], Panel | None],
        none: str,
        *,
        complete_only: bool | None,
    ) -> Plot:
        check_installed("bokeh", "a figure")
        trials = self.study_trials()
        shown = shown_with(trials, complete_only=complete_only)
        has_trials = bool(trials.of(shown)) or complete_only is None
        panel = figure(trials) if has_trials else None
        if panel is None or not panel.has_marks:
            raise StudyError(f"there is nothing to plot: {none}")
        begin_with([panel], shown)
        return Plot(panel)


def shown_with(trials: StudyTrials, *, complete_only: bool | None) -> Shown:
    """Return the choice of trials that `complete_only` means."""
    if complete_only is None:
        return trials.first_shown
    return Shown.COMPLETE_ONLY if complete_only else Shown.WITH_PRUNED
