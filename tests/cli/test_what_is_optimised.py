"""Several objectives, constraints and confirmation, from the command line to the files."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from hptune import Study, UsageError
from hptune.clusters.local import LocalWorkers
from hptune.core.resources import Resources
from in_process import InProcess
from real_runs import Hptune, rows, trials, wait_for

LIGHT = ("--executor", "joblib", "--seed", "3", "--study", "study")

TWO = """\
def objective(hp, trial):
    x, y = hp.Float("x", 0, 1), hp.Float("y", 0, 1)
    (trial.checkpoint_dir / "weights.txt").write_text(str(trial.number))
    return {"quality": x + y, "params": x * 1000}
"""

NOISY = """\
import os, random, time
OBJECTIVE = "value:max"

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    (trial.checkpoint_dir / "weights.txt").write_text(str(trial.number))
    # The 8 trials, and one confirmation of them.
    while trial.number > 8 and not os.path.exists("gate"):
        if trial.should_stop():
            return None
        time.sleep(0.02)
    return {"value": x + random.Random(trial.seed).gauss(0, 0.2)}
"""


def front_of(found: list[dict[str, Any]]) -> set[int]:
    values = {t["number"]: json.loads(t["metrics"]) for t in found}
    return {
        one
        for one, v in values.items()
        if not any(
            other != one and w["quality"] >= v["quality"] and w["params"] <= v["params"]
            for other, w in values.items()
        )
    }


def weights(path: Path) -> str:
    return (path / "checkpoint" / "weights.txt").read_text()


def test_the_front_is_found_kept_shown_and_exported(cli: InProcess) -> None:
    model = cli.file("model.py", TWO)
    goals = ("--objective", "quality:max", "--objective", "params")
    ended = cli("run", model, *LIGHT, *goals, "--trials", "16")
    assert ended.code == 0, ended.err
    expected = front_of(trials(cli.study()))
    assert len(expected) > 2
    assert f"and {len(expected) - 1} more on the Pareto front" in ended.out
    assert "show the trials on the Pareto front" in ended.out

    shelves = {int(p.name): p for p in (cli.study() / "best").iterdir() if p.name.isdecimal()}
    assert set(shelves) == expected
    assert all(weights(path) == str(number) for number, path in shelves.items())
    data = json.loads(cli("best", "study", "--json").out)
    assert {each["trial"] for each in data["trials"]} == set(data["front"]) == expected
    assert data["best"] == data["trials"][0]
    assert weights(cli.study() / "best") == str(data["best"]["trial"])
    assert [each["metric"] for each in data["objectives"]] == ["quality", "params"]

    shown = cli("best", "study").out
    assert f"{len(expected)} best trials of 16/16 trials, by quality, params" in shown
    assert all(f"best/{number}/checkpoint" in shown for number in expected)
    assert "on the Pareto front" in cli("status", "study").out
    table = list(csv.DictReader(io.StringIO(cli("export", "study").out)))
    assert {int(row["trial"]) for row in table if row["front"] == "True"} == expected
    study = Study(cli.study())
    assert {trial.number for trial in study.best_trials} == expected
    assert study.best_trial.values == tuple(
        study.best_trial.metrics[name] for name in ("quality", "params")
    )


RACE = """\
import time

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    quality, cost = {{0: (0.9, 0.5), 1: (0.5, 0.1)}}.get(trial.number, (x / 2, 0.6))
    for epoch in range(1, trial.epochs + 1):
        trial.report(epoch, quality=quality, {reported})
        while trial.number > 1 and {waits}:
            if trial.should_prune():
                return
            time.sleep(0.01)
    return {{"quality": quality, "cost": cost}}
