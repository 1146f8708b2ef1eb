"""The choice of what trains a Keras model on several devices."""

from __future__ import annotations

import os
import re

from ...core.data_parallel import BatchRule, DataParallel, StrategyChoice
from ...errors import ModelFileError
from ..parallel.ranks import Ranks
from .base import Strategy

_HOST_DEVICES = re.compile(r"--xla_force_host_platform_device_count=(\d+)")


def divide_cores(devices: int) -> None:
    """Divide this process's cores into several devices, before the framework uses any.

    Raises:
        ModelFileError: The user divides them already, or the framework cannot.
    """
    import keras

    backend = keras.config.backend()
    if (found := _cpu_devices(backend)) > 1:
        raise ModelFileError(
            f"XLA_FLAGS divides the cores into {found} devices, but hptune divides them here; "
            "leave --xla_force_host_platform_device_count out"
        )
    if backend == "jax":
        flags = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={devices}"
    elif backend == "tensorflow":
        import tensorflow as tf

        config = tf.config
        part = config.LogicalDeviceConfiguration()
        config.set_logical_device_configuration(
            config.list_physical_devices("CPU")[0], [part] * devices
        )


def choose(ranks: Ranks | None, gpus: int, asked: DataParallel) -> Strategy | None:
    """Return what trains the models of this process; None for Keras alone.

    Imports Keras, and no device is used.

    Args:
        ranks: This rank's handle; None in a trial of one process.
        gpus: GPUs of this process, or devices that `divide_cores` has made; 0 for its cores.
        asked: What the user asked for.

    Raises:
        ModelFileError: Nothing can train on these devices; says what can.
    """
    import keras

    backend = keras.config.backend()
    devices = gpus or _cpu_devices(backend)
    world_size = 1 if ranks is None else ranks.world_size
    if world_size * devices == 1:
        return None if asked.rule is BatchRule.GLOBAL else Strategy(ranks, devices, asked)
    if asked.choice is StrategyChoice.NONE:
        if ranks is None:
            return None
        raise ModelFileError(
            f"--strategy none leaves {world_size} processes without a strategy for the Keras "
            "model; use --strategy data-parallel, or write objective(hp, trial)"
        )
    if backend == "jax":
        from .jax_data_parallel import JaxDataParallel

        return JaxDataParallel(ranks, devices, asked)
    if backend == "tensorflow" and ranks is None:
        from .mirrored import Mirrored

        return Mirrored(ranks, devices, asked)
    if backend not in ("tensorflow", "torch"):
        raise ModelFileError(
            f"Keras on {backend} cannot train on {world_size * devices} devices; "
            "KERAS_BACKEND=jax, torch or tensorflow can"
        )
    if devices > 1:
        shown = "PyTorch" if backend == "torch" else "TensorFlow"
        raise ModelFileError(
            f"Keras on {shown} trains on one GPU in each of several processes, and each of the "
            f"trial's has {devices}; use --processes-per-trial {world_size * devices}"
        )
    if backend == "torch":
        from .torch_processes import TorchProcesses

        return TorchProcesses(ranks, devices, asked)
    from .tensorflow_processes import TensorFlowProcesses

    return TensorFlowProcesses(ranks, devices, asked)


def may_be_needed(gpus: int, asked: DataParallel) -> bool:
    """Return whether a trial of one process may need a strategy; imports nothing.

    Args:
        gpus: GPUs of the process.
        asked: What the user asked for.
    """
    divides_cores = _HOST_DEVICES.search(os.environ.get("XLA_FLAGS", ""))
    return gpus > 1 or bool(divides_cores) or asked.rule is not BatchRule.GLOBAL


def _cpu_devices(backend: str) -> int:
    """Return the number of CPU devices that the user divides this process's cores into."""
    if backend != "jax":
        return 1
    found = _HOST_DEVICES.findall(os.environ.get("XLA_FLAGS", ""))
    return max(1, int(found[-1])) if found else 1
