"""A small Keras model as a model file, in parts that tests change."""

from __future__ import annotations

from pathlib import Path

from attempts import Attempts
from hptune.core.attempt import Cause

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

EVALUATE = """
import runpy
import keras

def objective(hp, trial):
    trial.should_stop()  # the model file is read until here
    names = runpy.run_path({users!r})
    _, validation = names["load_data"]()
    return keras.models.load_model({model!r}, safe_mode=False).evaluate(*validation, verbose=0)
"""


def evaluated(attempts: Attempts, model_file: Path, model: Path) -> float:
    """Return the validation loss of a saved model, in a process that knows the user's file only."""
    users = model_file.with_name("users.py")
    model_file.rename(users)
    result = attempts.run(EVALUATE.format(users=str(users), model=str(model)))
    assert result.ending.cause is Cause.RETURNED, result.log
    return result.ending.metrics["value"]
