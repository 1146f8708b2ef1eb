from __future__ import annotations

import csv
import io
import json
import math
import unicodedata
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fake_study import GOALS, attempt, parallel, trial
from hptune.core.attempt import Attempt, Cause, Outcome, ReportedValue, Usage
from hptune.core.trial import Params, ParamValue, Trial, TrialState
from hptune.reporting.exports.exports import compact_table
from hptune.reporting.results.export import (
    curves,
    export_csv,
    export_json,
    table,
)
from hptune.reporting.results.rows import seconds_run
from hptune.reporting.results.view import StudyView

NASTY = 'a "quoted", 名前;\r\nsecond\rline\n=1+1'
TRIALS = [
    trial(1, TrialState.FAILED, params={"lr": 0.1, "act": NASTY}, reason=NASTY),
    trial(
        0,
        value=0.1 + 0.2,
        step=7,
        params={"lr": 1e-4, "deep": True, "seed": None},
        metrics={"val_accuracy": 0.1 + 0.2, "val_loss": float("nan")},
    ),
]
ATTEMPTS = [
    replace(
        attempt(
            0, 1, placed_at=1030.0, ended_at=1042.5, outcome=Outcome.FINISHED, cause=Cause.RETURNED
        ),
        usage=Usage(peak_memory_bytes=2_000_000, cpu_seconds=25.0, seconds=12.5),
    ),
    attempt(0, 0, placed_at=1000.0, ended_at=1010.0, outcome=Outcome.LOST),
    attempt(1, 0),
]


def view(trials: Sequence[Trial], attempts: Sequence[Attempt]) -> StudyView:
    return StudyView("runs/one", "tpe", GOALS, None, trials, attempts)


def as_csv(trials: list[Trial], attempts: list[Attempt]) -> list[dict[str, str]]:
    stream = io.StringIO(newline="")
    export_csv(table(view(trials, attempts)), stream)
    stream.seek(0)
    return list(csv.DictReader(stream))


def as_json(
    trials: list[Trial], attempts: list[Attempt], rows: list[ReportedValue]
) -> dict[str, Any]:
    stream = io.StringIO()
    export_json(view(trials, attempts), rows, stream)

    def refuse(literal: str) -> None:
        raise AssertionError(f"{literal} is no JSON")

    tree: dict[str, Any] = json.loads(stream.getvalue(), parse_constant=refuse)
    return tree


COLUMNS = (
    "trial,state,value,step,seconds,origin,attempts,"
    "core_hours,gpu_hours,wait_seconds,idle_core_hours,"
    "peak_memory_bytes,peak_gpu_memory_bytes,"
    "cpu_share,gpu_share,memory_bytes,why,worker,node,processes,nodes,cause,reason"
)


def test_the_table_holds_every_trial_with_every_digit() -> None:
    first, second = as_csv(TRIALS, ATTEMPTS)
    common = {
        **dict.fromkeys(COLUMNS.split(","), ""),
        "origin": "tpe",
        "attempts": "1",
        "worker": "worker-0",
        "cpu_share": "1.0",
        "memory_bytes": "0",
        "processes": "1",
        "nodes": "1",
        "gpu_hours": "0.0",
        "wait_seconds": "0.0",
        "idle_core_hours": "0.0",
        "node": "node01.cluster.example",
    }
    assert first == {
        **common,
        "trial": "0",
        "state": "COMPLETE",
        "value": "0.30000000000000004",
        "step": "7",
        "param.lr": "0.0001",
        "param.deep": "True",
        "param.seed": "None",
        "param.act": "",
        "metric.val_accuracy": "0.30000000000000004",
        "metric.val_loss": "nan",
        "seconds": "22.5",
        "core_hours": str(45.0 / 3600),
        "peak_memory_bytes": "2000000",
        "cause": "returned",
    }
    params = {"param.lr": "0.1", "param.deep": "", "param.seed": "", "param.act": NASTY}
    metrics = {"metric.val_accuracy": "", "metric.val_loss": ""}
    failed = {"trial": "1", "state": "FAILED", "core_hours": "0.0", "reason": NASTY}
    assert second == {**common, **failed, **params, **metrics}


def test_the_order_of_the_trials_given_does_not_matter() -> None:
    one, other = io.StringIO(), io.StringIO()
    export_csv(table(view(TRIALS, ATTEMPTS)), one)
    export_csv(table(view(TRIALS[::-1], ATTEMPTS[::-1])), other)
    assert one.getvalue() == other.getvalue()


def test_an_empty_study_has_a_heading() -> None:
    stream = io.StringIO()
    export_csv(table(view([], [])), stream)
    assert stream.getvalue().strip() == COLUMNS
    assert as_json([], [], [])["trials"] == []


