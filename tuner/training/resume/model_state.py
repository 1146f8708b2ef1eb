"""The state of a Keras model in training: weights, optimizers, random generators."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np


class UnfitState(Exception):
    """The state belongs to another model, or this one is not built yet."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """Copies of the variables of a model and of its optimizers, in their order.

    Attributes:
        model: The variables of the model.
        optimizers: Those of all its optimizers.
        built_for: For each optimizer, the variables of the model that it trains, by their places;
            None if it was not built.
    """

    model: list[Any]
    optimizers: list[Any]
    built_for: list[list[int] | None]


def capture(model: Any) -> ModelState:
    """Copy the state of a model.

    The variables of a model include the seeds of its dropout and augmentation layers. Those of an
    optimizer include its iteration and, unless it follows a schedule, its learning rate.
    """
    optimizers = _optimizers(model)
    places = {id(variable): place for place, variable in enumerate(model.variables)}
    return ModelState(
        _copies(model.variables),
        _copies(_variables(optimizers)),
        [_trained_places(each, places) for each in optimizers],
    )


def restore(model: Any, state: ModelState) -> None:
    """Give the model the state that `capture` returned for one with the same variables.

    Raises:
        UnfitState: It has other variables.
    """
    variables, optimizers = model.variables, _optimizers(model)
    try:
        _check(variables, state.model, "variables")
    except UnfitState as error:
        if model.built:
            raise
        raise UnfitState(
            "the model is built by its first batch only; build it in build_model"
        ) from error
    # Only after the check that the model has all its variables: an optimizer that was built for
    # fewer refuses the others.
    for optimizer, places in zip(optimizers, state.built_for, strict=False):
        if places is not None and not optimizer.built:
            optimizer.build([variables[place] for place in places])
    of_optimizers = _variables(optimizers)
    _check(of_optimizers, state.optimizers, "variables of optimizers")
    for variable, value in zip(variables, state.model, strict=True):
        variable.assign(value)
    for variable, value in zip(of_optimizers, state.optimizers, strict=True):
        variable.assign(value)


def build_optimizer(model: Any) -> None:
    """Build a model's optimizer before its first step, in which Keras may do it otherwise."""
    optimizer = model.optimizer
    if model.built and optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def _copies(variables: Iterable[Any]) -> list[Any]:
    from keras import ops

    return [np.array(ops.convert_to_numpy(each)) for each in variables]


def _optimizers(model: Any) -> list[Any]:
    """Return the compiled optimizer, and those that a training step of the user's own may use.

    They are attributes of the model or of a part of it, alone or in a list or dict.
    """
    import keras

    found = {} if model.optimizer is None else {id(model.optimizer): model.optimizer}
    for part in (model, *model._flatten_layers(include_self=False)):
        for value in vars(part).values():
            for each in _elements(value):
                if isinstance(each, keras.optimizers.Optimizer):
                    found.setdefault(id(each), each)
    return list(found.values())


def _elements(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value
    else:
        yield value


def _variables(optimizers: Iterable[Any]) -> list[Any]:
    return [each for optimizer in optimizers for each in optimizer.variables]


def _trained_places(optimizer: Any, places: Mapping[int, int]) -> list[int] | None:
    if not optimizer.built:
        return None
    trained = [places.get(id(each), -1) for each in optimizer._trainable_variables]
    return None if -1 in trained else trained


def _check(own: Sequence[Any], state: Sequence[Any], what: str) -> None:
    if [_kind(each) for each in own] != [_kind(each) for each in state]:
        raise UnfitState(
            f"it is of a model with {len(state)} {what}; this one has {len(own)}, or other ones"
        )


def _kind(variable: Any) -> tuple[tuple[int, ...], str]:
    return tuple(variable.shape), str(variable.dtype)
