"""`hptune.keras_callback` in an objective of the user's own."""

from __future__ import annotations

import pytest

from attempts import Attempts
from hptune.core.attempt import Cause, Halt
from keras_models import BUILD, DATA

pytestmark = pytest.mark.keras

OBJECTIVE = """
import hptune

def objective(hp, trial):
    model, (train, validation) = build_model(hp), load_data()
    reporting = hptune.keras_callback(trial)
    for _ in range(2):
        history = model.fit(*train, validation_data=validation, epochs=2, callbacks=[reporting])
    return {"val_loss": history.history["val_loss"][-1]}
"""


def test_it_reports_each_epoch_of_each_fit(attempts: Attempts) -> None:
    result = attempts.run(BUILD + DATA + OBJECTIVE)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.steps == [1, 2, 3, 4]
    assert all({"loss", "val_loss"} <= set(metrics) for _, metrics in result.reports)


STEP = """
_LOGS = keras.callbacks.CallbackList.on_epoch_end

def _with_step(callbacks, epoch, logs=None):
    logs["step"] = 3.0
    _LOGS(callbacks, epoch, logs)

keras.callbacks.CallbackList.on_epoch_end = _with_step
"""


@pytest.mark.parametrize("training", [OBJECTIVE, ""], ids=["objective", "build_model"])
def test_a_metric_called_step_is_not_reported(attempts: Attempts, training: str) -> None:
    result = attempts.run(BUILD + DATA + STEP + training)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert {*result.reports[0][1]} == {"loss", "val_loss"}


def test_it_ends_the_training_when_the_trial_is_to_stop(attempts: Attempts) -> None:
    result = attempts.run(BUILD + DATA + OBJECTIVE, halt=(1, Halt.PRUNE), epochs=4)
    assert result.ending.cause is not Cause.RETURNED
    assert result.steps in ([1], [1, 2]), "the order may come within the second epoch"


STOPPED_WITHIN = """
import pathlib, time
import hptune

class Watching(keras.callbacks.Callback):
    ended = []

    def on_train_batch_begin(self, batch, logs=None):
        while self.ended and TRIAL.halt is None:
            time.sleep(0.01)

    def on_epoch_end(self, epoch, logs=None):
        self.ended.append(epoch)

def objective(hp, trial):
    global TRIAL
    TRIAL, model, (train, validation) = trial, build_model(hp), load_data()
    callbacks = [hptune.keras_callback(trial), Watching()]
    try:
        model.fit(*train, validation_data=validation, epochs=3, callbacks=callbacks)
    finally:
        print("ended", Watching.ended)
"""


def test_an_epoch_that_is_cut_short_ends_for_no_callback(attempts: Attempts) -> None:
    """One that saves the model would take it for a whole one, and continue with the next."""
    result = attempts.run(BUILD + DATA + STOPPED_WITHIN, halt=(1, Halt.PAUSE), epochs=3)
    assert (result.ending.cause, result.steps) == (Cause.PAUSED, [1]), result.log
    assert "ended [0]" in result.log


@pytest.mark.parametrize("training", [OBJECTIVE, ""], ids=["objective", "build_model"])
def test_a_training_waits_at_a_rung_and_stops_before_its_next_epoch(
    attempts: Attempts, training: str
) -> None:
    result = attempts.run(BUILD + DATA + training, halt=(1, Halt.PRUNE), rungs=(1,), epochs=4)
    assert result.ending.cause is Cause.PRUNED, result.log
    assert result.steps == [1]
    assert "Epoch 2/" not in result.log
