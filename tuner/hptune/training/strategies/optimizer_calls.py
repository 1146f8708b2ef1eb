"""Every call of a Keras optimizer's public `apply`, with gradients that a strategy changes."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import keras

from ..replaced_methods import replaced


def innermost(optimizer: Any) -> list[Any]:
    """Return the optimizers that update weights: those within a compiled one, or itself.

    With mixed precision, Keras puts one that scales the loss around it.
    """
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    if _is_several(inner):
        return list(inner.optimizers)
    return [] if inner is None else [inner]


def _is_several(optimizer: Any) -> bool:
    several = getattr(keras.optimizers, "MultiOptimizer", None)  # of Keras 3.15
    return several is not None and isinstance(optimizer, several)


@contextlib.contextmanager
def replaced_apply(optimizer: Any, change: Callable[[Any, list[Any]], list[Any]]) -> Iterator[None]:
    """Change the gradients that any optimizer gets, before it does anything with them.

    So a `train_step` of the user's own, with one optimizer or several, takes part. Those of a
    `MultiOptimizer` get theirs one by one.

    Args:
        optimizer: An optimizer whose class may have an `apply` of its own.
        change: Called with the optimizer and its gradients, some of which may be None.
    """
    within = threading.local()  # replicas of one process have threads of their own

    def changing(original: Any) -> Any:
        @functools.wraps(original)
        def apply(self: Any, grads: Any, trainable_variables: Any = None) -> Any:
            # An optimizer within another, or a call of super.
            if _is_several(self) or getattr(within, "is_so", False):
                return original(self, grads, trainable_variables)
            within.is_so = True
            try:
                return original(self, change(self, list(grads)), trainable_variables)
            finally:
                within.is_so = False

        return apply

    known = (keras.optimizers.Optimizer, keras.optimizers.LossScaleOptimizer, type(optimizer))
    kinds = {kind for each in known for kind in each.__mro__ if "apply" in vars(kind)}
    with contextlib.ExitStack() as stack:
        for kind in kinds:
            stack.enter_context(replaced(kind, {"apply": changing(vars(kind)["apply"])}))
        yield
