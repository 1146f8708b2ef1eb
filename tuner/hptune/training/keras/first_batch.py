"""A check of the framework for `hptune doctor`: its devices, and one batch of training.

Runs in its own process.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...user_code.model_file import BuildFunction, UserCode
from ..context import StandInTrial
from ..hyperparameters import make_hyperparameters
from .objective import build, load_data, train


class _Enough(BaseException):
    """One batch is trained; ends the training."""


@dataclass(frozen=True, slots=True)
class FrameworkSeen:
    """The framework that trials use on this machine.

    Attributes:
        words: Its name and version, and Keras's.
        gpus: Number of GPUs that it can use.
    """

    words: str
    gpus: int


def see_framework() -> FrameworkSeen:
    """Import Keras and its backend, and return what they are and can use.

    Raises:
        Exception: What the imports raise.
    """
    import keras

    name = keras.config.backend()
    version = importlib.metadata.version(name)
    return FrameworkSeen(f"Keras {keras.__version__} on {name} {version}", _gpus(name))


def _gpus(backend: str) -> int:
    if backend == "tensorflow":
        import tensorflow as tf

        return sum(len(tf.config.list_physical_devices(kind)) for kind in ("GPU", "XPU"))
    if backend == "torch":
        import torch

        return int(torch.cuda.device_count() or torch.xpu.device_count())
    if backend == "jax":
        import jax

        return sum(device.platform != "cpu" for device in jax.devices())
    return 0


def tiny_code() -> UserCode:
    """Return the code of a minimal model, for a check without a model file."""

    def build(hp: Any) -> Any:
        import keras

        model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(hp.Int("units", 1, 4))])
        model.compile("sgd", "mse")
        return model

    def load() -> Any:
        import numpy as np

        x = np.random.default_rng(0).random((64, 8), dtype="float32")
        return (x, x[:, :1]), (x[:16], x[:16, :1])

    return UserCode(hypermodel=BuildFunction(build), load_data=load)


def train_one_batch(code: UserCode, directory: Path) -> str:
    """Train one batch of the user's model with the default hyperparameters.

    An `objective` runs up to its first report.

    Args:
        code: The user's entry points.
        directory: The directory of an objective's trial.

    Returns:
        What was trained, in words.

    Raises:
        BaseException: What the user's code raises.
    """
    hp = make_hyperparameters()
    if code.objective is not None:
        try:
            code.objective(hp, _Trial(hp.values, directory))
        except _Enough:
            return "objective(hp, trial) runs up to its first report"
        return "objective(hp, trial) runs to its end"
    import keras

    class AfterOneBatch(keras.callbacks.Callback):
        """Ends the training after one batch."""

        def on_train_batch_end(self, *_: Any, **__: Any) -> None:
            raise _Enough

    model = build(code, hp)
    data = load_data(code, hp)
    with contextlib.suppress(_Enough):
        train(code, hp, model, data, callback=AfterOneBatch(), epochs=1)
    weights = sum(int(weight.size) for weight in model.get_weights())
    return f"{type(model).__name__} of {weights:,} weights"


class _Trial(StandInTrial):
    """Replaces the trial of an objective."""

    epochs = 1

    def __init__(self, params: Mapping[str, Any], directory: Path) -> None:
        super().__init__(params)
        self.directory = self.checkpoint_dir = directory

    def report(self, _step: int, **_metrics: Any) -> None:
        raise _Enough

    def should_stop(self) -> bool:
        return True

    should_prune = should_stop
