"""Kept models that cannot be loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from attempts import Attempts
from requirements import require

from tuner.config.model_file import ObjectiveSource, SourceKind, check_path
from tuner.errors import StudyError
from tuner.training.keras.kept_model import load_kept
from tuner.worker.forkserver.client import ForkServer


@pytest.fixture
def warm(warm_keras: ForkServer) -> ForkServer:
    """A fork server that has imported Keras."""
    return warm_keras


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "cannot be loaded: .*No such file"),
        ("def objective(hp, trial) 1", "cannot be loaded: .*expected ':'"),
        ("def objective(hp, trial): ...", "is no Keras model, but what objective.. stored"),
    ],
)
def test_files_that_need_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None, words: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "kept_model_file", None)
    file = tmp_path / "kept_model_file.py"
    if code is not None:
        file.write_text(code)
    source = ObjectiveSource(SourceKind.FILE, str(file))
    for name in ("model.weights.h5", "checkpoint"):
        with pytest.raises(StudyError, match=words):
            load_kept(tmp_path / name, source, (), {})


def test_a_damaged_model(tmp_path: Path) -> None:
    require("keras")
    model = tmp_path / "model.keras"
    model.write_bytes(b"damaged")
    with pytest.raises(StudyError, match="cannot be loaded"):
        load_kept(model, ObjectiveSource(SourceKind.FILE, str(tmp_path / "gone.py")), (), {})


RETURNS_A_DICT = """
import keras
import numpy as np

OBJECTIVE = "error"
X = np.random.default_rng(0).normal(size=(32, 2)).astype("float32")
Y = X.sum(axis=1, keepdims=True)

def build_model(hp):
    hp.Choice("unused", [1, 2])
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model

def error(model):
    return float(np.mean((np.array(model(X)) - Y) ** 2))

def fit(hp, model, data, callbacks, epochs):
    model.fit(X, Y, epochs=epochs, callbacks=callbacks, verbose=0)
    return {"error": error(model)}
"""


def test_a_model_whose_fit_returned_the_result_is_as_fit_left_it(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("keras")
    monkeypatch.setattr(sys, "path", [*sys.path])
    result = attempts.run(RETURNS_A_DICT, objectives=["error:min"], keep_last=True)
    (result.directory / "model.keras").unlink()
    source = check_path(tmp_path / "model.py")
    model = load_kept(result.directory, source, (), {"unused": 1}, is_of_epoch=False)
    error = sys.modules.pop("model").error
    assert error(model) == pytest.approx(result.ending.metrics["error"], abs=1e-6)
