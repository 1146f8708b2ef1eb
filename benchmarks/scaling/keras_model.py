"""A model file: the same CNN in Keras, and the same training without hptune (`python -m`)."""

from __future__ import annotations

from typing import Any

import keras

from scaling import case

EPOCHS = case.EPOCHS
OBJECTIVE = "loss:min"


def build_model(hp: Any) -> Any:
    hp.Choice("one", [1])
    layers = keras.layers
    first, second = case.FILTERS
    model = keras.Sequential(
        [
            keras.Input((28, 28, 1)),
            layers.Conv2D(first, 3, activation="relu"), layers.MaxPooling2D(2),
            layers.Conv2D(second, 3, activation="relu"), layers.MaxPooling2D(2),
            layers.Flatten(), layers.Dense(10),
        ]
    )  # fmt: skip
    model.compile(
        keras.optimizers.SGD(case.LEARNING_RATE, momentum=case.MOMENTUM),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    )
    return model


def load_data() -> Any:
    return case.data(), None


class Record(keras.callbacks.Callback):  # type: ignore[misc]
    """Records each epoch and each step."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        case.record("step", batch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        case.record("epoch", epoch, loss=float(logs["loss"]))


def fit(hp: Any, model: Any, data: Any, callbacks: list[Any], epochs: int) -> Any:  # noqa: ARG001
    (x, y), _ = data
    return model.fit(
        x, y, batch_size=case.BATCH_SIZE, epochs=epochs, verbose=0, callbacks=[*callbacks, Record()]
    )


if __name__ == "__main__":

    class _Space:
        def Choice(self, _name: str, values: list[int]) -> int:  # noqa: N802 - Keras's name
            return values[0]

    fit(None, build_model(_Space()), load_data(), [], EPOCHS)
