"""The methods of `Study` that report it: one page, Markdown, or pictures."""

from __future__ import annotations

import itertools
import time
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import check_installed
from .plots import Plots, shown_with

if TYPE_CHECKING:
    from ...core.trial import ReportedValue
    from .report import ReportContents, Setup


class Reports(Plots):
    """The report of a study as a whole; a base class of `Study`."""

    @abstractmethod
    def setup(self) -> Setup:
        """Return how the study was started."""

    def report_html(self, *, complete_only: bool | None = None) -> str:
        """Return the report: one HTML page that needs no other file and no network.

        Args:
            complete_only: Whether the figures begin without the trials that were stopped early;
                None for without them if five or more are complete.

        Raises:
            MissingPackageError: Bokeh is not installed.
        """
        from .report import page_of

        return page_of(self.report(complete_only=complete_only))

    def report(
        self,
        *,
        complete_only: bool | None = None,
        known: Sequence[ReportedValue] | None = None,
    ) -> ReportContents:
        """Return the contents of the report: figures, tables and words, as the study stands now.

        Args:
            complete_only: As in `report_html`.
            known: The reports of the first objective; None to read all reports.

        Raises:
            MissingPackageError: Bokeh is not installed.
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
        """Return the report in short, as Markdown: the best trials, what matters, what was asked.

        Args:
            complete_only: Whether the importance counts complete trials only; None as above.

        Raises:
            MissingPackageError: Bokeh is not installed.
        """
        check_installed("bokeh", "the report")
        from .markdown import report_markdown

        trials = self.study_trials()
        shown = shown_with(trials, complete_only=complete_only)
        return report_markdown(trials, self.setup(), shown=shown, now=time.time())

    def report_pictures(
        self, folder: Path, file_format: str, *, complete_only: bool | None = None
    ) -> list[Path]:
        """Write each figure of the report as a picture.

        Args:
            folder: Where to write; it is made if it is missing.
            file_format: "png", "svg" or "pdf".
            complete_only: Whether to leave out the trials that were stopped early; None as above.

        Returns:
            The files.

        Raises:
            MissingPackageError: Bokeh or matplotlib is not installed.
            OSError: A file cannot be written.
        """
        check_installed("matplotlib", "a picture")
        from .pictures import save_figures

        panels = self.report(complete_only=complete_only).panels()
        folder.mkdir(parents=True, exist_ok=True)
        files = [
            save_figures(panel.figures, folder / f"{panel.name}.{file_format}")
            for panel in panels
            if panel.has_marks
        ]
        return list(itertools.chain.from_iterable(files))
