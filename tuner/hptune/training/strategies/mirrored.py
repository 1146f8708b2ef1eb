"""Keras on TensorFlow: `tf.distribute.MirroredStrategy` for several GPUs of one process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf

from ..replaced_methods import replaced
from .base import Method, ParallelTrainingError, Strategy
from .tensorflow_gradients import weighted_gradients


class Mirrored(Strategy):
    """One replica on each GPU (or logical CPU) of the process; TensorFlow divides the batches.

    The variables of BatchNormalization are averaged over the replicas, each of which normalises its
    own part of the batch, unless the layer has `synchronized=True`.
    """

    _mirrored: Any = None

    @property
    def on_cpu(self) -> bool:
        """Whether the replicas are logical CPUs."""
        return "CPU" in self._mirrored.extended.worker_devices[0].upper()

    def enter(self) -> None:
        """Make the strategy of all devices of this process."""
        config = tf.config
        found = config.list_logical_devices("GPU") or config.list_logical_devices("CPU")
        if len(found) != self.devices:
            raise ParallelTrainingError(
                f"TensorFlow sees {len(found)} devices, but the trial has {self.devices}"
            )
        self._mirrored = tf.distribute.MirroredStrategy([each.name for each in found])

    def scope(self) -> AbstractContextManager[Any]:
        """Return TensorFlow's scope, in which variables are mirrored."""
        scope: AbstractContextManager[Any] = self._mirrored.scope()
        return scope

    def fit(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:
        """Train with Keras's own `fit`, with gradients weighted by each replica's samples.

        TensorFlow gives the first replica its usual number of samples of a partial batch, and the
        last ones fewer or none. Keras counts the mean of each replica alike.
        """
        train_step = model.train_step
        with weighted_gradients(model.optimizer) as share:

            def weighted_step(data: Any) -> Any:
                replica = tf.distribute.get_replica_context()
                rows = tf.cast(tf.shape(tf.nest.flatten(data)[0])[0], "float32")
                total = replica.all_reduce("SUM", rows)
                share.factor = rows * replica.num_replicas_in_sync / total
                logs = train_step(data)
                share.factor = None
                return logs

            with replaced(model, {"train_step": weighted_step}):
                return original(model, **arguments)

    def copies(self, model: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the weights on each device."""
        values = {
            variable.path: self._mirrored.experimental_local_results(variable.value)
            for variable in model.trainable_variables
        }
        for device in range(self.devices):
            yield {path: copies[device].numpy() for path, copies in values.items()}
