"""hptune: hyperparameter search for Keras models on Dask workers, from a laptop to a cluster.

Use `Tuner` in Python, or the command `hptune` in a shell.
"""

from __future__ import annotations

import os as _os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.resources import Resources
    from .errors import HptuneError, StudyError, UsageError
    from .study.study import Study
    from .training.context import TrialPruned, report
    from .training.hyperparameters import HyperParameters
    from .training.keras.reporting_callback import keras_callback
    from .training.program import run_program
    from .training.torch_callbacks import lightning_callback, transformers_callback
    from .tuner import Tuner

# TensorFlow writes eight lines about the machine when a program that tunes imports it.
_os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

__all__ = [
    "HptuneError", "HyperParameters", "Resources", "Study", "StudyError", "TrialPruned", "Tuner",
    "UsageError", "keras_callback", "lightning_callback", "report", "run_program",
    "transformers_callback",
]  # fmt: skip

_HOMES = {
    "HptuneError": ".errors",
    "HyperParameters": ".training.hyperparameters",
    "Resources": ".core.resources",
    "Study": ".study.study",
    "StudyError": ".errors",
    "TrialPruned": ".training.context",
    "Tuner": ".tuner",
    "UsageError": ".errors",
    "keras_callback": ".training.keras.reporting_callback",
    "lightning_callback": ".training.torch_callbacks",
    "report": ".training.context",
    "run_program": ".training.program",
    "transformers_callback": ".training.torch_callbacks",
}


if not TYPE_CHECKING:  # type checkers know the names, and refuse others

    def __getattr__(name: str) -> Any:
        # Loaded on first use, so that `import hptune` in a user's model file costs nothing.
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(_HOMES[name], __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__]
