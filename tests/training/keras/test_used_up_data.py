"""Training data that is used up after one epoch."""

from __future__ import annotations

import pytest

from attempts import Attempts
from hptune.core.attempt import USED_UP, Cause
from keras_models import BUILD

pytestmark = pytest.mark.keras
ON_TENSORFLOW = pytest.mark.tensorflow  # PyTorch executes one step at a time

DATA = """
import keras, numpy as np
x, y = arrays(160)
STEPS = 1
FIT = {arguments}

class Model(keras.Sequential):
    def compile(self, *arguments, **options):
        super().compile(*arguments, steps_per_execution=STEPS, **options)

keras.Sequential = Model

def batches():
    for i in range(20):
        yield x[8 * i:8 * i + 8], y[8 * i:8 * i + 8]

def endless():
    while True:
        yield from batches()


class Stops(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        self.model.stop_training |= batch == 2 and self.seen > 1
    seen = 0
    def on_epoch_begin(self, epoch, logs=None):
        self.seen += 1

def dataset():
    from tensorflow.data import Dataset
    return Dataset.from_tensor_slices((x, y)).filter(lambda *_: True).batch(9)

def load_data():
    return {data}, (x, y)
"""


@pytest.mark.parametrize(
    ("data", "arguments", "batches"),
    [
        ("batches()", "{}", 20),
        ("batches()", '{"steps_per_epoch": 15}', 15),
        ("endless()", '{"steps_per_epoch": 15}', None),
        ("(x, y)", '{"batch_size": 50}', None),
        pytest.param("(x, y)", '{"batch_size": 8}; STEPS = 8', None, marks=ON_TENSORFLOW),
        pytest.param("batches()", "{}; STEPS = 5", 20, marks=ON_TENSORFLOW),
        pytest.param("dataset()", "{}", None, marks=ON_TENSORFLOW),
        ("(x, y)", '{"callbacks": [Stops()]}', None),
    ],
)
def test_a_generator_that_is_used_up_is_told(
    attempts: Attempts, data: str, arguments: str, batches: int | None
) -> None:
    text = BUILD + DATA.replace("{arguments}", arguments if "Stops" not in arguments else "{}")
    if "Stops" in arguments:
        text += f"FIT = {arguments}\n"
    result = attempts.run(text.replace("{data}", data), epochs=3)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert (USED_UP in result.ending.reason) == (USED_UP in result.log) == bool(batches), result.log
    if batches:
        assert f"batches instead of {batches}: {USED_UP}. Give arrays" in result.ending.reason
