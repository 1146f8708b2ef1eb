"""Keras on JAX: `keras.distribution.DataParallel`, also over several processes."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ..replaced_methods import replaced
from .base import Method, ParallelTrainingError, Strategy

_MEET_SECONDS = 60
"""Longest time for the ranks to connect; they have met before."""
_HEARTBEAT_SECONDS = 10
"""Time after which JAX ends a process whose peer is gone. hptune usually ends it before."""


class JaxDataParallel(Strategy):
    """All devices of all ranks as one mesh; each global batch is divided among them.

    Every rank makes whole global batches, and its devices get their parts. A batch that does not
    divide, as the last one of an epoch, is computed whole on each device, so no sample is left out
    or counted twice. The step is one program for the whole batch: BatchNormalization and Dropout do
    what they do on one device.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._predicting = weakref.WeakSet[Any]()

    @property
    def on_cpu(self) -> bool:
        """Whether JAX's default devices are CPUs."""
        return bool(jax.default_backend() == "cpu")

    def enter(self) -> None:
        """Connect JAX with the other ranks, and distribute what Keras makes from here on."""
        if self.ranks is not None:
            ranks = self.ranks
            if ranks.rank == 0:
                ranks.release_port()
            try:
                jax.distributed.initialize(
                    ranks.address,
                    ranks.world_size,
                    ranks.rank,
                    # Else it takes the devices of a Slurm job's processes for those of the ranks.
                    cluster_detection_method="deactivate",
                    initialization_timeout=_MEET_SECONDS,
                    heartbeat_timeout_seconds=_HEARTBEAT_SECONDS,
                    shutdown_timeout_seconds=_HEARTBEAT_SECONDS,
                    coordinator_bind_address=ranks.address if ranks.rank == 0 else None,
                )
            except RuntimeError as error:
                raise ParallelTrainingError(f"JAX cannot connect the ranks: {error}") from error
        found, wanted = jax.device_count(), self.replicas
        if found != wanted:
            raise ParallelTrainingError(
                f"JAX sees {found} devices, but the trial has {wanted}; a model file must not "
                "choose devices itself (JAX_PLATFORMS, XLA_FLAGS, jax.config) unless every rank "
                "gets as many"
            )
        _use_global_batches()
        keras.distribution.set_distribution(
            keras.distribution.DataParallel(
                devices=keras.distribution.list_devices(), auto_shard_dataset=False
            )
        )

    def predict(self, original: Method, model: Any, arguments: dict[str, Any]) -> Any:
        """Predict with Keras's own `predict`, whose outputs each device then gets whole.

        Without that, a process has only those of its own devices.
        """
        if self.ranks is None:
            return original(model, **arguments)
        mesh = keras.distribution.distribution().device_mesh.backend_mesh
        whole = NamedSharding(mesh, PartitionSpec())
        step = model.predict_step

        def whole_step(*given: Any) -> Any:
            outputs, *others = step(*given)
            return jax.lax.with_sharding_constraint(outputs, whole), *others

        if model not in self._predicting:  # compiled without our step
            model.predict_function = None
            self._predicting.add(model)
        with replaced(model, {"predict_step": whole_step}):
            return original(model, **arguments)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Make no distributed arrays: to make one is a collective operation of all ranks."""
        distribution = keras.distribution.distribution()
        keras.distribution.set_distribution(None)
        try:
            yield
        finally:
            keras.distribution.set_distribution(distribution)

    def copies(self, model: Any) -> Iterator[Mapping[str, Any]]:
        """Yield the weights on each device of this process."""
        # During an epoch, Keras's variables are empty: the state is with its training loop.
        model.jax_state_sync()
        values = {variable.path: variable.value for variable in model.trainable_variables}
        for device in range(self.devices):
            yield {
                path: np.asarray(value.addressable_shards[device].data)
                for path, value in values.items()
            }

    def disconnect(self) -> None:
        """Disconnect JAX; all ranks do it together."""
        if self.ranks is None:
            return
        super().disconnect()
        distributed: Any = jax.distributed
        with contextlib.suppress(RuntimeError):
            distributed.shutdown()


def _use_global_batches() -> None:
    """Let Keras take the batches that a rank makes as global ones.

    Keras takes them as the rank's own part, all of equal size. It has no hook for anything else,
    so this replaces its function; the process trains one trial only.

    Raises:
        ParallelTrainingError: This version of Keras has no such function.
    """
    from keras.src.backend.jax import distribution_lib

    if not hasattr(distribution_lib, "distribute_data_input"):
        raise ParallelTrainingError(
            f"Keras {keras.__version__} distributes batches in another way than hptune knows; "
            "use Keras 3.15"
        )
    distribution_lib.distribute_data_input = _distribute


def _distribute(batch: Any, layout: Any, *_: Any, **__: Any) -> Any:
    """Return a global array of a global batch, which every rank has whole.

    Args:
        batch: The batch.
        layout: Keras's layout, or JAX's sharding, of the batch's first dimension.
    """
    if batch is None:
        return None
    sharding = getattr(layout, "backend_layout", layout)
    batch = np.asarray(batch)
    if batch.shape[0] % sharding.mesh.size:
        whole: Any = PartitionSpec
        sharding = NamedSharding(sharding.mesh, whole())
    return jax.make_array_from_callback(batch.shape, sharding, lambda index: batch[index])
