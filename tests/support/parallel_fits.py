"""Small Keras trainings by several processes and by one: functions for `rank_processes.run_ranks`.

Each rank also trains alone, on the global batches, so one set of processes gives both results.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np

from hptune.core.data_parallel import DataParallel
from hptune.training.parallel.ranks import Ranks
from hptune.training.resume.randomness import seed_epoch
from hptune.training.strategies.base import ParallelTrainingError, Strategy
from hptune.training.strategies.choose import choose

EPOCHS = 3
BATCH_SIZE = 16
_DRAW = np.random.default_rng(3)
X = _DRAW.normal(size=(73, 8, 8, 1)).astype("float32")
Y = (X.sum((1, 2, 3)) > 0).astype("int64")
WEIGHT = _DRAW.random(73).astype("float32")


def train_by(strategy: Strategy) -> AbstractContextManager[list[Any]]:
    # Here, as it imports Keras, and every process of the tests collects `TRAININGS`.
    from hptune.training.strategies import fit_calls

    return fit_calls.train_by(strategy)


BESIDE_OWN_DDP = "embedding, beside averaging by Keras"


def compare(ranks: Ranks, names: list[str]) -> dict[str, Any]:
    """Train by all ranks together, and on rank 0 alone; return what both gave, by training.

    On PyTorch, one training has a second result: with a Keras that has its own averaging.
    """
    import keras

    together, alone = _train_together_and_alone(ranks, names)
    if keras.config.backend() == "torch":
        _give_keras_its_own_averaging()
        ranks.gather(b"")  # the store of rank 0 is gone: rank 1 must not find it where the next is
        again, own = _train_together_and_alone(ranks, ["embedding"])
        together[BESIDE_OWN_DDP], alone[BESIDE_OWN_DDP] = again["embedding"], own.get("embedding")
    return {"together": together, "alone": alone}


def _train_together_and_alone(ranks: Ranks, names: list[str]) -> tuple[dict[str, Any], ...]:
    strategy = choose(ranks, 0, DataParallel())
    assert strategy is not None
    strategy.enter()
    together = {name: _train(TRAININGS[name], strategy) for name in names}
    alone = {name: _train(TRAININGS[name], None) for name in names if ranks.rank == 0}
    strategy.disconnect()
    return together, alone


def _give_keras_its_own_averaging() -> None:
    """Change this process's Keras so that it has what Keras has on PyTorch from 3.16."""
    import keras

    trainer: Any = next(kind for kind in keras.Model.__mro__ if "train_step" in vars(kind))
    make = trainer.make_train_function

    def make_train_function(self: Any, force: bool = False) -> Any:
        self._initialize_ddp()
        return make(self, force)

    def averages_too(_model: Any) -> Any:
        raise AssertionError("Keras averages as well")

    trainer.make_train_function = make_train_function
    trainer._initialize_ddp = trainer.get_metrics_result = averages_too


def batch_statistics(ranks: Ranks) -> dict[str, Any]:
    """Train a model with BatchNormalization and Dropout; rank 1 wants to stop in epoch 2."""
    import keras

    class Stop(keras.callbacks.Callback):  # type: ignore[misc]
        batches = 0

        def on_train_batch_end(self, _batch: int, logs: Any = None) -> None:
            self.batches += 1
            if ranks.rank == 1 and self.batches == 7:
                self.model.stop_training = True

    strategy = choose(ranks, 0, DataParallel())
    assert strategy is not None
    strategy.enter()
    stop = Stop()
    with strategy.scope(), train_by(strategy):
        layers = keras.layers
        model = _compiled(
            [layers.BatchNormalization(), layers.Flatten(), layers.Dropout(0.3), layers.Dense(2)]
        )
        history = model.fit(
            X, Y, batch_size=BATCH_SIZE, epochs=EPOCHS, validation_data=(X[:33], Y[:33]),
            callbacks=[stop], verbose=0,
        )  # fmt: skip
    strategy.disconnect()
    floats = [x for x in model.weights if "float" in str(x.dtype)]
    return {
        "batches": stop.batches,
        "weights": [keras.ops.convert_to_numpy(each) for each in floats],
        "history": history.history,
    }


def without_averaging(ranks: Ranks) -> str:
    """Train with a `train_step` that changes the weights itself; return the error."""
    import keras

    class Own(keras.Sequential):  # type: ignore[misc]
        def train_step(self, data: Any) -> Any:
            for each in self.trainable_variables:
                each.assign(each + keras.ops.mean(data[0]))
            return {"loss": keras.ops.mean(data[0])}

    strategy = choose(ranks, 0, DataParallel())
    assert strategy is not None
    strategy.enter()
    try:
        with strategy.scope(), train_by(strategy):
            model = _compiled([keras.layers.Flatten(), keras.layers.Dense(2)], Own)
            model.fit(X, Y, batch_size=BATCH_SIZE, verbose=0)
    except ParallelTrainingError as error:
        return str(error)
    return "trained"


