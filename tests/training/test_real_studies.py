"""Whole studies: parameters that trials find join the space, and `best/` has the best model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from attempts import Attempts
from hptune.core.attempt import Cause
from hptune.worker.forkserver.client import ForkServer
from in_process import InProcess
from real_runs import rows, trials

LIGHT = ("--executor", "joblib")


def test_scopes_branches_and_late_parameters(cli: InProcess) -> None:
    model = cli.file(
        "model.py",
        """
        def objective(hp, trial):
            kind = hp.Choice("kind", ["linear", "tree"])
            with hp.conditional_scope("kind", ["linear"]):
                if kind == "linear":
                    hp.Float("rate", 1e-4, 1e-1, sampling="log")
            with hp.conditional_scope("kind", ["tree"]):
                if kind == "tree":
                    grow = hp.Boolean("grow")
                    with hp.conditional_scope("grow", [True]):
                        if grow:
                            hp.Int("depth", 1, 9)
            for i in range(hp.Int("layers", 1, 3)):
                hp.Int(f"units_{i}", 1, 1000)
            assert hp.Choice("kind", ["linear", "tree"]) == kind  # declared again, the same
            if trial.number:
                hp.Int("late", 1, 1000)
            return float(len(hp.values))
        """,
    )
    ended = cli("run", model, *LIGHT, "--trials", "30", "--study", cli.study())
    assert ended.code == 0, ended.err
    found = trials(cli.study())
    assert {trial["state"] for trial in found} == {"COMPLETE"}
    for trial in found:
        params = trial["params"]
        assert ("rate" in params) == (params["kind"] == "linear")
        assert ("grow" in params) == (params["kind"] == "tree")
        assert ("depth" in params) == params.get("grow", False)
        assert all(f"units_{i}" in params for i in range(params["layers"]))
        assert ("late" in params) == (trial["number"] > 0)
    assert {trial["params"]["kind"] for trial in found} == {"linear", "tree"}
    # What only a trial found is part of the space from then on, and varied.
    facts = {
        row["key"]: json.loads(row["value"]) for row in rows(cli.study(), "SELECT * FROM study")
    }
    names = {entry["config"]["name"] for entry in facts["space"]}
    assert names == {
        "kind", "rate", "grow", "depth", "layers", "units_0", "units_1", "units_2", "late"
    }  # fmt: skip
    assert len({trial["params"].get("late") for trial in found}) > 10
    assert len({trial["params"].get("units_2") for trial in found}) > 5
    # The file still declares it when it is read: nothing has changed.
    assert cli("resume", cli.study(), "--trials", "32").code == 0


def test_what_the_best_objective_left_is_kept(cli: InProcess) -> None:
    model = cli.file(
        "model.py",
        """
        OBJECTIVE, EPOCHS = "value:max", 3

        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            for step in range(1, trial.epochs + 1):
                (trial.checkpoint_dir / f"weights_{step}.txt").write_text(f"{trial.number}: {x}")
                trial.report(step, score=x * step)
                if trial.should_stop():
                    return None
            return {"value": x, "size": 3}
        """,
    )
    ended = cli("run", model, *LIGHT, "--trials", "6", "--study", cli.study())
    assert ended.code == 0, ended.err
    best = max(trials(cli.study()), key=lambda trial: trial["value"])
    kept = cli.study() / "best" / "checkpoint"
    text = f"{best['number']}: {best['params']['x']}"
    assert {path.name: path.read_text() for path in kept.iterdir()} == {
        f"weights_{step}.txt": text for step in (1, 2, 3)
    }
    assert json.loads((cli.study() / "best" / "best.json").read_text())["trial"] == best["number"]
    # The best three can train on. What the others left is gone; their logs stay.
    ranked = sorted(trials(cli.study()), key=lambda trial: -trial["value"])
    left = {path.parent.name for path in (cli.study() / "trials").glob("*/checkpoint")}
    assert left == {str(trial["number"]) for trial in ranked[:3]}
    assert len(list((cli.study() / "trials").glob("*/log.txt"))) == 6
    steps = rows(cli.study(), "SELECT trial, step, value FROM reports WHERE metric = 'score'")
    assert len(steps) == 18


KERAS = """
import keras
import numpy as np

OBJECTIVE, EPOCHS = "val_loss", 4

class Scale(keras.layers.Layer):  # not registered with Keras
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones")
    def call(self, x):
        return x * self.scale

def build_model(hp):
    model = keras.Sequential([keras.Input((2,)), Scale()])
    if hp.Boolean("hidden"):
        model.add(keras.layers.Dense(hp.Int("units", 2, 8), "relu"))
    model.add(keras.layers.Dropout(hp.Float("dropout", 0, 0.5)))
    model.add(keras.layers.Dense(1))
    model.compile(keras.optimizers.Adam(hp.Float("rate", 1e-3, 1.0, sampling="log")), "mse")
    return model

def arrays(count):
    draw = np.random.default_rng(count)
    x = draw.normal(size=(count, 2)).astype("float32")
    return x, (x[:, :1] - 2 * x[:, 1:]).astype("float32")

def load_data():
    return arrays(64), arrays(32)
"""

BEST_MODEL = """
import runpy
import keras
from hptune import Study

def objective(hp, trial):
    trial.should_stop()  # the model file is read until here
    model = Study({study!r}).best_model()
    _, validation = runpy.run_path({users!r})["load_data"]()
    return model.evaluate(*validation, verbose=0)
"""


@pytest.mark.keras
def test_a_seed_repeats_a_run_and_the_best_model_is_the_best_trials(
    cli: InProcess, warm: ForkServer
) -> None:
    model = cli.file("model.py", KERAS)

    def run(name: str, *, count: int) -> list[tuple[Any, ...]]:
        study = cli.study(name)
        ended = cli(
            "run", model, "--search", "random", "--trials", count, "--seed", 5,
            *LIGHT, "--workers", "1", "--study", study,
        )  # fmt: skip
        assert ended.code == 0, ended.err
        return [
            (trial["state"], trial["params"], trial["value"], trial["step"])
            for trial in trials(study)
        ]

    first = run("first", count=5)
    assert {state for state, *_ in first} == {"COMPLETE"}
    assert run("second", count=2) == first[:2]

    study = cli.study("first")
    best = min(first, key=lambda trial: trial[2])
    assert any(step != 4 for *_, step in first), "no trial whose last epoch is not its best"
    # The study loads its models with the code that it ran.
    cli.file("model.py", KERAS.replace("return x * self.scale", "return 3 * x * self.scale"))
    loads = BEST_MODEL.format(study=str(study), users=str(model))
    loaded = Attempts(warm, cli.directory, file="loads.py").run(loads)
    assert loaded.ending.cause is Cause.RETURNED, loaded.log
    measured = loaded.ending.metrics["value"]
    assert measured == pytest.approx(best[2], abs=1e-6)
    assert "model.py changed since the study ran" in loaded.log
    assert [path.name for path in study.glob("trials/*/model*")] == []
    output = cli("best", study).out
    assert f"{study.name}/best/model.keras" in output
    assert Path(json.loads(cli("best", study, "--json").out)["model"]).exists()
