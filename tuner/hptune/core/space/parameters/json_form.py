"""The JSON form of parameters: KerasTuner's, as in `HyperParameters.get_config()["space"]`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ....errors import SpaceError
from . import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
)
from .checks import plain
from .scales import Scale

_Config = Mapping[str, Any]  # JSON; the parameter's constructor checks its values
JsonEntry = dict[str, object]


def parameter_to_json(parameter: Parameter) -> JsonEntry:
    """Return one declaration in its JSON form.

    >>> parameter_to_json(BooleanParameter("shuffle"))
    {'class_name': 'Boolean', 'config': {'name': 'shuffle', 'conditions': [], 'default': False}}
    """
    config: JsonEntry = {
        "name": parameter.name,
        "conditions": [_condition_to_json(condition) for condition in parameter.conditions],
    }
    match parameter:
        case FixedParameter():
            kind = "Fixed"
            config["value"] = parameter.value
        case BooleanParameter():
            kind = "Boolean"
            config["default"] = parameter.default
        case ChoiceParameter():
            kind = "Choice"
            config["default"] = parameter.default if parameter.has_default else None
            config["values"] = list(parameter.values)
            config["ordered"] = parameter.ordered
        case FloatParameter() | IntParameter():
            kind = "Float" if isinstance(parameter, FloatParameter) else "Int"
            config["default"] = parameter.default if parameter.has_default else None
            config["min_value"] = parameter.low
            config["max_value"] = parameter.high
            config["step"] = parameter.step
            config["sampling"] = str(parameter.scale)
    return {"class_name": kind, "config": config}


def parameter_from_json(entry: Mapping[str, object]) -> Parameter:
    """Read one declaration from its JSON form.

    Raises:
        SpaceError: The kind is unknown, an argument is missing, or the declaration is not valid.
    """
    config = entry.get("config")
    reader = _READERS.get(str(entry.get("class_name")))
    if reader is None or not isinstance(config, Mapping):
        raise SpaceError(
            f"{entry!r} is not a known hyperparameter; allowed are {', '.join(_READERS)} with a "
            "`config`. Declare it with hp.Int, hp.Float, hp.Choice, hp.Boolean or hp.Fixed"
        )
    return reader(config)


def _number(kind: Callable[..., Parameter], config: _Config) -> Parameter:
    return kind(
        _name(config),
        _need(config, "min_value"),
        _need(config, "max_value"),
        step=config.get("step"),
        scale=scale_of(_name(config), config.get("sampling")),
        default=config.get("default"),
        conditions=_conditions(config),
    )


def _choice(config: _Config) -> ChoiceParameter:
    ordered = plain(config.get("ordered"))
    return ChoiceParameter(
        _name(config),
        tuple(_list(config, "values")),
        ordered=None if ordered is None else bool(ordered),
        default=config.get("default"),
        conditions=_conditions(config),
    )


def _boolean(config: _Config) -> BooleanParameter:
    return BooleanParameter(
        _name(config),
        default=config.get("default", False),
        conditions=_conditions(config),
    )


def _fixed(config: _Config) -> FixedParameter:
    return FixedParameter(
        _name(config),
        _need(config, "value"),
        conditions=_conditions(config),
    )


_READERS: Mapping[str, Callable[[_Config], Parameter]] = {
    "Float": partial(_number, FloatParameter),
    "Int": partial(_number, IntParameter),
    "Choice": _choice,
    "Boolean": _boolean,
    "Fixed": _fixed,
}


def _name(config: _Config) -> str:
    name = config.get("name")
    if not isinstance(name, str) or not name:
        raise SpaceError(f"{dict(config)!r} has no name; give every hyperparameter one")
    return name


def _need(config: _Config, key: str) -> Any:
    if key not in config:
        raise SpaceError(f"{_name(config)}: `{key}` is missing in {dict(config)!r}")
    return config[key]


def _list(config: _Config, key: str) -> Sequence[Any]:
    found = _need(config, key)
    if isinstance(found, str) or not isinstance(found, Sequence):
        raise SpaceError(f"{config.get('name')}: `{key}` is {found!r}; give a list")
    return found


def scale_of(name: str, sampling: object) -> Scale:
    """Return the scale for KerasTuner's argument `sampling`.

    KerasTuner takes None for linear, and ignores case.

    Raises:
        SpaceError: There is no such scale.
    """
    word = str(sampling or Scale.LINEAR).lower()
    try:
        return Scale(word)
    except ValueError as err:
        allowed = ", ".join(Scale)
        raise SpaceError(f"{name}: the sampling is {word!r}; allowed are {allowed}") from err


def _conditions(config: _Config) -> tuple[Condition, ...]:
    if not config.get("conditions"):
        return ()
    return tuple(_condition_from_json(entry, config) for entry in _list(config, "conditions"))


def _condition_to_json(condition: Condition) -> JsonEntry:
    return {
        "class_name": "Parent",
        "config": {"name": condition.name, "values": list(condition.values)},
    }


def _condition_from_json(entry: object, owner: _Config) -> Condition:
    config = entry.get("config") if isinstance(entry, Mapping) else None
    if (
        not isinstance(entry, Mapping)
        or entry.get("class_name") != "Parent"
        or not isinstance(config, Mapping)
    ):
        raise SpaceError(
            f"{_name(owner)}: the condition {entry!r} is not known; give a parent's name and "
            "values, with hp.conditional_scope(parent, values)"
        )
    return Condition(_name(config), tuple(_list(config, "values")))
