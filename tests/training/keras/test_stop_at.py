"""A training that is asked to stop: when it notices, and where it ends."""

from __future__ import annotations

import pytest

from attempts import Attempts
from hptune.core.attempt import Cause, Halt, StopAt
from keras_models import BUILD, DATA

pytestmark = pytest.mark.keras

MODEL = """
import pathlib, time
import keras
import numpy as np
from hptune.training import context

OBJECTIVE, EPOCHS = "val_loss", 5

class Waits(keras.callbacks.Callback):
    "In the middle of the third epoch, it says so and waits for the order."

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == (2, 1):
            context.report(3, halfway=1.0)
            while context._current.halt is None:
                time.sleep(0.001)
            pathlib.Path("known_at").write_text(str(time.time()))

def build_model(hp):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 1, 2))])
    model.add(keras.layers.Dense(1))
    model.compile("sgd", "mse")
    return model

def load_data():
    x = np.ones((64, 2))
    return (x, x[:, :1]), (x, x[:, :1])

def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    return model.fit(x, y, validation_data=validation, epochs=epochs, batch_size=8,
                     callbacks=[*callbacks, Waits()])
"""


@pytest.mark.parametrize("halt", [Halt.PRUNE, Halt.PAUSE])
@pytest.mark.parametrize(
    ("stop_at", "steps"), [(StopAt.BATCH, [1, 2, 3]), (StopAt.EPOCH, [1, 2, 3, 3])]
)
def test_it_knows_at_once_and_leaves_where_it_was_asked_to(
    attempts: Attempts, halt: Halt, stop_at: StopAt, steps: list[int]
) -> None:
    result = attempts.run(MODEL, epochs=5, halt=(3, halt), stop_at=stop_at, checkpoint_every=1)
    assert result.ending.cause is halt.cause, result.log
    assert result.steps == steps
    known_at = float((result.directory.parents[2] / "known_at").read_text())
    # The training waits for the order until its time is up: nothing else ends the third epoch.
    assert 0.0 < known_at - result.told_at < 60.0
    kept = {int(path.stem) for path in (result.directory / "resume").glob("*.ckpt")}
    assert halt is Halt.PRUNE or max(kept) == len(steps) - 1, kept


OWN_LOOP = """
import time
from hptune.training import context

def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    callbacks = keras.callbacks.CallbackList(callbacks, model=model)
    callbacks.on_train_begin()
    for epoch in range(epochs):
        callbacks.on_epoch_begin(epoch)
        logs = model.train_on_batch(x, y, return_dict=True)
        while epoch == 2 and context._current.halt is None:
            time.sleep(0.01)
        callbacks.on_epoch_end(epoch, {"val_loss": logs["loss"]})
    return logs["loss"]
"""


def test_a_loop_of_the_users_own_stops_at_the_end_of_an_epoch(attempts: Attempts) -> None:
    """It need not call the callbacks for batches, as Keras's own loop does."""
    result = attempts.run(BUILD + DATA + OWN_LOOP, epochs=6, halt=(2, Halt.PRUNE))
    assert result.ending.cause is Cause.PRUNED, result.log
    assert result.steps in ([1, 2], [1, 2, 3]), "the order may be there before the second one ends"
