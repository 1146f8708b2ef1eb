"""TensorFlow that is installed beside Keras on another backend, and not used."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from .replaced_methods import replaced


@contextlib.contextmanager
def tensorflow_left_out() -> Iterator[None]:
    """Keep Keras from importing TensorFlow, which takes seconds and 600 MB of each trial.

    On JAX and PyTorch, Keras imports it to seed its generators, and to compare what a model is
    saved with to its types. If nothing has imported it yet, there are none of either.
    """
    module = getattr(sys.modules.get("keras.src.utils.module_utils"), "tensorflow", None)
    if module is None or "tensorflow" in sys.modules:
        yield
    else:
        with replaced(module, {"_available": False}):
            yield
