"""The training that every variant runs: a small CNN on scikit-learn's digits."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from .cases import BATCH_SIZE, EPOCHS, Config

Arrays = tuple[NDArray[Any], NDArray[Any]]


@functools.cache
def data() -> tuple[Arrays, Arrays]:
    """Return training and validation images (8 x 8, scaled to 0..1) with their labels."""
    digits = load_digits()
    images = (digits.images[..., np.newaxis] / 16).astype("float32")
    return (images[:1437], digits.target[:1437]), (images[1437:], digits.target[1437:])


def build(config: Config) -> Any:
    """Return a compiled model whose initial weights depend on the configuration only."""
    keras.utils.clear_session()
    keras.utils.set_random_seed(config.seed)
    model = keras.Sequential(
        [
            keras.layers.Input((8, 8, 1)),
            keras.layers.Conv2D(config.filters, 3, activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Flatten(),
            keras.layers.Dense(config.units, activation="relu"),
            keras.layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(config.learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def fit(model: Any, config: Config, callbacks: Sequence[Any] = ()) -> Any:
    """Train a built model; return Keras's History."""
    (x, y), validation = data()
    # Seeded again, because a tool may draw random numbers between build and fit.
    keras.utils.set_random_seed(config.seed)
    return model.fit(
        x,
        y,
        validation_data=validation,
        batch_size=BATCH_SIZE,
        epochs=EPOCHS,
        verbose=0,
        callbacks=[*callbacks, FirstEpochMarker()],
    )


def train(config: Config, callbacks: Sequence[Any] = ()) -> float:
    """Build and train; return the best epoch's validation accuracy."""
    history = fit(build(config), config, callbacks)
    return float(max(history.history["val_accuracy"]))


class FirstEpochMarker(keras.callbacks.Callback):
    """Writes the time of the first epoch's end into a file, unless another process has done so."""

    def on_epoch_end(self, epoch: int, logs: object = None) -> None:  # noqa: ARG002 - Keras's
        if epoch > 0:
            return
        # Linux counts monotonic time from the machine's start, the same for every process.
        now = time.monotonic()
        try:
            with Path(os.environ["OVERHEAD_MARKER"]).open("x", encoding="ascii") as file:
                file.write(repr(now))
        except FileExistsError:
            pass