"""
OF_TWO = ("--objective", "quality:max", "--objective", "cost:min")
RACING = ("--pruner", "asha", "--epochs", "3", "--workers", "1")


def test_trials_that_others_beat_in_every_objective_stop_early(cli: InProcess) -> None:
    model = cli.file("model.py", RACE.format(reported="cost=cost", waits=True))
    ended = cli("run", model, *LIGHT, *OF_TWO, *RACING, "--trials", "4")
    assert ended.code == 0, ended.err
    assert "can stop no trial" not in ended.err
    ended = cli("resume", "study", "--trials", "5")
    assert ended.code == 0, ended.err
    found = trials(cli.study())
    assert [each["state"] for each in found] == ["COMPLETE"] * 2 + ["PRUNED"] * 3
    data = json.loads(cli("best", "study", "--json").out)
    assert set(data["front"]) == {0, 1}


def test_a_trial_that_is_stopped_early_is_shown_with_how_others_did(cli: InProcess) -> None:
    model = cli.file("model.py", RACE.format(reported="cost=cost", waits=True))
    ended = cli("run", model, *LIGHT, "--objective", "quality:max", *RACING, "--trials", "3")
    assert ended.code == 0, ended.err
    shown = cli("show", "study", 2).out
    assert "reason   stopped at epoch 1, where 2 of the 2 trials before it did better" in shown
    assert "reason" not in cli("show", "study", 0).out


def test_an_objective_that_only_results_have_stops_no_trial_and_is_named(cli: InProcess) -> None:
    model = cli.file("model.py", RACE.format(reported="other=1", waits=False))
    ended = cli("run", model, *LIGHT, *OF_TWO, *RACING, "--trials", "4")
    assert ended.code == 0, ended.err
    assert {each["state"] for each in trials(cli.study())} == {"COMPLETE"}
    assert ended.err.count("--pruner asha can stop no trial: no report of trial 0 has cost.") == 1


def test_a_constraint_is_met_and_shown(cli: InProcess) -> None:
    model = cli.file("model.py", "CONSTRAINTS = ['params < 400']\n" + TWO)
    ended = cli("run", model, *LIGHT, "--objective", "quality:max", "--trials", "12")
    assert ended.code == 0, ended.err
    found = [json.loads(trial["metrics"]) for trial in trials(cli.study())]
    feasible = [m["quality"] for m in found if m["params"] < 400]
    assert 0 < len(feasible) < 12
    assert max(feasible) < max(m["quality"] for m in found), "the constraint must matter"
    data = json.loads(cli("best", "study", "--json").out)
    assert data["best"]["value"] == max(feasible)
    assert data["constraints"] == ["params < 400"]
    broken = 12 - len(feasible)
    assert f"{broken} trials broke a constraint" in cli("status", "study").out
    assert ended.err.count("infeasible: params is") == broken
    table = list(csv.DictReader(io.StringIO(cli("export", "study").out)))
    assert sum(float(row["violation"]) > 0 for row in table) == broken


def test_if_no_trial_meets_the_constraint_the_nearest_is_shown_as_infeasible(
    cli: InProcess,
) -> None:
    model = cli.file("model.py", TWO)
    goals = ("--objective", "quality:max", "--constraint", "params<-1000")
    ended = cli("run", model, *LIGHT, *goals, "--trials", "5")
    assert ended.code == 1
    assert "Error: no trial keeps params < -1000; trial " in ended.err
    assert "`hptune resume study --trials 10` tries others" in ended.err
    least = min(json.loads(trial["metrics"])["params"] for trial in trials(cli.study()))
    for shown in (ended.out, cli("best", "study").out, cli("status", "study").out):
        assert f"infeasible: params is {least:.6g}, allowed is < -1000" in shown


def test_the_best_are_confirmed_also_across_an_interruption(hptune: Hptune, cli: InProcess) -> None:
    model = hptune.file("model.py", NOISY)
    run = hptune.start("run", model, *LIGHT, "--trials", "8", "--confirm", "2", "--workers", "1")
    query = "SELECT * FROM trials WHERE origin LIKE 'confirm%' AND state = 'COMPLETE'"
    wait_for(lambda: rows(hptune.study(), query), "a confirmation")
    run.interrupt()
    ended = run.wait()
    assert ended.code == 130, ended
    (hptune.directory / "gate").touch()
    ended = cli("resume", "study")
    assert ended.code == 0, ended.err
    found = trials(hptune.study())
    assert len(found) == 12
    best = sorted(found[:8], key=lambda trial: -trial["value"])[:2]
    means = {}
    for trial in best:
        again = [t for t in found if t["origin"] == f"confirm of {trial['number']}"]
        assert len(again) == 2
        assert all(each["params"] == trial["params"] for each in again)
        values = [each["value"] for each in again]
        assert len({trial["value"], *values}) == 3, "other seeds"
        means[trial["number"]] = sum(values) / 2  # what it was chosen by is no part of it
    winner = max(means, key=lambda number: means[number])
    data = json.loads(cli("best", "study", "--json").out)
    assert data["best"]["confirmed"]["trial"] == winner
    assert abs(data["best"]["confirmed"]["means"][0] - means[winner]) < 1e-12
    assert weights(hptune.study() / "best") == str(data["best"]["trial"])
    assert "±" in cli("best", "study").out
    left = {p.parent.name for p in (hptune.study() / "trials").glob("*/checkpoint")}
    ranked = sorted(found[:8], key=lambda trial: -trial["value"])
    assert left <= {str(each["number"]) for each in ranked[:3]} | {str(data["best"]["trial"])}
    refused = cli("resume", "study", "--trials", "9", "--confirm-repeats", "5")
    assert refused.code == 2
    assert "--confirm-repeats 2" in refused.err


def test_workers_are_asked_for_by_all_trials_that_are_left(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Repeats that have ended are none of the study's trials; a used-up time is refused early."""
    cli.file("model.py", TWO)
    goals = ("--objective", "quality:max", "--confirm", "1")
    assert cli("run", "model.py", *LIGHT, *goals, "--trials", "3", "--quiet").code == 0
    assert len(trials(cli.study())) == 5
    asked = []

    def scale_up(_: LocalWorkers, resources: Resources, trials: int) -> None:
        del resources
        asked.append(trials)
        raise UsageError("enough")

    monkeypatch.setattr(LocalWorkers, "scale_up", scale_up)
    assert cli("resume", "study", "--trials", "9").code == 2
    assert asked == [6]

    ended = cli("resume", "study", "--timeout", "0.01", "--detach")
    assert ended.code == 2
    assert "--timeout is the total" in ended.err
