"""A Keras callback for trainings within `objective(hp, trial)`."""

from __future__ import annotations

import functools
from typing import Any

from ..context import reportable


def keras_callback(trial: Any) -> Any:
    """Return a Keras callback that reports each epoch, and ends the training when the trial is to.

    For a `model.fit` in `objective(hp, trial)`. Epochs count on over several calls of `fit` with
    the same callback. A trial that is to stop does so within an epoch at once, where `fit` does not
    return. After the training, return the result as usual: it is not used if the trial was told to
    stop.

    Example::

        def objective(hp, trial):
            model = build(hp)
            history = model.fit(x, y, validation_data=validation, epochs=trial.epochs,
                                callbacks=[hptune.keras_callback(trial)])
            return {"val_loss": min(history.history["val_loss"])}

    Args:
        trial: The trial, as `objective` gets it.
    """
    return _callback_class()(trial)


@functools.cache
def _callback_class() -> Any:
    import keras

    class ReportingCallback(keras.callbacks.Callback):
        def __init__(self, trial: Any) -> None:
            super().__init__()
            self._trial = trial
            self._step = 0

        # At the begin also where the objective is called to find its hyperparameters.
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            if self._trial.should_stop():  # Keras would end the epoch for other callbacks
                self._trial.stop_if_told()

        on_train_batch_end = on_train_begin

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self._step = max(self._step, epoch) + 1
            self._trial.report(self._step, **reportable(logs or {}))
            self.model.stop_training |= self._trial.should_stop()

    return ReportingCallback
