"""Optimizers for large batches, for model files: LARS and LAMB as their papers define them.

Offers: `Lars`, `Lamb`, `WarmUp` (a learning rate schedule), and `large_batch_space(hp)`, which
makes them hyperparameters.

Only model files import it, since it imports Keras.

May import: nothing else of hptune.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .layerwise import Lamb, Lars, WarmUp
    from .space import large_batch_space

__all__ = ["Lamb", "Lars", "WarmUp", "large_batch_space"]

_MODULES = {"Lamb": "layerwise", "Lars": "layerwise", "WarmUp": "layerwise"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES.get(name, 'space')}", __name__), name)
