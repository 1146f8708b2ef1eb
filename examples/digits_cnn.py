"""A small convolutional network on scikit-learn's handwritten digits.

    hptune run examples/digits_cnn.py --trials 12

A trial takes a few seconds on one core.
"""

from typing import Any

import keras
from keras_tuner import HyperParameters
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

OBJECTIVE = "val_accuracy"
EPOCHS = 8


def build_model(hp: HyperParameters) -> keras.Model:
    model = keras.Sequential([keras.Input((8, 8, 1))])
    filters = hp.Int("filters", 8, 32, step=8)
    model.add(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
    model.add(keras.layers.MaxPooling2D())

    second_block = hp.Boolean("second_block")
    with hp.conditional_scope("second_block", [True]):
        if second_block:
            filters = hp.Int("second_filters", 16, 64, step=16)
            model.add(keras.layers.Conv2D(filters, 3, padding="same", activation="relu"))
            model.add(keras.layers.MaxPooling2D())

    model.add(keras.layers.Flatten())
    model.add(keras.layers.Dense(hp.Int("dense_units", 16, 128, step=16), activation="relu"))
    model.add(keras.layers.Dropout(hp.Float("dropout", 0.0, 0.5, step=0.1)))
    model.add(keras.layers.Dense(10, activation="softmax"))

    hp.Choice("batch_size", [16, 32, 64, 128])  # the name tells hptune to pass it to `fit`
    optimizer = keras.optimizers.get(hp.Choice("optimizer", ["adam", "rmsprop", "sgd"]))
    optimizer.learning_rate = hp.Float("learning_rate", 1e-4, 1e-1, sampling="log")
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


def load_data() -> Any:
    """Return 1437 images to train on and 360 to validate, the same in every trial."""
    digits = load_digits()
    x = digits.images[..., None].astype("float32") / 16.0
    y = digits.target
    x_train, x_val, y_train, y_val = train_test_split(
        x, y, test_size=360, stratify=y, random_state=0
    )
    return (x_train, y_train), (x_val, y_val)
