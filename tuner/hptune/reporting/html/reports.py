"""The methods of `Study` that plot and report it: figures, one page, or Markdown."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ...errors import StudyError, check_installed
from .panel import Panel, Shown, begin_with
from .plots import Plot
from .trials import StudyTrials

if TYPE_CHECKING:
    from ...core.attempt import ReportedValue
    from .report import ReportContents, Setup


class Reports(ABC):
    """The figures and the report of a study; a base class of `Study`.

    Most take `complete_only`: whether to leave out the trials that were stopped early, which are
    shown at their last step. None, the default, leaves them out if five or more are complete. The
    HTML page begins with this choice, and Markdown has the importance for it.

    Each raises a MissingPackageError if Bokeh is not installed. A figure raises a StudyError if the
    study has too few trials for it.
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

        none = f"at least {MIN_TRIALS} trials with a value are needed to estimate importance"
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

        at_present = partial(timeline, now=time.time())
        return self._plot(at_present, "no trial has started yet", complete_only=None)

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
        return make_report(
            trials.view,
            trials.space,
            trials.reports,
            self.setup(),
            now=time.time(),
            shown=shown_with(trials, complete_only=complete_only),
        )

    def report_markdown(self, *, complete_only: bool | None = None) -> str:
        """Return the report in short as Markdown: the best trials, what matters, what was asked."""
        check_installed("bokeh", "the report")
        from .markdown import report_markdown

        trials = self.study_trials()
        shown = shown_with(trials, complete_only=complete_only)
        return report_markdown(trials, self.setup(), shown=shown, now=time.time())

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
