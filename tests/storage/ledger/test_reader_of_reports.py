"""Reports that are read from the ledger: each once by a follower, and the last of an attempt."""

from __future__ import annotations

import contextlib
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from fake_study import trial
from hptune.core.attempt import AttemptId, Report
from hptune.core.messages import Reported
from hptune.core.trial import Direction, Goal, TrialState
from hptune.storage.ledger import FollowedReports, Ledger, LedgerReader
from stored_study import curve, stored


def test_a_follower_reads_each_report_of_its_metric_once(tmp_path: Path) -> None:
    directory = stored(tmp_path / "study", events=curve(0, [0.5, 0.6]))
    reader = LedgerReader(directory)
    followed = FollowedReports("val_accuracy")
    assert [(row.step, row.value) for row in followed.rows(reader)] == [(1, 0.5), (2, 0.6)]
    with Ledger.open(directory) as ledger:
        ledger.append(curve(1, [0.7]))
    assert [(row.trial, row.step) for row in followed.rows(reader)] == [(0, 1), (0, 2), (1, 1)]
    all_rows = [row for row in reader.reports() if row.metric == "val_accuracy"]
    assert list(followed.rows(reader)) == all_rows
    first, last = reader.reports_after(0, metric="val_loss", most=2)
    rest, end = reader.reports_after(last, metric="val_loss", most=2)
    assert [row.trial for row in (*first, *rest)] == [0, 0, 1]
    assert reader.reports_after(end, metric="val_loss") == ([], end)


def test_a_follower_of_two_requests_at_once_reads_each_report_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = LedgerReader(stored(tmp_path / "study", events=curve(0, [0.5, 0.6])))
    read, both = LedgerReader.reports_after, threading.Barrier(2)

    def at_once(*given: Any, **named: Any) -> Any:
        found = read(*given, **named)
        with contextlib.suppress(threading.BrokenBarrierError):
            both.wait(0.2)
        return found

    monkeypatch.setattr(LedgerReader, "reports_after", at_once)
    followed = FollowedReports("val_accuracy")
    with ThreadPoolExecutor(2) as threads:
        for rows in threads.map(followed.rows, [reader, reader]):
            assert [(row.step, row.value) for row in rows] == [(1, 0.5), (2, 0.6)]


def test_the_last_report_of_each_attempt_of_trials_in_some_states(tmp_path: Path) -> None:
    events = [
        *curve(0, [0.1, 0.2]),
        *curve(1, [0.5, 0.6, 0.7]),
        *curve(1, [0.8], attempt_number=1),
        *curve(2, [0.9]),
        Reported(2000.0, AttemptId(2, 0), Report(1, {"val_accuracy": math.nan})),
    ]
    states = (TrialState.COMPLETE, TrialState.RUNNING, TrialState.WAITING, TrialState.WAITING)
    trials = [trial(number, state) for number, state in enumerate(states)]
    reader = LedgerReader(stored(tmp_path / "study", trials, events=events))
    found = reader.last_reports([TrialState.RUNNING, TrialState.WAITING])
    assert {(name.trial, name.number): each.step for name, each in found.items()} == {
        (1, 0): 3,
        (1, 1): 1,
        (2, 0): 1,
    }
    assert found[AttemptId(1, 1)].metrics["val_accuracy"] == 0.8
    again = found[AttemptId(2, 0)].metrics
    assert math.isnan(again["val_accuracy"])
    assert again["val_loss"] == pytest.approx(0.1)
    assert reader.last_reports([TrialState.PAUSED]) == {}


def test_the_best_value_by_a_step_of_trials_that_reached_it(tmp_path: Path) -> None:
    events = [
        *curve(0, [0.4, 0.2, 0.9]),
        *curve(1, [0.5]),
        *curve(1, [0.3, 0.6], attempt_number=1),
        *curve(2, [0.1, 0.1, 0.1]),
        *curve(3, [0.8]),
        *(
            Reported(2000.0, AttemptId(4, 0), Report(step, {"val_accuracy": math.nan}))
            for step in (1, 2)
        ),
    ]
    states = {2: TrialState.PRUNED}
    trials = [trial(number, states.get(number, TrialState.COMPLETE)) for number in range(5)]
    reader = LedgerReader(stored(tmp_path / "study", trials, events=events))
    highest, lowest = (Goal("val_accuracy", each) for each in (Direction.MAX, Direction.MIN))
    assert reader.best_by(1, goal=highest) == {0: 0.4, 1: 0.5, 2: 0.1, 3: 0.8}
    assert reader.best_by(2, goal=highest) == {0: 0.4, 1: 0.6, 2: 0.1}, "trial 3 did not reach it"
    assert reader.best_by(2, goal=lowest) == {0: 0.2, 1: 0.3, 2: 0.1}
    assert reader.best_by(9, goal=highest) == {}
    assert reader.best_by(1, goal=Goal("other", Direction.MIN)) == {}
