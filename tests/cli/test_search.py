"""Searches on the command line, and the commands that read a study."""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import json
import shutil
import sqlite3

import pytest

from in_process import InProcess
from real_runs import Hptune, states, trials, wait_for

MODEL = """\
import time

OBJECTIVE = "value:max"

def objective(hp, trial):
    a = hp.Int("a", 1, 3)
    b = hp.Choice("b", ["x", "y"])
    c = hp.Boolean("c")
    time.sleep(0.01)
    return a + 10 * (b == "y") + 100 * c
"""
# All but the first trial wait for a gate.
GATED = MODEL.replace("import time", "import os, time").replace(
    "    time.sleep(0.01)\n",
    """\
    while trial.number and not os.path.exists("gate"):
        if trial.should_stop():
            return None
        time.sleep(0.02)
""",
)
LIGHT = ("--executor", "joblib")
ALL = set(itertools.product([1, 2, 3], ["x", "y"], [False, True]))


def tried(command: Hptune | InProcess, study: str = "study") -> list[tuple[object, ...]]:
    where = command.study(study)
    return [tuple(trial["params"][name] for name in "abc") for trial in trials(where)]


def test_the_grid_says_how_many_and_continues_without_repeating_one(
    hptune: Hptune, cli: InProcess
) -> None:
    model = hptune.file("model.py", GATED)
    command = ("run", model, "--search", "grid", "--workers", 1, "--study", "study")
    started = hptune.start(*command, *LIGHT)
    wait_for(lambda: states(hptune.study()).get("COMPLETE"), "the first trial")
    started.interrupt()
    ended = started.wait()
    assert ended.code == 130, ended
    assert "the grid has 12 configurations" in ended.err
    assert len(tried(hptune)) < 12
    plain = json.loads(cli("status", hptune.study(), "--json").out)
    assert plain["master"] is None

    (hptune.directory / "gate").touch()
    ended = cli("resume", hptune.study())
    assert ended.code == 0, ended.err
    assert len(tried(hptune)) == 12
    assert set(tried(hptune)) == ALL

    # There is nothing more to try.
    ended = cli("resume", hptune.study(), "--trials", "40")
    assert ended.code == 0
    assert "every configuration" in ended.out
    assert "nothing is left to do: all 12 configurations" in ended.err
    assert "reading" not in ended.err
    assert len(tried(hptune)) == 12
    assert "state    done" in cli("status", "study").out

    best = json.loads(cli("best", "study", "--json").out)
    assert (best["best"]["value"], best["best"]["params"]) == (113, {"a": 3, "b": "y", "c": True})

    table = list(csv.DictReader(io.StringIO(cli("export", "study").out)))
    assert [int(row["trial"]) for row in table] == list(range(12))
    assert {row["state"] for row in table} == {"COMPLETE"}
    assert {(int(row["param.a"]), row["param.b"]) for row in table} == {(a, b) for a, b, _ in ALL}
    output = hptune.directory / "trials.json"
    ended = cli("export", "study", "--format", "json", "-o", output)
    assert (ended.code, ended.out) == (0, "")
    assert len(json.loads(output.read_text())["trials"]) == 12
    ended = cli("export", hptune.study(), "-o", hptune.directory / "no" / "such" / "place.csv")
    assert (ended.code, "cannot be written" in ended.err) == (2, True)


def test_auto_says_what_it_picks_and_a_resumed_study_stays_with_it(cli: InProcess) -> None:
    model = cli.file("model.py", MODEL)
    ended = cli("run", model, *LIGHT, "--trials", "11", "--study", "few")
    assert ended.code == 0, ended.err
    assert "grid" not in ended.err
    (line,) = [line for line in ended.err.splitlines() if "--search auto takes" in line]
    picked = line.partition("takes ")[2].partition(":")[0]
    # Twelve would be all there are, and picked otherwise.
    assert "12 trials cover all 12 configurations" not in ended.err
    ended = cli("resume", "few", "--trials", "12")
    assert f"{picked} search" in ended.err
    assert json.loads(cli("status", "few", "--json").out)["search"] == picked

    ended = cli("run", model, *LIGHT, "--trials", "12", "--study", "all")
    assert "--search auto takes grid: 12 trials cover all 12 configurations" in ended.err
    assert set(tried(cli, "all")) == ALL


@pytest.mark.parametrize(
    "search",
    [
        "random",
        "optuna:TPESampler",
        pytest.param("sobol", marks=pytest.mark.slow),
        pytest.param("skopt", marks=pytest.mark.slow),
    ],
)
def test_each_search_runs_and_ends_when_all_is_tried(cli: InProcess, search: str) -> None:
    model = cli.file("model.py", MODEL)
    ended = cli("run", model, *LIGHT, "--search", search, "--trials", "20", "--study", cli.study())
    assert ended.code == 0, ended.err
    assert "every configuration of the space was tried, 12/12 trials" in ended.out
    assert "to come" not in ended.out
    assert len(tried(cli)) == 12
    assert set(tried(cli)) == ALL


