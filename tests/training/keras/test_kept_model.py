"""Kept models: which are kept, what loads them, and those that cannot be loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from attempts import Attempts
from hptune.core.attempt import Cause, Halt
from hptune.core.trial import Score
from hptune.errors import StudyError
from hptune.training.keras.kept_model import load_kept
from hptune.user_code.model_file import check_path
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.orders import ModelOrder
from keras_models import BUILD, DATA, evaluated
from requirements import require

pytestmark = pytest.mark.keras


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
            load_kept(tmp_path / name, source, (), {}, step=None)


def test_a_damaged_model(tmp_path: Path) -> None:
    require("keras")
    model = tmp_path / "model.keras"
    model.write_bytes(b"damaged")
    source = ObjectiveSource(SourceKind.FILE, str(tmp_path / "gone.py"))
    with pytest.raises(StudyError, match="cannot be loaded"):
        load_kept(model, source, (), {}, step=1)


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
    return float(np.mean((keras.ops.convert_to_numpy(model(X)) - Y) ** 2))

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
    model = load_kept(result.directory, source, (), {"unused": 1}, step=None)
    error = sys.modules.pop("model").error
    assert error(model) == pytest.approx(result.ending.metrics["error"], abs=1e-6)


def test_a_checkpoint_with_lora_of_a_model_that_is_built_without(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("keras")
    monkeypatch.setattr(sys, "path", [*sys.path])
    fit = "    model.fit(X, Y, epochs=epochs, callbacks=callbacks, verbose=0)\n"
    lora = f"{fit}    model.layers[0].enable_lora(2)\n    model.compile('sgd', 'mse')\n{fit}"
    text = RETURNS_A_DICT.replace(fit, lora)
    result = attempts.run(text, objectives=["error:min"], keep_last=True)
    (result.directory / "model.keras").unlink()
    source = check_path(tmp_path / "model.py")
    with pytest.raises(StudyError, match="other weights than what is built, as by enable_lora"):
        load_kept(result.directory, source, (), {"unused": 1}, step=None)
    sys.modules.pop("model")


RETURNS_A_HISTORY = (
    RETURNS_A_DICT[: RETURNS_A_DICT.index("def fit")].replace('"error"', '"val_loss"')
    + """
def load_data():
    return (X, Y), (X, Y)
"""
)


ENDS_ITSELF = """
FIT = {"callbacks": [keras.callbacks.EarlyStopping("val_loss", patience=1, min_delta=1e9)]}
"""
ADAPTS = """
def fit(hp, model, data, callbacks, epochs):
    model.layers[0].adapt(3 * X)
    return model.fit(X, Y, validation_data=(X, Y), epochs=epochs, callbacks=callbacks, verbose=0)
