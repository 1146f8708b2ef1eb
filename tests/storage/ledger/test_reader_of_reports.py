"""Reports, of which a follower reads each once."""

from __future__ import annotations

from pathlib import Path

from stored_study import curve, stored

from tuner.storage.ledger import FollowedReports, Ledger, LedgerReader


def test_a_follower_reads_each_report_of_its_metric_once(tmp_path: Path) -> None:
    directory = stored(tmp_path / "study", events=curve(0, [0.5, 0.6]))
    reader = LedgerReader(directory)
    followed = FollowedReports(reader, "val_accuracy")
    assert [(row.step, row.value) for row in followed.rows()] == [(1, 0.5), (2, 0.6)]
    with Ledger.open(directory) as ledger:
        ledger.append(curve(1, [0.7]))
    assert [(row.trial, row.step) for row in followed.rows()] == [(0, 1), (0, 2), (1, 1)]
    all_rows = [row for row in reader.reports() if row.metric == "val_accuracy"]
    assert list(followed.rows()) == all_rows
    first, last = reader.reports_after(0, metric="val_loss", most=2)
    rest, end = reader.reports_after(last, metric="val_loss", most=2)
    assert [row.trial for row in (*first, *rest)] == [0, 0, 1]
    assert reader.reports_after(end, metric="val_loss") == ([], end)
