"""The reports of an objective on disk."""

from __future__ import annotations

from pathlib import Path

from hptune.core.attempt import Report
from hptune.training.report_file import ReportFile


def test_damaged_lines_are_passed_over(tmp_path: Path) -> None:
    file = ReportFile(tmp_path)
    assert file.later_than(0, "loss") == []
    for step in (1, 2):
        file.add(Report(step, {"loss": 0.5}))
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
    assert file.later_than(1, "loss") == [Report(2, {"loss": 0.5})]
    file.add(Report(5, {"loss": 0.1}))
    assert file.later_than(2, "loss") == [Report(5, {"loss": 0.1})]
