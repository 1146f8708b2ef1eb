"""KerasTuner's `HyperParameters`, at no more cost than the user's code has already paid."""

from __future__ import annotations

import os
import sys
from typing import Any

_BACKENDS = ("tensorflow", "torch", "jax")


def import_keras_tuner() -> Any:
    """Import KerasTuner, and with it Keras and its backend, if that has not been done yet.

    Where the user's code has loaded a framework of its own and not chosen a backend, Keras takes
    that one: an objective in PyTorch has no use for TensorFlow, which would cost it seconds and
    half a gigabyte.
    """
    if "keras" not in sys.modules and "KERAS_BACKEND" not in os.environ:
        loaded = [name for name in _BACKENDS if name in sys.modules]
        if loaded:
            os.environ["KERAS_BACKEND"] = loaded[0]
    import keras_tuner

    return keras_tuner
