"""The state of a Keras model in training: weights, optimizer, random generators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class UnfitState(Exception):
    """The state belongs to another model, or this one is not built yet."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """Copies of the variables of a model and of its optimizers, in their order."""

    model: list[Any]
    optimizers: list[Any]


def capture(model: Any) -> ModelState:
    """Copy the state of a model.

    The variables of a model include the seeds of its dropout and augmentation layers. Those of an
    optimizer include its iteration and, unless it follows a schedule, its learning rate.
    """
    return ModelState(_copies(model.variables), _copies(_optimizer_variables(model)))


def restore(model: Any, state: ModelState) -> None:
    """Give the model the state that `capture` returned for one with the same variables.

    Raises:
        UnfitState: It has other variables.
    """
    if not model.built:
        raise UnfitState("the model is built by its first batch only; build it in build_model")
    _check(model.variables, state.model, "variables")
    # Only after the check that the model has all its variables: an optimizer that was built for
    # fewer refuses the others.
    optimizer = getattr(model, "optimizer", None)
    if optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)
    optimizers = _optimizer_variables(model)
    _check(optimizers, state.optimizers, "variables of optimizers")
    for variable, value in zip(model.variables, state.model, strict=True):
        variable.assign(value)
    for variable, value in zip(optimizers, state.optimizers, strict=True):
        variable.assign(value)


def _copies(variables: Iterable[Any]) -> list[Any]:
    from keras import ops

    return [np.array(ops.convert_to_numpy(each)) for each in variables]


def _optimizer_variables(model: Any) -> list[Any]:
    # A model with its own training step may have other optimizers than the compiled one.
    import keras

    optimizers = {id(model.optimizer): model.optimizer} if model.optimizer is not None else {}
    for each in vars(model).values():
        if isinstance(each, keras.optimizers.Optimizer):
            optimizers[id(each)] = each
    return [each for optimizer in optimizers.values() for each in optimizer.variables]


def _check(own: Sequence[Any], state: Sequence[Any], what: str) -> None:
    if [_kind(each) for each in own] != [_kind(each) for each in state]:
        raise UnfitState(
            f"it is of a model with {len(state)} {what}; this one has {len(own)}, or other ones"
        )


def _kind(variable: Any) -> tuple[tuple[int, ...], str]:
    return tuple(variable.shape), str(variable.dtype)
