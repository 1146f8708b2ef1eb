"""A small Keras model as a model file, in parts that tests change."""

from __future__ import annotations

from pathlib import Path

from child import answer_of

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
import runpy, sys
import keras
names = runpy.run_path(sys.argv[1])
train, validation = names["load_data"]()
model = keras.models.load_model(sys.argv[2])
print(model.evaluate(*validation, verbose=0))
"""


def evaluated(model_file: Path, model: Path) -> float:
    """Return the validation loss of a saved model, in a fresh process."""
    return float(answer_of(EVALUATE, str(model_file), str(model)))
