"""The state of a Keras model in training: weights, optimizers, random generators."""

from __future__ import annotations

import sys
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
        model: The variables of the model, and those that Keras does not know.
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
        _copies(variables_of(model)),
        _copies(_variables(optimizers)),
        [_trained_places(optimizer, places) for optimizer in optimizers],
    )


def restore(model: Any, state: ModelState) -> None:
    """Give the model the state that `capture` returned for one with the same variables.

    Raises:
        UnfitState: It has other variables.
    """
    variables, optimizers = variables_of(model), _optimizers(model)
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


def variables_of(model: Any) -> list[Any]:
    """Return the variables of a model, and after them those that Keras does not know.

    These are the buffers of PyTorch's modules, such as the averages of a BatchNorm, and variables
    of TensorFlow that the user's model or one of its layers has as an attribute. Training changes
    them, and what the model computes depends on them.
    """
    return [*model.variables, *_unknown_to_keras(model)]


def weights_of(model: Any) -> list[Any]:
    """Return copies of the weights of a model, and of the variables that Keras does not know."""
    return [*model.get_weights(), *_copies(_unknown_to_keras(model))]


def takes_weights(model: Any, weights: Sequence[Any]) -> bool:
    """Return whether a model has as many weights as `weights_of` returned; LoRA adds some."""
    return len(weights) == len(model.weights) + len(_unknown_to_keras(model))


def set_weights(model: Any, weights: Sequence[Any]) -> None:
    """Give the model the weights that `weights_of` returned for one with the same variables."""
    unknown = _unknown_to_keras(model)
    count = len(weights) - len(unknown)
    model.set_weights(list(weights[:count]))
    for variable, value in zip(unknown, weights[count:], strict=True):
        variable.assign(value)


def finalize_layers(model: Any) -> None:
    """Let layers that compute with copies of their weights use those that the model was given."""
    import keras

    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Normalization):
            layer.finalize_state()


@dataclass(frozen=True, slots=True)
class _UnknownToKeras:
    """A tensor or variable of the backend, with the attributes of a variable of Keras's."""

    value: Any

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.value.shape)

    @property
    def dtype(self) -> str:
        import keras

        return str(keras.backend.standardize_dtype(self.value.dtype))

    def assign(self, value: Any) -> None:
        from keras import ops

        if hasattr(self.value, "assign"):
            self.value.assign(value)
        else:
            self.value.data.copy_(ops.convert_to_tensor(value))


def _unknown_to_keras(model: Any) -> list[_UnknownToKeras]:
    import keras

    found: dict[int, Any] = {}
    backend = keras.backend.backend()
    layers = getattr(model, "_flatten_layers", None)  # a `fit` may train an object of its own
    for part in () if layers is None else layers():
        if backend == "torch":
            found |= {id(buffer): buffer for buffer in part.buffers()}
        elif backend == "tensorflow":
            variable = sys.modules["tensorflow"].Variable
            for value in vars(part).values():
                found |= {
                    id(element): element
                    for element in _elements(value)
                    if isinstance(element, variable)
                }
    return [_UnknownToKeras(each) for each in found.values()]


def build_optimizer(model: Any) -> None:
    """Build a model's optimizer before its first step, in which Keras may do it otherwise."""
    optimizer = model.optimizer
    if model.built and optimizer is not None and not optimizer.built:
        optimizer.build(model.trainable_variables)


def _copies(variables: Iterable[Any]) -> list[Any]:
    from keras import ops

    values = (
        variable.value if isinstance(variable, _UnknownToKeras) else variable
        for variable in variables
    )
    return [np.array(ops.convert_to_numpy(value)) for value in values]


def _optimizers(model: Any) -> list[Any]:
    """Return the compiled optimizer, and those that a training step of the user's own may use.

    They are attributes of the model or of a part of it, alone or in a list or dict.
    """
    import keras

    found = {} if model.optimizer is None else {id(model.optimizer): model.optimizer}
    for part in (model, *model._flatten_layers(include_self=False)):
        for value in vars(part).values():
            for element in _elements(value):
                if isinstance(element, keras.optimizers.Optimizer):
                    found.setdefault(id(element), element)
    return list(found.values())


def _elements(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value
    else:
        yield value


def _variables(optimizers: Iterable[Any]) -> list[Any]:
    return [variable for optimizer in optimizers for variable in optimizer.variables]


def _trained_places(optimizer: Any, places: Mapping[int, int]) -> list[int] | None:
    if not optimizer.built:
        return None
    trained = [places.get(id(variable), -1) for variable in optimizer._trainable_variables]
    return None if -1 in trained else trained


def _check(own: Sequence[Any], state: Sequence[Any], what: str) -> None:
    if [_kind(each) for each in own] != [_kind(each) for each in state]:
        raise UnfitState(
            f"it is of a model with {len(state)} {what}; this one has {len(own)}, or other ones"
        )


def _kind(variable: Any) -> tuple[tuple[int, ...], str]:
    return tuple(variable.shape), str(variable.dtype)
