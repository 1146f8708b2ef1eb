"""hptune: hyperparameter search for Keras models on Dask workers, from a laptop to a cluster.

Use `Tuner` in Python, or the command `hptune` in a shell.
"""

from __future__ import annotations

import os as _os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ask_tell.spaces import Boolean, Choice, Fixed, Float, Int
    from .ask_tell.study import open_study
    from .core.resources import Resources
    from .errors import HptuneError, NoTrialError, StudyError, StudyOverError, UsageError
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
    "Boolean", "Choice", "Fixed", "Float", "HptuneError", "HyperParameters", "Int", "NoTrialError",
    "Resources", "Study", "StudyError", "StudyOverError", "TrialPruned", "Tuner", "UsageError",
    "keras_callback", "lightning_callback", "open_study", "report", "run_program",
    "transformers_callback",
]  # fmt: skip

_HOMES = {
    **dict.fromkeys(("Boolean", "Choice", "Fixed", "Float", "Int"), ".ask_tell.spaces"),
    "HptuneError": ".errors",
    "HyperParameters": ".training.hyperparameters",
    "NoTrialError": ".errors",
    "Resources": ".core.resources",
    "Study": ".study.study",
    "StudyError": ".errors",
    "StudyOverError": ".errors",
    "TrialPruned": ".training.context",
    "Tuner": ".tuner",
    "UsageError": ".errors",
    "keras_callback": ".training.keras.reporting_callback",
    "lightning_callback": ".training.torch_callbacks",
    "open_study": ".ask_tell.study",
    "report": ".training.context",
    "run_program": ".training.program",
    "transformers_callback": ".training.torch_callbacks",
}


if not TYPE_CHECKING:  # type checkers know the names, and refuse others

    def __getattr__(name: str) -> Any:
        # Loaded on first use, so that `import hptune` in a user's model file costs nothing.
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if _os.name == "nt":
            raise ImportError(import_module(".errors", __name__).LINUX_ONLY)
        value = getattr(import_module(_HOMES[name], __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*__all__]
