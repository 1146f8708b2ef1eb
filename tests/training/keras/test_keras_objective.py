"""Keras models, as with KerasTuner: every form that a model file may have."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from attempts import Attempts
from hptune.core.attempt import Cause
from keras_models import BUILD, DATA, evaluated

pytestmark = pytest.mark.keras


def test_a_build_function_with_data(attempts: Attempts) -> None:
    result = attempts.run(BUILD + DATA, epochs=3, rate=0.1)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.steps == [1, 2, 3]
    values = [metrics["val_loss"] for _, metrics in result.reports]
    assert result.ending.metrics["val_loss"] == min(values)
    assert set(result.ending.metrics) == {"loss", "val_loss"}
    assert (result.directory / "model.keras").exists()
    assert result.used is None  # nothing that the suggestion did not say


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    "returned", ["history", "{'val_loss': min(history.history['val_loss']), 'size': 1}"]
)
def test_the_model_is_that_of_the_best_epoch(
    attempts: Attempts, tmp_path: Path, returned: str
) -> None:
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
    fit = f"""
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    history = model.fit(
        x, y, validation_data=validation, epochs=epochs, callbacks=[callback, *callbacks]
    )
    return {returned}
"""
    result = attempts.run(worse + DATA + fit, epochs=4)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.ending.step == 2
    assert result.reports[-1][1]["val_loss"] > 2 * result.ending.metrics["val_loss"]
    measured = evaluated(attempts, tmp_path / "model.py", result.directory / "model.keras")
    assert measured == pytest.approx(result.ending.metrics["val_loss"], abs=1e-6)


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


@pytest.mark.parametrize("callbacks", [("None", "None"), ("LOGS", "[[STOPS], LOGS]")])
def test_callbacks_are_given_as_to_keras_and_each_trial_has_logs_of_its_own(
    attempts: Attempts, tmp_path: Path, callbacks: tuple[str, str]
) -> None:
    for trial, given in enumerate(callbacks, 3):
        lines = f"""
STOPS = keras.callbacks.EarlyStopping()
LOGS = keras.callbacks.TensorBoard("logs")
FIT = {{"callbacks": {given}}}
"""
        run = attempts.run(BUILD + DATA + lines, trial=trial)
        assert run.ending.cause is Cause.RETURNED, run.ending
    logs = tmp_path / "logs"
    found = sorted(each.name for each in logs.iterdir()) if logs.exists() else []
    assert found == ([] if "None" in callbacks else ["3", "4"])


def test_a_loss_that_is_no_number_ends_the_trial(attempts: Attempts) -> None:
    text = BUILD.replace('hp.Float("rate", 1e-3, 1.0)', 'hp.Float("rate", 1e-3, 1.0) * 1e30')
    result = attempts.run(text + DATA, epochs=50)
    assert result.ending.cause is Cause.NON_FINITE
    assert "at epoch" in result.ending.reason
    assert len(result.steps) < 50


@pytest.mark.tensorflow
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
