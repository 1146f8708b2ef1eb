"""Keras on TensorFlow: several processes, by `MultiWorkerMirroredStrategy` and a loop of our own.

Keras's `fit` fails under that strategy, in two functions of its own. The loop is made of public
ones: the model's `train_step` and `test_step`, its metrics and its callbacks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ...errors import ModelFileError
from . import batches, rank_values
from .base import Method, ParallelTrainingError, Strategy
from .own_batches import OwnBatches
from .tensorflow_gradients import Share, weighted_gradients


class TensorFlowProcesses(Strategy):
    """One replica in each process; TensorFlow adds the gradients up in the optimizer."""

    _all: Any = None
    _entered: Any = None

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._predict_steps: dict[Any, Callable[..., Any]] = {}

    @property
    def on_cpu(self) -> bool:
        """Whether the replicas are CPUs."""
        return "CPU" in self._all.extended.worker_devices[0].upper()

    def enter(self) -> None:
        """Start TensorFlow's server and meet the other ranks, whose addresses TF_CONFIG has."""
        assert self.ranks is not None
        self.ranks.release_port()
        try:
            self._all = tf.distribute.MultiWorkerMirroredStrategy()
        except (RuntimeError, tf.errors.OpError) as error:
            raise ParallelTrainingError(f"TensorFlow cannot connect the ranks: {error}") from error
        found = self._all.num_replicas_in_sync
        if found != self.replicas:
            raise ParallelTrainingError(
                f"TensorFlow sees {found} devices, but the trial has {self.replicas}; use one GPU "
                "for each process"
            )

    @contextlib.contextmanager
    def scope(self) -> Iterator[None]:
        """Enter TensorFlow's scope, in which variables are mirrored."""
        self._entered = self._all.scope()
        self._entered.__enter__()
        try:
            yield
        finally:
            self._entered.__exit__(None, None, None)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Leave TensorFlow's scope, in which all ranks make variables and read metrics together."""
        entered, self._entered = self._entered, None
        if entered is None:  # it is left already
            yield
            return
        entered.__exit__(None, None, None)
        try:
            yield
        finally:
            self._entered = self._all.scope()
            self._entered.__enter__()

    def fit(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:  # noqa: ARG002 - the contract
        """Train with a loop of our own on this rank's part of the batches."""
        local = batches.local_arguments(arguments, rank=self.rank, world_size=self.world_size)
        with weighted_gradients(model.optimizer) as share:
            return _Loop(self, model, local, share).run()

    def predict(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:  # noqa: ARG002 - the contract
        """Predict all samples with this rank's replica; Keras's `predict` fails there."""
        x = arguments["x"]
        data = OwnBatches(
            (x,) if batches.is_arrays(x) else x,
            steps=arguments.get("steps"),
            batch_size=arguments.get("batch_size"),
        )
        step = self._predict_steps.get(model)
        if step is None:
            step = self._predict_steps[model] = self.compiled(model, model.predict_step)
        outputs = [step(batch) for batch in data.epoch()]
        return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *outputs)

    def evaluate(self, *_: Any, **__: Any) -> Any:
        """Refuse it, as Keras's `evaluate` fails there.

        Raises:
            ModelFileError: Always.
        """
        raise ModelFileError(
            "model.evaluate cannot run on TensorFlow in a trial of several processes; give "
            "validation_data to model.fit, or use KERAS_BACKEND=jax or torch"
        )

    def compiled(self, model: Any, step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a step of a model that runs on this rank's replica."""

        @tf.autograph.experimental.do_not_convert  # type: ignore[untyped-decorator]  # TF's
        def run(*arguments: Any) -> Any:
            return self._all.run(step, args=arguments)

        if model.run_eagerly:
            return run  # type: ignore[no-any-return]  # TF's
        return tf.function(run, reduce_retracing=True)  # type: ignore[no-any-return]  # TF's

    def copies(self, model: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the weights of this process."""
        yield {
            variable.path: self._all.experimental_local_results(variable.value)[0].numpy()
            for variable in model.trainable_variables
        }


class _Loop:
    """One call of `fit`.

    Args:
        strategy: Ours.
        model: The model.
        arguments: Arguments of Keras's `fit`, with this rank's part of the data.
        share: Holds what a step's gradients are multiplied by.
    """

    def __init__(
        self,
        strategy: TensorFlowProcesses,
        model: Any,
        arguments: dict[str, Any],
        share: Share,
    ) -> None:
        assert strategy.ranks is not None
        self._strategy = strategy
        self._ranks = strategy.ranks
        self._model = model
        self._arguments = arguments
        self._share = share
        self._train = OwnBatches(
            arguments["x"],
            steps=arguments.get("steps_per_epoch"),
            class_weight=arguments.get("class_weight"),
            shuffle=arguments.get("shuffle", True),
        )
        self._test = _validation(arguments)

    def run(self) -> Any:
        """Train all epochs; return the History."""
        model, arguments = self._model, self._arguments
        verbose = arguments.get("verbose", "auto")
        epochs = arguments.get("epochs", 1)
        self._build()
        callbacks = keras.callbacks.CallbackList(
            arguments["callbacks"],
            add_history=True,
            add_progbar=verbose != 0,
            model=model,
            verbose=verbose,
            epochs=epochs,
            steps=self._train.steps,
        )
        strategy = self._strategy
        train = strategy.compiled(model, self._training_step)
        test = strategy.compiled(model, self._test_step)
        model.stop_training = False
        logs: dict[str, Any] = {}
        callbacks.on_train_begin()
        rank_values.draw_differently(self._ranks, model)
        # A callback may set it, to continue a training.
        first = getattr(model, "_initial_epoch", None) or arguments.get("initial_epoch", 0)
        for epoch in range(first, epochs):
            model.reset_metrics()
            callbacks.on_epoch_begin(epoch)
            logs = self._train_epoch(train, callbacks)
            rank_values.average_statistics(self._ranks, model)
            if self._test is not None and _is_due(epoch, arguments.get("validation_freq", 1)):
                validated = self._validate(test, callbacks)
                logs |= {f"val_{name}": value for name, value in validated.items()}
            callbacks.on_epoch_end(epoch, logs)
            model.stop_training = rank_values.any_true(self._ranks, own=bool(model.stop_training))
            if model.stop_training:
                break
        if model.optimizer is not None and epochs > 0:
            model.optimizer.finalize_variable_values(model.trainable_weights)
        callbacks.on_train_end(logs)
        return model.history

    def _build(self) -> None:
        """Make variables that a first step would make otherwise, outside of it."""
        model = self._model
        if not model.built:
            x = keras.utils.unpack_x_y_sample_weight(self._train.first())[0]
            model(keras.tree.map_structure(lambda each: each[:1], x))
        if model.optimizer is not None and not model.optimizer.built:
            model.optimizer.build(model.trainable_variables)

    def _train_epoch(self, step: Callable[..., Any], callbacks: Any) -> dict[str, Any]:
        model, logs, wants_stop = self._model, {}, False
        for index, data in enumerate(self._train.epoch()):
            callbacks.on_train_batch_begin(index)
            logs, stops = step(data, float(wants_stop))
            callbacks.on_train_batch_end(index, logs)
            # The others are in the next step already, so this rank takes part in it.
            wants_stop |= bool(model.stop_training)
            model.stop_training = float(stops) > 0
            if model.stop_training:
                break
        model.stop_training |= wants_stop
        return self._results(logs)

    def _validate(self, step: Callable[..., Any], callbacks: Any) -> dict[str, Any]:
        assert self._test is not None
        self._model.stop_evaluating = False
        callbacks.on_test_begin()
        self._model.reset_metrics()
        logs: dict[str, Any] = {}
        for index, data in enumerate(self._test.epoch()):
            callbacks.on_test_batch_begin(index)
            logs = step(data)
            callbacks.on_test_batch_end(index, logs)
            if self._model.stop_evaluating:
                break
        logs = self._results(logs)
        callbacks.on_test_end(logs)
        return logs

    def _results(self, logs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the metrics of all ranks; the last step's logs if those are others."""
        # Outside of a step, TensorFlow adds up the metrics' variables over the ranks.
        found = self._model.get_metrics_result()
        chosen = found if set(found) == set(logs) else logs
        values = {name: _as_logged(value) for name, value in chosen.items()}
        return {**values, **rank_values.mean_logs(self._ranks, values)}

    def _training_step(self, data: Any, wants_stop: Any) -> Any:
        rows = tf.cast(tf.shape(tf.nest.flatten(data)[0])[0], "float32")
        replica = tf.distribute.get_replica_context()
        total = replica.all_reduce("SUM", tf.stack([rows, tf.cast(wants_stop, "float32")]))
        # Keras gives each replica's mean the same share of the whole.
        self._share.factor = rows * replica.num_replicas_in_sync / total[0]
        logs = self._model.train_step(data)
        self._share.factor = None
        return logs, total[1]

    def _test_step(self, data: Any) -> Any:
        return self._model.test_step(data)


def _as_logged(value: Any) -> Any:
    """Return a number, or the array that a metric of several values gives."""
    found = np.asarray(value)
    return found if found.shape else float(found)


def _validation(arguments: Mapping[str, Any]) -> OwnBatches | None:
    data = arguments.get("validation_data")
    if data is None:
        return None
    size = arguments.get("validation_batch_size") or arguments.get("batch_size")
    return OwnBatches(data, steps=arguments.get("validation_steps"), batch_size=size)


def _is_due(epoch: int, frequency: Any) -> bool:
    """Return whether an epoch, from 0, is followed by validation."""
    if isinstance(frequency, int):
        return (epoch + 1) % frequency == 0
    return epoch + 1 in frequency