def test_a_grid_of_continuous_parameters(cli: InProcess) -> None:
    model = cli.file(
        "model.py",
        """
        def objective(hp, trial):
            return hp.Float("x", 0.0, 1.0) + hp.Float("y", 1e-4, 1e-2, sampling="log")
        """,
    )
    ended = cli(
        "run", model, *LIGHT, "--search", "grid", "--grid-points", "3", "--study", cli.study()
    )
    assert ended.code == 0, ended.err
    assert "the grid has 9 configurations (--grid-points 3)" in ended.err
    points = {(round(t["params"]["x"], 9), round(t["params"]["y"], 9)) for t in trials(cli.study())}
    assert points == set(itertools.product([0.0, 0.5, 1.0], [1e-4, 1e-3, 1e-2]))


def test_a_grid_larger_than_the_study_says_what_is_left_out(cli: InProcess) -> None:
    model = cli.file(
        "model.py", "def objective(hp, trial):\n    return hp.Int('x', 0, 3) + hp.Int('y', 0, 3)\n"
    )
    ended = cli("run", model, *LIGHT, "--search", "grid", "--trials", "2", "--study", cli.study())
    assert "the grid has 16 configurations; --trials 2 tries the first 2, in which the last" in (
        ended.err
    )
    assert [t["params"] for t in trials(cli.study())] == [{"x": 0, "y": 0}, {"x": 0, "y": 1}]


def test_a_master_that_died_before_it_stored_the_grown_space_loses_nothing(cli: InProcess) -> None:
    model = cli.file(
        "late.py",
        """
        def objective(hp, trial):
            x = hp.Float("x", 0.0, 1.0)
            trial.report(1, value=x)  # the probe comes no further
            return x + hp.Float("y", 0.0, 1.0)
        """,
    )
    assert cli("run", model, *LIGHT, "--trials", 2, "--study", "study").code == 0
    with contextlib.closing(sqlite3.connect(cli.study() / "study.db")) as db, db:
        db.execute("DELETE FROM study WHERE key = 'space'")
        db.execute(
            "INSERT INTO study SELECT 'space', value FROM study WHERE key = 'declared_space'"
        )
    assert cli("resume", "study", "--trials", 4).code == 0
    assert [trial["params"]["y"] > 0.0 for trial in trials(cli.study())[2:]] == [True, True]


def test_tpe_uses_its_results_in_a_grown_space(cli: InProcess) -> None:
    model = cli.file(
        "late.py",
        """
        def objective(hp, trial):
            x = hp.Float("x", 0.0, 1.0)
            trial.report(1, value=abs(x - 0.3))  # the probe comes no further
            if x > 0.7:  # nor do most of the good trials
                hp.Float("seldom", 0.0, 1.0)
            return abs(x - 0.3)
        """,
    )
    run = ("run", model, *LIGHT, "--search", "tpe", "--trials", 16, "--seed", 1, "--study", "study")
    assert cli(*run).code == 0
    found = trials(cli.study())
    assert any("seldom" in trial["params"] for trial in found[:5])
    assert {trial["origin"] for trial in found[7:]} == {"tpe"}
    cli.file(
        "late.py",
        """
        def objective(hp, trial):
            return abs(hp.Float("x", 0.0, 1.0) - 0.3) + hp.Int("new", 1, 3)
        """,
    )
    ended = cli("resume", "study", "--trials", 40, "--accept-space")
    assert ended.code == 0, ended.err
    later = trials(cli.study())[16:]
    assert {trial["origin"] for trial in later} == {"tpe"}
    # Of 24; at random they would be 10.
    assert sum(abs(trial["params"]["x"] - 0.3) < 0.2 for trial in later) >= 15


def test_start_points_come_first_then_the_defaults_also_after_a_stop(cli: InProcess) -> None:
    model = cli.file("model.py", MODEL)
    points = cli.file("points.csv", "a,b\n1,y\n,x\n")
    first = ("--try", "c=true,a=3", "--try", f"@{points}")
    ended = cli("run", model, *LIGHT, *first, "--trials", 2, "--study", cli.study())
    assert ended.code == 0, ended.err
    assert cli("resume", cli.study(), "--trials", 5).code == 0
    assert tried(cli)[:3] == [(3, "x", True), (1, "y", False), (2, "x", False)]
    assert len(set(tried(cli))) == 5


