"""Keras models, as with KerasTuner: every form that a model file may have."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from attempts import Attempts

from tuner.config.model_file import check_path
from tuner.config.objectives import resolve_goals
from tuner.core.trial import Cause, Direction, Score
from tuner.errors import UsageError
from tuner.worker.forkserver.client import ForkServer
from tuner.worker.orders import ModelOrder

BUILD = """
import keras
import keras_tuner
import numpy as np
from copy import deepcopy

OBJECTIVE = "val_loss"

def build_model(hp):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 2, 4))])
    model.add(keras.layers.Dense(1))
    model.compile(keras.optimizers.SGD(hp.Float("rate", 1e-3, 1.0)), "mse")
    return model

def arrays(count):
    draw = np.random.default_rng(count)
    x = draw.normal(size=(count, 2)).astype("float32")
    return x, (x[:, :1] - 2 * x[:, 1:]).astype("float32")
"""
DATA = """
def load_data():
    return arrays(32), arrays(8)
"""
HYPERMODEL = BUILD.replace("def build_model(hp):", "def _build(hp):") + DATA

EVALUATE = """
import runpy, sys
import keras
names = runpy.run_path(sys.argv[1])
train, validation = names["load_data"]()
model = keras.models.load_model(sys.argv[2])
print(model.evaluate(*validation, verbose=0))
"""


@pytest.fixture
def warm(warm_keras: ForkServer) -> ForkServer:
    """A fork server that has imported Keras."""
    return warm_keras


def evaluated(model_file: Path, model: Path) -> float:
    """Return the validation loss of a saved model, in a fresh process."""
    ended = subprocess.run(
        [sys.executable, "-c", EVALUATE, str(model_file), str(model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return float(ended.stdout.split()[-1])


def test_a_build_function_with_data(attempts: Attempts) -> None:
    result = attempts.run(BUILD + DATA, epochs=3, rate=0.1)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.steps == [1, 2, 3]
    values = [metrics["val_loss"] for _, metrics in result.reports]
    assert result.ending.metrics["val_loss"] == min(values)
    assert set(result.ending.metrics) == {"loss", "val_loss"}
    assert (result.directory / "model.keras").exists()
    assert result.used is None  # nothing that the suggestion did not say


def test_the_model_is_that_of_the_best_epoch(attempts: Attempts, tmp_path: Path) -> None:
    """A large rate makes later epochs worse."""
    worse = BUILD.replace(
        "return model\n",
        """
    class Faster(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.optimizer.learning_rate = 0.05 if epoch < 2 else 1.5
    global callback
    callback = Faster()
    return model
""",
        1,
    )
    fit = """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    return model.fit(
        x, y, validation_data=validation, epochs=epochs, callbacks=[callback, *callbacks]
    )
"""
    result = attempts.run(worse + DATA + fit, epochs=4)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.ending.step == 2
    assert result.reports[-1][1]["val_loss"] > 2 * result.ending.metrics["val_loss"]
    measured = evaluated(tmp_path / "model.py", result.directory / "model.keras")
    assert measured == pytest.approx(result.ending.metrics["val_loss"], abs=1e-6)


def test_a_model_that_is_not_the_best_is_not_kept(attempts: Attempts) -> None:
    result = attempts.run(BUILD + DATA, incumbents=[Score((0.0,))])
    assert result.ending.cause is Cause.RETURNED
    assert not (result.directory / "model.keras").exists()


def test_batch_size_and_epochs_may_be_hyperparameters(attempts: Attempts) -> None:
    text = BUILD.replace(
        "    return model\n",
        '    hp.Int("batch_size", 2, 32)\n    hp.Int("epochs", 1, 5)\n    return model\n',
        1,
    )
    result = attempts.run(text + DATA, epochs=2, batch_size=4)
    assert result.steps == [1]  # the default of the hyperparameter, not of the study
    assert "8/8" in result.log


@pytest.mark.parametrize(
    ("load", "metric"),
    [
        ("def load_data(hp):\n    return arrays(hp.Int('size', 8, 64)), arrays(8)\n", "val_loss"),
        ("def load_data():\n    return (*arrays(32), np.ones(32)), arrays(8)\n", "val_loss"),
        ("def load_data():\n    return arrays(32), None\n", "loss"),
        (
            """
def load_data():
    import tensorflow as tf
    return tuple(
        tf.data.Dataset.from_tensor_slices(arrays(n)).batch(8).prefetch(1) for n in (32, 8)
    )
""",
            "val_loss",
        ),
        (
            """
class Batches(keras.utils.PyDataset):
    def __init__(self, count):
        super().__init__()
        self.x, self.y = arrays(count)
    def __len__(self):
        return len(self.x) // 8
    def __getitem__(self, index):
        return self.x[index * 8 : index * 8 + 8], self.y[index * 8 : index * 8 + 8]

def load_data():
    return Batches(32), Batches(8)
""",
            "val_loss",
        ),
    ],
    ids=["of hp", "weights", "no validation", "tf.data", "PyDataset"],
)
def test_data_of_every_kind(attempts: Attempts, load: str, metric: str) -> None:
    result = attempts.run(BUILD + load, objectives=[metric])
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.steps == [1, 2]
    assert math.isfinite(result.ending.metrics[metric])


FITS = {
    "passes all on": ("*args, **kwargs", "return model.fit(*args, **kwargs)", [1, 2]),
    "tunes epochs": (
        "*args, **kwargs",
        'return model.fit(*args, epochs=hp.Int("epochs", 3, 5), **kwargs)',
        [1, 2, 3],
    ),
    "tunes the batch size": (
        "*args, **kwargs",
        'return model.fit(*args, batch_size=hp.Choice("batch_size", [4, 8]), **kwargs)',
        [1, 2],
    ),
    "names what it takes": (
        "x, y, validation_data, callbacks=None",
        "return model.fit(x, y, validation_data=validation_data, callbacks=callbacks)",
        [1],
    ),
    "names them in another order": (
        "callbacks, *, y, x, **kwargs",
        "return model.fit(x, y, callbacks=deepcopy(callbacks), **kwargs)",
        [1, 2],
    ),
    "trains twice": (
        "x, y, **kwargs",
        "model.fit(x, y, **kwargs)\n        return model.fit(x, y, **kwargs)",
        [1, 2, 3, 4],
    ),
    "swallows the callbacks": (
        "x, y, validation_data, **kwargs",
        "return model.fit(x, y, validation_data=validation_data, epochs=3)",
        [],
    ),
}


@pytest.mark.parametrize(
    ("way", "form"), [*((way, "class") for way in FITS), ("passes all on", "instance")]
)
def test_a_hypermodel_with_its_own_fit(attempts: Attempts, way: str, form: str) -> None:
    signature, body, steps = FITS[way]
    text = f"""{HYPERMODEL}
class Mine(keras_tuner.HyperModel):
    def build(self, hp):
        return _build(hp)

    def fit(self, hp, model, {signature}):
        {body}

{"mine = Mine()" if form == "instance" else ""}
"""
    result = attempts.run(text)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.steps == steps
    assert math.isfinite(result.ending.metrics["val_loss"])
    assert result.ending.step in (steps or [1, 2, 3])
    if way == "tunes epochs":
        assert result.used is None or result.used.values["epochs"] == 3


@pytest.mark.parametrize(
    ("returned", "value", "metrics"),
    [
        ("0.25", 0.25, {"val_loss"}),
        ("np.float32(0.25)", 0.25, {"val_loss"}),
        ("{'val_loss': 0.25, 'size': 3, 'note': 'small'}", 0.25, {"val_loss", "size"}),
    ],
)
def test_a_fit_that_returns_its_value(
    attempts: Attempts, returned: str, value: float, metrics: set[str]
) -> None:
    text = f"""{HYPERMODEL}
class Mine(keras_tuner.HyperModel):
    def build(self, hp):
        return _build(hp)

    def fit(self, hp, model, *args, callbacks, **kwargs):
        for callback in callbacks:
            callback.set_model(model)
        for epoch in range(2):
            for callback in callbacks:
                callback.on_epoch_end(epoch, logs={{"val_loss": 1.0 - epoch / 10}})
        return {returned}
"""
    result = attempts.run(text)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.ending.metrics["val_loss"] == value
    assert set(result.ending.metrics) == metrics
    assert result.steps == [1, 2]
    assert (result.directory / "model.keras").exists()


def test_a_fit_may_return_what_no_epoch_reports(attempts: Attempts) -> None:
    """A number is minimised under a name of its own; names in a dict are free; lists are means."""
    text = (
        BUILD.replace('OBJECTIVE = "val_loss"', "").replace(
            '"mse")', '"mse", metrics=["accuracy"])'
        )
        + DATA
        + """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    history = model.fit(x, y, epochs=epochs, callbacks=callbacks, validation_data=validation)
    return RESULT
"""
    )
    number = text.replace("RESULT", "[4.0, min(history.history['val_loss']) * 0 + 2.0]")
    goals, notes = resolve_goals(attempts.probe(number))
    assert (goals.goal.metric, goals.goal.direction) == ("objective", Direction.MIN)
    assert "the objective is what fit() returns, minimised" in notes[0]
    result = attempts.run(number)
    assert (result.ending.metrics, result.steps) == ({"objective": 3.0}, [1, 2]), result.log

    own = text.replace("RESULT", '{"val_f1": 0.5, "cost": 2.0}')
    assert resolve_goals(attempts.probe(own), ["val_f1:max"])[1] == []
    result = attempts.run(own, objectives=["val_f1:max"])
    assert (result.ending.metrics, result.steps) == ({"val_f1": 0.5, "cost": 2.0}, [1, 2])

    folds = text.replace("RESULT", "[history, history]")
    result = attempts.run(folds, objectives=["val_loss"])
    assert result.ending.metrics["val_loss"] == min(each["val_loss"] for _, each in result.reports)


def test_a_fit_whose_history_was_taken_for_a_number_says_what_to_name(attempts: Attempts) -> None:
    text = BUILD.replace('OBJECTIVE = "val_loss"', "") + DATA
    text += """
def fit(hp, model, data, callbacks, epochs):
    return trained(model, data, callbacks)

def trained(model, data, callbacks):
    (x, y), validation = data
    return model.fit(x, y, callbacks=callbacks, validation_data=validation)
"""
    assert resolve_goals(attempts.probe(text))[0].goal.metric == "objective"
    result = attempts.run(text)
    assert result.ending.cause is Cause.UNKNOWN_METRIC
    assert "fit() returned a History and no number: name the metric" in result.ending.reason
    assert result.ending.reason.endswith("the trial reports: loss, val_loss")


@pytest.mark.parametrize("returned", ["history", "{'val_loss': history.history['val_loss'][-1]}"])
def test_a_fit_that_trains_another_model_has_that_one_kept(
    attempts: Attempts, tmp_path: Path, returned: str
) -> None:
    text = f"""{BUILD}{DATA}
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    other = keras.models.clone_model(model)
    other.compile("sgd", "mse")
    history = other.fit(
        x, y, validation_data=validation, epochs=epochs, callbacks=callbacks, shuffle=False
    )
    return {returned}
"""
    result = attempts.run(text, epochs=2)
    assert result.ending.cause is Cause.RETURNED, result.log
    measured = evaluated(tmp_path / "model.py", result.directory / "model.keras")
    assert measured == pytest.approx(result.ending.metrics["val_loss"], abs=1e-5)


@pytest.mark.parametrize("built", ["(object(), object())", "Own()"])
def test_a_fit_that_trains_no_keras_model(attempts: Attempts, built: str) -> None:
    result = attempts.run(
        f"""
        OBJECTIVE, DIRECTION = "value", "max"

        class Own:
            pass

        def build_model(hp):
            hp.Float("x", 0, 1)
            return {built}

        def load_data():
            return None

        def fit(hp, model, data, callbacks, epochs):
            return 1.0
        """
    )
    assert result.ending.cause is Cause.RETURNED, result.log
    assert "has no method save" in result.log


@pytest.mark.parametrize(
    ("returned", "cause", "words"),
    [
        ("'good'", Cause.EXCEPTION, "fit() returned str"),
        ("None", Cause.EXCEPTION, "fit() returned NoneType"),
        ("{'other': 1.0}", Cause.UNKNOWN_METRIC, "unknown metric 'val_loss'"),
        ("float('nan')", Cause.RETURNED, ""),  # which the engine rejects
    ],
)
def test_a_fit_that_returns_no_value(
    attempts: Attempts, returned: str, cause: Cause, words: str
) -> None:
    fit = f"\ndef fit(hp, model, data, callbacks, epochs):\n    return {returned}\n"
    result = attempts.run(BUILD + DATA + fit)
    assert result.ending.cause is cause
    assert words in result.ending.reason


FIT = """
FIT = {
    "validation_split": 0.25, "batch_size": 4, "shuffle": False, "epochs": 3, "steps_per_epoch": 5,
    "class_weight": {0: 1.0},
    "callbacks": [keras.callbacks.LambdaCallback(on_train_begin=lambda _: print("begun"))],
}

def load_data():
    x, y = arrays(32)
    return (x, 0 * y), None
"""


def test_a_file_says_what_search_would_have_been_given(attempts: Attempts) -> None:
    found = attempts.probe(BUILD + FIT)
    assert (found.metric, found.constants["EPOCHS"]) == ("val_loss", 3)
    run = attempts.run(BUILD + FIT, epochs=3)
    assert run.ending.cause is Cause.RETURNED, run.ending
    assert len(run.reports) == 3
    assert "begun" in run.log
    assert "5/5" in run.log


def test_a_hypermodel_may_make_its_own_data(attempts: Attempts) -> None:
    fit = """
    def fit(self, hp, model, **keywords):
        return model.fit(*arrays(32), validation_data=arrays(8), **keywords)
"""
    build = BUILD.replace("def build_model(hp):", "def _build(hp):")
    text = f"{build}\nclass Model(keras_tuner.HyperModel):\n    build = staticmethod(_build)\n{fit}"
    assert attempts.run(text).ending.cause is Cause.RETURNED


def test_an_unknown_metric_lists_those_there_are(attempts: Attempts) -> None:
    text = BUILD.replace('OBJECTIVE = "val_loss"', 'OBJECTIVE, DIRECTION = "val_auc", "max"')
    # Without the callback, which may report it, no trial would start.
    result = attempts.run(text + DATA + "FIT = {'callbacks': [keras.callbacks.Callback()]}\n")
    assert result.ending.cause is Cause.UNKNOWN_METRIC
    assert result.ending.reason == ("unknown metric 'val_auc'; the trial reports: loss, val_loss")


def test_a_loss_that_is_no_number_ends_the_trial(attempts: Attempts) -> None:
    text = BUILD.replace('hp.Float("rate", 1e-3, 1.0)', 'hp.Float("rate", 1e-3, 1.0) * 1e30')
    result = attempts.run(text + DATA, epochs=50)
    assert result.ending.cause is Cause.NON_FINITE
    assert "at step" in result.ending.reason
    assert len(result.steps) < 50


@pytest.mark.parametrize(
    ("metrics", "metric", "direction"),
    [("", "val_loss", Direction.MIN), (', metrics=["accuracy"]', "val_accuracy", Direction.MAX)],
)
def test_the_goal_that_nobody_named(
    attempts: Attempts, tmp_path: Path, metrics: str, metric: str, direction: Direction
) -> None:
    text = BUILD.replace('OBJECTIVE = "val_loss"', "").replace('"mse")', f'"mse"{metrics})')
    found = attempts.probe(text + DATA)
    goals, notes = resolve_goals(found)
    goal = goals.goal
    assert (goal.metric, goal.direction) == (metric, direction)
    assert metric in notes[0]


def test_a_misspelt_metric_is_told_of_before_the_first_trial(attempts: Attempts) -> None:
    text = BUILD.replace('"mse")', '"mse", metrics=["mae"])') + DATA
    found = attempts.probe(text)
    reported = attempts.run(text, epochs=1).reports[0][1]
    assert {*reported} == {"loss", "mae", "val_loss", "val_mae"}
    assert {*reported, "params"} <= {*found.metrics}
    assert resolve_goals(found, ["val_mae"], ["params<2e6"])[1] == []
    with pytest.raises(UsageError, match="is called 'quirk': it reports loss, mae, val_loss"):
        resolve_goals(found, ["quirk"])  # although its direction is not known
    with pytest.raises(UsageError, match=r"is called 'parms': did you mean params\?"):
        resolve_goals(found, [], ["parms<2e6"])
    # A callback of the user's may report it.
    found = replace(found, reports_others=True)
    _, notes = resolve_goals(found, ["val_mea"], [], Direction.MIN)
    assert [note.partition("?")[0] for note in notes] == [
        "no metric of the model is called 'val_mea': did you mean val_mae"
    ]
    _, notes = resolve_goals(found, ["quirk"], [], Direction.MIN)
    assert notes[0].startswith("'quirk' is not among the model's own metrics (loss, ")
    with pytest.raises(UsageError, match=r"did you mean val_mae.*If a callback reports it"):
        resolve_goals(found, ["val_mea"])


def test_only_a_model_without_code_of_the_users_cannot_report_other_metrics(
    attempts: Attempts,
) -> None:
    text = BUILD + DATA.replace("arrays(8)", "None")
    found = attempts.probe(text + "FIT = {'callbacks': [keras.callbacks.Callback()]}\n")
    assert found.reports_others
    assert (
        "there is no validation data, so loss is measured" in resolve_goals(found, ["loss"])[1][0]
    )
    found = replace(found, reports_others=False)
    with pytest.raises(UsageError, match="called 'val_loss': there is no validation data"):
        resolve_goals(found)
    with pytest.raises(UsageError, match=r"called 'val_lss': did you mean loss\?"):
        resolve_goals(found, ["val_lss"])


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
    measured = evaluated(tmp_path / "model.py", result.directory / "model.keras")
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
    order = ModelOrder(source, str(tmp_path), run.directory / "model.keras", space, params)
    assert attempts.warm.try_model(order) == loader


def test_the_same_seed_gives_the_same_training(attempts: Attempts) -> None:
    text = BUILD.replace(
        "    model.add(", "    model.add(keras.layers.Dropout(0.5))\n    model.add("
    )
    runs = [
        attempts.run(text + DATA, seed=seed, deterministic=True).ending.metrics
        for seed in (3, 3, 4)
    ]
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


def test_a_parameter_that_only_a_trial_finds(attempts: Attempts) -> None:
    """It is behind a value that the probe does not try."""
    text = BUILD.replace(
        "    return model\n",
        '    if 2.5 < hp.Float("x", 0, 3) < 3:\n        hp.Choice("late", [1, 2, 3])\n'
        "    return model\n",
        1,
    )
    result = attempts.run(text + DATA, x=2.7)
    assert result.used is not None
    assert result.used.values["late"] == 1
    declared: Any = result.used.declared
    assert [each["config"]["name"] for each in declared] == ["late"]
    assert attempts.run(text + DATA, x=1.0).used is None


# --- what hptune measures by itself -----------------------------------------------------------


def test_what_is_named_is_measured(attempts: Attempts) -> None:
    result = attempts.run(
        BUILD + DATA,
        objectives=("val_loss", "params"),
        constraints=("model_bytes<1e9", "seconds_per_epoch<100"),
        epochs=3,
    )
    assert result.ending.cause is Cause.RETURNED
    metrics = result.ending.metrics
    import keras

    model = keras.models.load_model(result.directory / "model.keras")
    assert metrics["params"] == sum(w.numpy().size for w in model.trainable_weights) > 0
    assert metrics["model_bytes"] == sum(w.numpy().nbytes for w in model.weights)
    assert 0.0 < metrics["seconds_per_epoch"] < 100.0
    for _, reported in result.reports:
        assert reported["params"] == metrics["params"]
    # The first objective decides the epoch.
    assert metrics["val_loss"] == min(reported["val_loss"] for _, reported in result.reports)


def test_what_nobody_named_is_not_measured(attempts: Attempts) -> None:
    assert set(attempts.run(BUILD + DATA).ending.metrics) == {"loss", "val_loss"}


def test_a_measured_metric_may_be_the_only_objective(attempts: Attempts) -> None:
    result = attempts.run(BUILD + DATA, objectives=("seconds_per_epoch",), epochs=3)
    assert result.ending.cause is Cause.RETURNED
    assert result.ending.step == 3, "the last epoch, where none is better than another"
    assert (result.directory / "model.keras").exists()


def test_the_best_epoch_is_one_that_keeps_the_constraints(attempts: Attempts) -> None:
    free = attempts.run(BUILD + DATA, epochs=4)
    losses = [reported["loss"] for _, reported in free.reports]
    bound = sorted(losses)[-2]  # kept by all epochs but one
    result = attempts.run(
        BUILD + DATA, objectives=("val_loss:max",), constraints=(f"loss<={bound!r}",), epochs=4
    )
    kept = [r["val_loss"] for _, r in result.reports if r["loss"] <= bound]
    assert result.ending.metrics["val_loss"] == max(kept)


def test_a_model_that_is_none_of_the_front_is_not_kept(attempts: Attempts) -> None:
    goals = ("val_loss", "params")
    behind = attempts.run(BUILD + DATA, incumbents=[Score((0.0, 1.0))], objectives=goals)
    dominated = attempts.run(BUILD + DATA, incumbents=[Score((0.0, 1e9))], objectives=goals)
    assert not (behind.directory / "model.keras").exists()
    assert (dominated.directory / "model.keras").exists()
