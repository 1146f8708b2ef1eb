"""The reports of an objective on disk."""

from __future__ import annotations

import math
from pathlib import Path

from hptune.core.attempt import Report
from hptune.training.report_file import ReportFile


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    file = ReportFile(tmp_path)
    assert file.read() == []
    before = [Report(1, {"loss": 0.5}), Report(2, {"loss": 0.25, "norm": math.inf})]
    for each in before:
        file.add(each)
    path = tmp_path / "resume/reports.jsonl"
    odd = (
        "5",
        "null",
        "[3]",
        "[3, 4]",
        "[3, [5]]",
        '["3", {"loss": 1}]',
        '[3, {"loss": "x"}]',
        "[",
    )
    path.write_text("".join(f"{each}\n" for each in odd) + path.read_text() + '[4, {"loss"')
    assert file.read() == before
    file.add(Report(5, {"loss": 0.1}))
    assert file.read() == [*before, Report(5, {"loss": 0.1})]