def test_the_tree_keeps_types_attempts_and_reports() -> None:
    reports = [
        ReportedValue(0, 1, 2, "val_loss", math.inf, 1035.0),
        ReportedValue(0, 1, 2, "val_accuracy", 0.3, 1035.0),
        ReportedValue(0, 0, 1, "val_accuracy", 0.1, 1005.0),
    ]
    tree = as_json(TRIALS, ATTEMPTS, reports)
    assert (tree["metric"], tree["direction"]) == ("val_accuracy", "max")
    first, second = tree["trials"]
    assert first["params"] == {"lr": 1e-4, "deep": True, "seed": None}
    assert type(first["params"]["deep"]) is bool
    assert first["metrics"] == {"val_accuracy": 0.1 + 0.2, "val_loss": None}
    assert [one["outcome"] for one in first["attempts"]] == ["LOST", "FINISHED"]
    assert first["reports"] == [
        {"attempt": 0, "step": 1, "at": 1005.0, "metrics": {"val_accuracy": 0.1}},
        {
            "attempt": 1,
            "step": 2,
            "at": 1035.0,
            "metrics": {"val_loss": None, "val_accuracy": 0.3},
        },
    ]
    assert first["seconds"] == 22.5
    assert second["params"]["act"] == NASTY
    assert second["attempts"][0]["outcome"] is None
    assert second["seconds"] is None


def test_each_rank_of_an_attempt_is_listed() -> None:
    attempts = [parallel(0, ended_at=1010.0, outcome=Outcome.FINISHED)]
    trials = [each for each in TRIALS if each.number == 0]
    tree = as_json(trials, attempts, [])
    (only,) = tree["trials"][0]["attempts"]
    assert (only["processes"], only["nodes"], only["memory_bytes"]) == (3, 2, 30)
    assert (only["core_hours"], only["gpu_hours"]) == (3 * 10 / 3600, 3 * 10 / 3600)
    held = [(each["rank"], each["node"], each["worker"], each["gpus"]) for each in only["ranks"]]
    assert held == [(0, "n1.org", "w1", ["0"]), (1, "n1.org", "w1", ["1"]), (2, "n2", "w2", ["0"])]
    (row,) = as_csv(trials, attempts)
    assert (row["worker"], row["processes"], row["nodes"]) == ("w1", "3", "2")


def in_csv(value: str) -> str:
    """Return a text as it is written: control characters are escaped, no formula is left."""
    shown = "".join(
        ascii(c)[1:-1] if unicodedata.category(c) == "Cc" and c not in "\t\r\n" else c
        for c in value
    )
    return f"'{shown}" if value[:1] in {"=", "+", "-", "@", "\t", "\r"} else shown


def test_curves_are_in_long_form_and_formulas_in_csv_are_texts() -> None:
    reports = [
        ReportedValue(1, 0, 2, "=loss", math.nan, 1035.5),
        ReportedValue(1, 0, 1, "+a\x1b[2J", -0.5, 1030.0),
        ReportedValue(0, 1, 3, "val_loss", 0.25, 1005.0),
    ]
    stream = io.StringIO(newline="")
    export_csv(curves(reports), stream)
    assert stream.getvalue().splitlines() == [
        "trial,attempt,step,metric,value,time",
        "0,1,3,val_loss,0.25,1005.0",
        "1,0,1,'+a\\x1b[2J,-0.5,1030.0",
        "1,0,2,'=loss,nan,1035.5",
    ]


def test_an_attempt_that_runs_has_no_length_yet() -> None:
    assert seconds_run([]) is None
    assert seconds_run([attempt(0)]) is None
    ended = attempt(0, ended_at=1010.0, outcome=Outcome.RELEASED)
    assert seconds_run([ended, attempt(0, 1)]) == 10.0


values = st.one_of(st.booleans(), st.integers(), st.floats(), st.text(), st.none())


@given(st.dictionaries(st.text(min_size=1), values, max_size=5), st.text())
def test_any_configuration_survives_both_formats(
    params: dict[str, ParamValue], reason: str
) -> None:
    one = trial(0, TrialState.FAILED, params=params, reason=reason)
    (row,) = as_csv([one], [])
    assert row["reason"] == in_csv(reason)
    assert {name: row[in_csv(f"param.{name}")] for name in params} == {
        name: in_csv(value) if isinstance(value, str) else str(value)
        for name, value in params.items()
    }
    (exported,) = as_json([one], [], [])["trials"]
    assert exported["reason"] == reason
    assert exported["params"] == {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in params.items()
    }


def test_a_compact_table_has_short_cells_and_names_of_their_own() -> None:
    params: Params = {"units": 8, "step": 2, "accuracy": 0.1}
    of = trial(0, TrialState.COMPLETE, 0.9, params=params, metrics={"val_accuracy": 0.9, "loss": 1})
    found = compact_table(view([of], [attempt(0, ended_at=1010.0, outcome=Outcome.FINISHED)]))
    assert list(found.columns) == [
        *("trial", "state", "value", "step", "seconds", "units", "param.step", "accuracy", "loss"),
    ]
    (row,) = found.rows
    assert (row["units"], row["param.step"], row["loss"]) == (8, 2, 1)