def test_a_start_point_can_be_added_to_a_study_that_is_resumed(cli: InProcess) -> None:
    model = cli.file("model.py", MODEL)
    search = ("--search", "tpe", "--seed", 1, "--try", "a=1,b=x,c=true")
    ended = cli("run", model, *LIGHT, *search, "--trials", 3, "--study", cli.study())
    assert ended.code == 0, ended.err
    idea = ("--try", "a=3,b=y,c=true")

    ended = cli("resume", cli.study(), *idea)
    assert ended.code == 2
    assert "has 3 trials of 3, and 1 more is to be tried; give --trials 4 or more" in ended.err
    ended = cli("resume", cli.study(), "--trials", 9, "--try", "a=7")
    assert ended.code == 2
    assert "start point 1 (a=7): a is 7" in ended.err

    ended = cli("resume", cli.study(), *idea, "--try", "a=1,b=x,c=true", "--trials", 6)
    assert ended.code == 0, ended.err
    assert tried(cli)[3] == (3, "y", True)
    found = trials(cli.study())
    assert [trial["origin"] for trial in found].count("start point (added)") == 1
    assert found[3]["origin"] == "start point (added)"
    assert len(found) == len(set(tried(cli))) == 6
    ended = cli("replay", cli.study())
    said = "5 suggestions, all equal; 1 other trial came from --try, enqueue or --confirm"
    assert (ended.code, ended.out.strip()) == (0, said)

    # Without the seconds of starting workers.
    ended = cli("resume", cli.study(), *idea, "--workers", 2)
    assert ended.code == 0, ended.err
    assert "start point 1 is trial 3 already\n" in ended.err
    assert "nothing is left to do: 6 of 6 trials are over; a larger --trials" in ended.err
    assert "reading" not in ended.err
    assert len(trials(cli.study())) == 6


def test_a_study_learns_from_an_earlier_one_and_needs_it_no_more(cli: InProcess) -> None:
    model = cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)")
    tpe = ("--search", "tpe", "--seed", 1)
    assert cli("run", model, *LIGHT, *tpe, "--trials", 8, "--study", cli.study("old")).code == 0
    old = trials(cli.study("old"))
    best = min(t["params"]["x"] for t in old if t["params"]["x"] <= 0.6)
    cli.file(
        "model.py",
        """
        def objective(hp, trial):
            return hp.Float("x", 0.0, 0.6) + hp.Int("n", 1, 9)
        """,
    )
    warm = ("--warm-start", cli.study("old"))
    ended = cli("run", model, *LIGHT, *tpe, *warm, "--trials", 2, "--study", cli.study())
    assert ended.code == 0, ended.err
    inside = sum(trial["params"]["x"] <= 0.6 for trial in old)
    assert 0 < inside < 8
    assert f"warm start: {inside} of 8 trials of " in ended.err
    assert f"({8 - inside} outside the present bounds)" in ended.err
    shutil.rmtree(cli.study("old"))
    assert cli("resume", cli.study(), "--trials", 8).code == 0
    found = trials(cli.study())
    assert found[0]["params"] == {"x": best, "n": 5}
    assert found[0]["origin"] == f"best of {cli.study('old')}"
    assert found[2]["origin"] in ("tpe", "tpe (start)")

    cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('z', 0.0, 1.0)")
    ended = cli("run", model, *LIGHT, "--warm-start", cli.study(), "--study", cli.study("b"))
    assert ended.code == 2
    assert "no hyperparameter in common with this study: there are n, x in it and z" in ended.err


def test_several_objectives_learn_from_trials_that_measured_them_all(cli: InProcess) -> None:
    body = "def objective(hp, trial):\n    x = hp.Float('x', 0.0, 1.0)\n    return "
    model = cli.file("model.py", body + "{'loss': x, 'size': 1 - x}")
    tpe = ("--search", "tpe", "--seed", 1)
    old = ("--objective", "loss:min", "--trials", 6, "--study", cli.study("old"))
    assert cli("run", model, *LIGHT, *tpe, *old).code == 0

    warm = ("--warm-start", cli.study("old"), "--trials", 2)
    both = ("--objective", "size:min", "--objective", "loss:min")
    ended = cli("run", model, *LIGHT, *tpe, *both, *warm, "--study", cli.study())
    assert ended.code == 0, ended.err
    assert "warm start: 6 of 6 trials of " in ended.err
    best = max(trials(cli.study("old")), key=lambda trial: trial["params"]["x"])
    assert trials(cli.study())[0]["params"] == best["params"]  # of the first objective now

    cli.file("model.py", body + "{'loss': x, 'seconds': 1 - x}")
    both = ("--objective", "loss:min", "--objective", "seconds:min")
    ended = cli("run", model, *LIGHT, *tpe, *both, *warm, "--study", cli.study("b"))
    assert ended.code == 0, ended.err
    assert "the best configuration only; no trial of it measured all of loss, seconds" in ended.err
