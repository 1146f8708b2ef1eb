"""Whole studies whose trials share their data."""

from __future__ import annotations

import pytest

from in_process import InProcess
from real_runs import Hptune, trials, wait_for
from requirements import require

pytestmark = pytest.mark.keras


MODEL = """
import pathlib
import keras
import numpy as np

def build_model(hp):
    model = keras.Sequential([keras.Input((50,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(hp.Float("rate", 1e-5, 1e-3)), "mse")
    return model

def load_data():
    with open("calls", "a") as calls:
        calls.write(".")
    draw = np.random.default_rng(0)
    x = draw.normal(size=(8000, 50)).astype("float32")
    y = x[:, :1].copy()
    return (x[1000:], y[1000:]), (x[:1000], y[:1000])

def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    x *= 0.5  # the other trials do not see it
    return model.fit(x, y, validation_data=validation, epochs=epochs, callbacks=callbacks)
"""


def test_a_study_ends_the_same_with_data_loaded_once(
    hptune: Hptune, cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("torch")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    model = hptune.file("model.py", MODEL)
    results = {}
    # Only a fork server of the study's own holds its data.
    runs = (("off", 3, cli), ("on", 1, hptune))
    for cache, expected, command in runs:
        (hptune.directory / "calls").unlink(missing_ok=True)
        ended = command(
            *("run", model, "--trials", 2, "--epochs", 1, "--seed", 1, "--executor", "joblib"),
            *("--search", "random", "--cache-data", cache, "--study", hptune.study(cache)),
        )
        assert ended.code == 0, ended.err
        results[cache] = [trial["value"] for trial in trials(hptune.study(cache))]

        assert len((hptune.directory / "calls").read_text()) == expected
    assert results["off"] == results["on"]
    hptune.assert_nothing_left()


@pytest.mark.slow  # a killed master with data is met in faults/test_pickup too
def test_a_killed_master_leaves_no_data_behind(hptune: Hptune) -> None:
    hptune.file("model.py", MODEL)
    started = hptune.start(
        *("run", "model.py", "--trials", 50, "--executor", "joblib", "--study", hptune.study())
    )
    wait_for(lambda: list(hptune.temporary.glob("hptune-data-*/0/*.npy")), "the data")
    started.kill()
    hptune.assert_nothing_left()
