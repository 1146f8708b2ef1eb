"""The JSON form of parameters: KerasTuner's, as in `HyperParameters.get_config()["space"]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from .checks import check_text, plain
from .scales import Scale

_Config = Mapping[str, Any]  # JSON; the parameter's constructor checks its values
JsonEntry = dict[str, object]


_RANGE = {
    "default": "default",
    "min_value": "low",
    "max_value": "high",
    "step": "step",
    "sampling": "scale",
}
_CHOICES = {"default": "default", "values": "values", "ordered": "ordered"}
_KINDS: Mapping[str, tuple[type[Parameter], Mapping[str, str]]] = {
    "Float": (FloatParameter, _RANGE),
    "Int": (IntParameter, _RANGE),
    "Choice": (ChoiceParameter, _CHOICES),
    "Boolean": (BooleanParameter, {"default": "default"}),
    "Fixed": (FixedParameter, {"value": "value"}),
}
"""By KerasTuner's name of a kind: its class, and the attribute for each key of the JSON form."""
_NEEDED = ("min_value", "max_value", "values", "value")


def parameter_to_json(parameter: Parameter) -> JsonEntry:
    """Return one declaration in its JSON form.

    >>> parameter_to_json(BooleanParameter("shuffle"))
    {'class_name': 'Boolean', 'config': {'name': 'shuffle', 'conditions': [], 'default': False}}
    """
    name, keys = next((n, k) for n, (kind, k) in _KINDS.items() if isinstance(parameter, kind))
    config: JsonEntry = {
        "name": parameter.name,
        "conditions": [_condition_to_json(condition) for condition in parameter.conditions],
        **{key: getattr(parameter, attribute) for key, attribute in keys.items()},
    }
    match parameter:
        case ChoiceParameter() | FloatParameter() | IntParameter() if not parameter.has_default:
            config["default"] = None
    match parameter:
        case ChoiceParameter():
            config["values"] = list(parameter.values)
        case FloatParameter() | IntParameter():
            config["sampling"] = str(parameter.scale)
    return {"class_name": name, "config": config}


def parameter_from_json(entry: Mapping[str, object]) -> Parameter:
    """Read one declaration from its JSON form.

    Raises:
        SpaceError: The kind is unknown, an argument is missing, or the declaration is not valid.
    """
    fields = entry if isinstance(entry, Mapping) else {}
    config, class_name = fields.get("config"), str(fields.get("class_name"))
    if class_name not in _KINDS or not isinstance(config, Mapping):
        raise SpaceError(
            f"{entry!r} is not a known hyperparameter; allowed are {', '.join(_KINDS)} with a "
            "`config`. Declare it with hp.Int, hp.Float, hp.Choice, hp.Boolean or hp.Fixed"
        )
    kind, keys = _KINDS[class_name]
    name = _name(config)
    for key in keys:
        if key in _NEEDED:
            _need(config, key)
    given: dict[str, Any] = {keys[key]: config[key] for key in keys if key in config}
    if "scale" in keys.values():
        given["scale"] = scale_of(name, config.get("sampling"))
    if "values" in given:
        given["values"] = tuple(_list(config, "values"))
    if given.get("ordered") is not None:
        given["ordered"] = bool(plain(given["ordered"]))
    return kind(name=name, conditions=_conditions(config), **given)


def _name(config: _Config) -> str:
    name = config.get("name")
    if not isinstance(name, str) or not name:
        raise SpaceError(f"{dict(config)!r} has no name; give every hyperparameter one")
    check_text(name, name)
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
