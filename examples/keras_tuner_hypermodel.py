"""A KerasTuner HyperModel, unchanged: the progress of diabetes from ten measurements.

    hptune run examples/keras_tuner_hypermodel.py --search bayesian --trials 30

The class is what KerasTuner's own tuners take, `keras_tuner.RandomSearch(DiabetesModel(), …)`.
All that is added is `load_data`, in place of the arguments of their `search`.
"""

from typing import Any

import keras
import keras_tuner
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

OBJECTIVE = "val_mae"


class DiabetesModel(keras_tuner.HyperModel):
    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        penalty = None
        regularizer = hp.Choice("regularizer", ["none", "dropout", "l2"])
        with hp.conditional_scope("regularizer", ["l2"]):
            if regularizer == "l2":
                penalty = keras.regularizers.L2(hp.Float("l2", 1e-5, 1e-1, sampling="log"))

        model = keras.Sequential([keras.Input((10,))])
        for layer in range(hp.Int("hidden_layers", 1, 3)):
            units = hp.Int(f"units_{layer}", 8, 64, step=8)
            model.add(keras.layers.Dense(units, activation="relu", kernel_regularizer=penalty))
        with hp.conditional_scope("regularizer", ["dropout"]):
            if regularizer == "dropout":
                model.add(keras.layers.Dropout(hp.Float("dropout", 0.1, 0.5, step=0.1)))
        model.add(keras.layers.Dense(1))

        learning_rate = hp.Float("learning_rate", 1e-4, 1e-1, sampling="log")
        model.compile(keras.optimizers.Adam(learning_rate), loss="mse", metrics=["mae"])
        return model

    def fit(
        self, hp: keras_tuner.HyperParameters, model: keras.Model, *args: Any, **kwargs: Any
    ) -> keras.callbacks.History:
        kwargs["batch_size"] = hp.Choice("batch_size", [8, 16, 32, 64])
        kwargs["epochs"] = hp.Int("epochs", 5, 40, step=5)
        return model.fit(*args, **kwargs)


def load_data() -> Any:
    """Return 342 patients to train on and 100 to validate; the target is in units of 100."""
    x, y = load_diabetes(return_X_y=True)
    x_train, x_val, y_train, y_val = train_test_split(
        x * len(x) ** 0.5, y / 100, test_size=100, random_state=0
    )
    return (x_train, y_train), (x_val, y_val)
