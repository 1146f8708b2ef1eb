"""The reports of an objective on disk, so that none is missing after a kill of everything.

::

    trials/<number>/resume/reports.jsonl     one line for each report: the step, and the metrics

An objective may have saved its own checkpoint of a step, and continue after it, while the report of
that step was on its way to the ledger. The trial's next attempt finds the report here.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from ..core.attempt import Report

_MOST_BYTES = 1_000_000
"""Size at which the file is emptied; only its last reports may be missing in the ledger."""

_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK


class ReportFile:
    """The reports of one trial; without space or permission, none is kept.

    Args:
        trial_directory: The trial's directory.
    """

    def __init__(self, trial_directory: Path) -> None:
        self._path = trial_directory / "resume" / "reports.jsonl"

    def read(self) -> list[Report]:
        """Return the reports, in their order."""
        reports = []
        with contextlib.suppress(OSError):
            for line in self._path.read_bytes().split(b"\n")[:-1]:
                with contextlib.suppress(Exception):  # a damaged line
                    report = Report(*json.loads(line))
                    if all(isinstance(value, float) for value in report.metrics.values()):
                        reports.append(report)
        return reports

    def add(self, report: Report) -> None:
        """Append a report; forked processes may do so at the same time."""
        # It begins a line of its own even after one that was not written to its end.
        line = f"\n{json.dumps([report.step, dict(report.metrics)])}\n"
        with contextlib.suppress(OSError):
            try:
                file = os.open(self._path, _FLAGS, 0o644)
            except FileNotFoundError:
                # Without parents: a study that was renamed or removed must not be made again.
                self._path.parent.mkdir(exist_ok=True)
                file = os.open(self._path, _FLAGS, 0o644)
            try:
                if os.fstat(file).st_size > _MOST_BYTES:
                    os.ftruncate(file, 0)
                os.write(file, line.encode())
            finally:
                os.close(file)