def _train(training: Callable[[], tuple[Any, dict[str, Any]]], strategy: Strategy | None) -> Any:
    import keras

    class Epochs(keras.callbacks.Callback):  # type: ignore[misc]
        weights: list[Any]
        outputs: list[Any]

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            seed_epoch(3, epoch)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            own = [keras.ops.convert_to_numpy(x).ravel() for x in self.model.trainable_variables]
            self.weights.append(np.concatenate(own))
            if not epoch:  # in the middle of the training; 33 samples do not divide
                self.outputs.append(self.model.predict(X[:33], batch_size=BATCH_SIZE, verbose=0))

    keras.utils.set_random_seed(7)
    epochs = Epochs()
    epochs.weights, epochs.outputs = [], []
    with contextlib.ExitStack() as stack:
        if strategy is not None:
            stack.enter_context(strategy.scope())
            stack.enter_context(train_by(strategy))
        model, arguments = training()
        history = model.fit(
            **arguments, epochs=EPOCHS, callbacks=[epochs], verbose=0,
            validation_data=(X[:33], Y[:33]),
        )  # fmt: skip
        if strategy is not None:
            with tempfile.TemporaryDirectory() as folder:
                model.save(Path(folder, "model.keras"))  # by rank 0 alone
                assert len(list(Path(folder).iterdir())) == (strategy.rank == 0)
    return {
        "weights": epochs.weights,
        "history": history.history,
        "outputs": epochs.outputs,
    }


def _compiled(layers: list[Any], kind: Any = None, optimizer: Any = "sgd") -> Any:
    import keras

    model = (kind or keras.Sequential)([keras.Input((8, 8, 1)), *layers])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer, loss, metrics=["accuracy"], weighted_metrics=["accuracy"])
    return model


def _shuffled() -> bool:
    import keras

    # TensorFlow draws the order in its own graph, so it cannot be drawn again.
    return bool(keras.config.backend() != "tensorflow")


def _embedding() -> tuple[Any, dict[str, Any]]:
    """Adam of an embedding, whose gradient is a list of rows on TensorFlow, sample weights, and a
    last batch of 9 samples."""
    import keras

    layers = [
        keras.layers.Rescaling(1.0, offset=5.0),
        keras.layers.Embedding(10, 2),
        keras.layers.Flatten(),
        keras.layers.Dense(2),
    ]
    model = _compiled(layers, optimizer=keras.optimizers.Adam(0.01))
    data = {"x": X, "y": Y, "sample_weight": WEIGHT}
    return model, {**data, "batch_size": BATCH_SIZE, "shuffle": _shuffled()}


def _convolution() -> tuple[Any, dict[str, Any]]:
    """Adam of clipped gradients, and class weights."""
    import keras

    layers = [
        keras.layers.Conv2D(4, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(2),
    ]
    model = _compiled(layers, optimizer=keras.optimizers.Adam(0.01, global_clipnorm=0.1))
    data = {"x": X, "y": Y, "class_weight": {0: 0.3, 1: 2.0}}
    return model, {**data, "batch_size": BATCH_SIZE, "shuffle": _shuffled()}


def _own_step() -> tuple[Any, dict[str, Any]]:
    """A `train_step` of the user's own with a scaled loss, of a model that the first batch builds,
    on a PyDataset."""
    import keras

    class Own(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.flat, self.dense = keras.layers.Flatten(), keras.layers.Dense(2)

        def call(self, x: Any) -> Any:
            return self.dense(self.flat(x))

        def train_step(self, data: Any) -> Any:
            x, y, weight = keras.utils.unpack_x_y_sample_weight(data)
            return {"own": _step(self, x, y, weight)}

    class Batches(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            rows = slice(index * BATCH_SIZE, (index + 1) * BATCH_SIZE)
            return X[rows], Y[rows], WEIGHT[rows]

    model = Own()
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    inner = keras.optimizers.Adam(0.01, clipnorm=0.1)
    model.compile(keras.optimizers.LossScaleOptimizer(inner), loss)
    return model, {"x": Batches(), "shuffle": _shuffled()}


def _step(model: Any, x: Any, y: Any, weight: Any) -> Any:
    import keras

    if keras.config.backend() == "torch":
        import torch

        model.zero_grad()
        loss = model.compute_loss(y=y, y_pred=model(x), sample_weight=weight)
        model.optimizer.scale_loss(loss).backward()
        variables = model.trainable_variables
        with torch.no_grad():
            model.optimizer.apply([each.value.grad for each in variables], variables)
        return loss.detach()
    import tensorflow as tf

    with tf.GradientTape() as tape:
        loss = model.compute_loss(y=y, y_pred=model(x), sample_weight=weight)
        scaled = model.optimizer.scale_loss(loss)
    model.optimizer.apply(tape.gradient(scaled, model.trainable_variables),
                          model.trainable_variables)  # fmt: skip
    return loss


TRAININGS: dict[str, Callable[[], tuple[Any, dict[str, Any]]]] = {
    "embedding": _embedding,
    "convolution": _convolution,
    "own step": _own_step,
}
