"""Search spaces of ConfigSpace (https://github.com/automl/ConfigSpace), in its serialised form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hptune.core.space.space import (
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)

Entry = Mapping[str, Any]


def search_space(serialized: Entry) -> SearchSpace:
    """Return the space that `ConfigurationSpace.to_serialized_dict` describes.

    Ordered texts are choices without an order.

    Raises:
        ValueError: It has something that hptune's spaces have not, such as forbidden clauses.
    """
    if serialized["forbiddens"]:
        raise ValueError("the space has forbidden clauses, which hptune's spaces have not")
    return SearchSpace(tuple(_parameters(serialized)))


def _parameters(serialized: Entry) -> Iterator[Parameter]:
    """Yield the hyperparameters, parents before children."""
    conditions: dict[str, list[Condition]] = {}
    for each in serialized["conditions"]:
        conditions.setdefault(each["child"], []).extend(_conditions(each))
    left = {entry["name"]: entry for entry in serialized["hyperparameters"]}
    while left:
        ready = [
            name
            for name in left
            if not any(condition.name in left for condition in conditions.get(name, ()))
        ]
        for name in ready:
            yield _parameter(left.pop(name), tuple(conditions.get(name, ())))


def _conditions(entry: Entry) -> list[Condition]:
    match entry["type"]:
        case "AND":
            return [own for part in entry["conditions"] for own in _conditions(part)]
        case "IN":
            return [Condition(entry["parent"], tuple(entry["values"]))]
        case "EQ":
            return [Condition(entry["parent"], (entry["value"],))]
        case unknown:
            raise ValueError(f"unknown condition {unknown!r}; known are EQ, IN and AND")


def _parameter(entry: Entry, conditions: tuple[Condition, ...]) -> Parameter:
    name: str = entry["name"]
    match entry["type"]:
        case "constant":
            return FixedParameter(name, entry["value"], conditions=conditions)
        case "categorical":
            if entry["weights"]:
                raise ValueError(f"the choices of {name} have weights, which hptune's have not")
            choices = tuple(entry["choices"])
            return ChoiceParameter(name, choices, ordered=False, conditions=conditions)
        case "ordinal":
            return ChoiceParameter(name, tuple(entry["sequence"]), conditions=conditions)
        case "uniform_int":
            low, high = entry["lower"], entry["upper"]
            return IntParameter(name, low, high, scale=_scale(entry), conditions=conditions)
        case "uniform_float":
            low, high = entry["lower"], entry["upper"]
            return FloatParameter(name, low, high, scale=_scale(entry), conditions=conditions)
        case kind:
            raise ValueError(f"{name} is of a kind that hptune does not have: {kind}")


def _scale(entry: Entry) -> Scale:
    return Scale.LOG if entry["log"] else Scale.LINEAR