"""


@pytest.mark.parametrize(
    ("layers", "fit"), [("", ENDS_ITSELF), ("keras.layers.Normalization(), ", ADAPTS)]
)
def test_a_model_from_a_checkpoint_is_as_after_its_best_epoch(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layers: str, fit: str
) -> None:
    require("keras")
    monkeypatch.setattr(sys, "path", [*sys.path])
    text = RETURNS_A_HISTORY.replace("keras.layers.Dense", f"{layers}keras.layers.Dense") + fit
    result = attempts.run(text, objectives=["val_loss:min"], epochs=9, keep_last=True)
    assert result.ending.ended_early is (fit == ENDS_ITSELF), result.log
    (result.directory / "model.keras").unlink()
    source, step = check_path(tmp_path / "model.py"), result.ending.step
    model = load_kept(result.directory, source, (), {"unused": 1}, step=step)
    error = sys.modules.pop("model").error
    assert error(model) == pytest.approx(result.ending.metrics["val_loss"], abs=1e-6)


def test_a_trial_that_trains_on_gives_no_other_weights_for_those_of_its_result(
    attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("keras")
    monkeypatch.setattr(sys, "path", [*sys.path])
    attempts.run(RETURNS_A_HISTORY, epochs=2, keep_last=True, trial=1)
    since = attempts.run(
        RETURNS_A_HISTORY,
        epochs=9,
        trial=1,
        number=1,
        resume_from=2,
        halt=(4, Halt.STOP),
        checkpoint_every=1,
    )
    assert since.steps[:2] == [3, 4], since.log
    source, reached = check_path(tmp_path / "model.py"), since.steps[-1]
    with pytest.raises(StudyError, match="does not have the weights of epoch 2"):
        load_kept(since.directory, source, (), {"unused": 1}, step=2)
    model = load_kept(since.directory, source, (), {"unused": 1}, step=reached)
    error = sys.modules.pop("model").error
    assert error(model) == pytest.approx(dict(since.reports)[reached]["val_loss"], abs=1e-6)


def test_a_model_in_best_that_is_a_link_to_the_trials_own_stays_as_it_is(
    attempts: Attempts, tmp_path: Path
) -> None:
    best, own = tmp_path / "best.keras", tmp_path / "study" / "trials" / "1" / "model.keras"
    own.parent.mkdir(parents=True)
    best.write_text("of the result so far")
    own.hardlink_to(best)
    assert attempts.run(BUILD + DATA, trial=1).directory == own.parent
    assert best.read_text() == "of the result so far"
    assert own.stat().st_ino != best.stat().st_ino


def test_a_model_that_is_not_the_best_is_not_kept(attempts: Attempts) -> None:
    result = attempts.run(BUILD + DATA, incumbents=[Score((0.0,))])
    assert result.ending.cause is Cause.RETURNED
    assert not (result.directory / "model.keras").exists()


def test_a_model_that_is_none_of_the_front_is_not_kept(attempts: Attempts) -> None:
    goals = ("val_loss", "params")
    behind = attempts.run(BUILD + DATA, incumbents=[Score((0.0, 1.0))], objectives=goals)
    dominated = attempts.run(BUILD + DATA, incumbents=[Score((0.0, 1e9))], objectives=goals)
    assert not (behind.directory / "model.keras").exists()
    assert (dominated.directory / "model.keras").exists()


def test_a_function_without_source_costs_the_model_not_the_trial(attempts: Attempts) -> None:
    """As in a script from stdin: `keras.saving` reads the source of a lambda."""
    text = BUILD.replace("Dense(1)", "Dense(1, activation=eval('lambda x: 2 * x'))")
    result = attempts.run(text + DATA)
    assert result.ending.cause is Cause.RETURNED, result.ending
    assert (result.directory / "model.weights.h5").exists()
    assert "cannot be saved whole (could not get source code)" in result.log


NO_WEIGHTS = """
class Own(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.factor = self.add_weight(shape=())

    def call(self, x):
        return x * self.factor

    def save_own_variables(self, store):
        raise NotImplementedError("not yet")
"""


def test_weights_that_cannot_be_saved_cost_the_model_not_the_trial(attempts: Attempts) -> None:
    text = BUILD.replace("    model.add(", "    model.add(Own())\n    model.add(") + DATA
    result = attempts.run(text + NO_WEIGHTS)
    assert result.ending.cause is Cause.RETURNED, result.ending
    assert "The model is not kept, as its weights cannot be saved: not yet" in result.log
    assert not list(result.directory.glob("model.*"))


SAYS_WHAT_IT_IMPORTS = """
import atexit
import sys

before = {*sys.modules}
atexit.register(lambda: print("imported by a trial:", *{*sys.modules} - before))
"""


def test_no_trial_imports_tensorflow_to_save_its_model(attempts: Attempts) -> None:
    """As Keras does on each backend; it takes seconds, and the fork server did it for all."""
    require("tensorflow")
    result = attempts.run(SAYS_WHAT_IT_IMPORTS + BUILD + DATA)
    assert (result.directory / "model.keras").exists(), result.log
    _, words, imported = result.log.rpartition("imported by a trial:")
    assert words
    assert "tensorflow" not in imported.split()


CUSTOM = """
@keras.saving.register_keras_serializable()
class Double(keras.layers.Layer):
    def __init__(self, factor=2.0, **kwargs):
        super().__init__(**kwargs)
        self.factor = factor

    def call(self, x):
        return x * self.factor

    def get_config(self):
        return {**super().get_config(), "factor": self.factor}
"""


def test_a_layer_of_the_users_own(attempts: Attempts, tmp_path: Path) -> None:
    """A model with a registered layer can be loaded once the user's file is imported."""
    text = BUILD.replace("def build_model", f"{CUSTOM}\ndef build_model")
    text = text.replace("    model.add(", "    model.add(Double(3.0))\n    model.add(", 1)
    result = attempts.run(text + DATA)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert "cannot be saved" not in result.log
    measured = evaluated(attempts, tmp_path / "model.py", result.directory / "model.keras")
    assert measured == pytest.approx(result.ending.metrics["val_loss"], abs=1e-6)


CLOSURE = ('"mse")', "lambda y, p: keras.ops.mean((y - p) ** 2))")


OWN_LAYER = """
class Own(keras.layers.Layer):  # without get_config
    def __init__(self, factor):
        super().__init__()
        self.factor = factor
    def call(self, x):
        return self.factor * x
"""


@pytest.mark.parametrize(
    ("text", "loader"),
    [
        (BUILD, "keras"),
        (BUILD.replace(*CLOSURE), "study"),
        (
            OWN_LAYER.join(BUILD.partition("\n\n")[::2]).replace(
                "    model.compile", "    model.add(Own(2.0))\n    model.compile"
            ).replace("keras.Input((2,)), ", ""),
            "study",
        ),
        (
            BUILD.replace("Dense(1)", "Dense(1, own)") + "\ndef own(x): return x\n",
            "study",
        ),
    ],
)  # fmt: skip
def test_what_loads_a_kept_model(
    attempts: Attempts, tmp_path: Path, text: str, loader: str
) -> None:
    text += DATA
    run = attempts.run(text)
    assert run.ending.cause is Cause.RETURNED, run.ending
    source, space = check_path(tmp_path / "model.py"), attempts.probe(text).space
    params = {"units": 2, "rate": 0.001}
    order = ModelOrder(source, run.directory / "model.keras", space, params)
    assert attempts.warm.try_model(order) == loader
