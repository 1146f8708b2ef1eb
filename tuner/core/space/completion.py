"""Configurations that the user gives in part: reading, checking, completing."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from ...errors import UsageError
from ..trial import Params, ParamValue
from .enumeration import is_open
from .parameters import BooleanParameter, ChoiceParameter, FixedParameter, Parameter
from .parameters.checks import plain
from .space import SearchSpace


def completed(space: SearchSpace, given: Mapping[str, object]) -> Params:
    """Return the configuration with these values, and `opening_value` for all other parameters.

    Args:
        space: The configuration's space.
        given: Values by name. A text is read as a value of the parameter's kind.

    Raises:
        UsageError: A value is not allowed, or is given for an unknown or inactive parameter.
    """
    chosen: dict[str, ParamValue] = {}
    for parameter in space:
        if not is_open(parameter, chosen):
            continue
        if parameter.name in given:
            chosen[parameter.name] = _read(parameter, given[parameter.name])
        else:
            chosen[parameter.name] = opening_value(parameter)
    for name in given:
        if name not in chosen:
            raise UsageError(_explain_extra(space, name, chosen))
    return chosen


def opening_value(parameter: Parameter) -> ParamValue:
    """Return the value to begin with: the default that the user gave, else the middle.

    KerasTuner begins with the lowest number if there is no default, which is seldom a good guess.

    >>> from tuner.core.space.parameters import IntParameter
    >>> opening_value(IntParameter("a", 1, 9)), opening_value(IntParameter("a", 1, 9, default=3))
    (5, 3)
    """
    if isinstance(parameter, BooleanParameter | FixedParameter) or parameter.has_default:
        return parameter.default
    if isinstance(parameter, ChoiceParameter) and not parameter.ordered:
        return parameter.default
    return parameter.from_unit(0.5)


def unknown_name(name: str, space: SearchSpace) -> str:
    """Return the message for a name that the space does not have, with the most similar one."""
    known = [*dict.fromkeys(parameter.name for parameter in space)]
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{name} is unknown; the space has {', '.join(known) or 'no parameters'}.{hint}"


def _read(parameter: Parameter, given: object) -> ParamValue:
    value = plain(given)
    if isinstance(value, str):
        value = parameter.read(value)
    if not isinstance(value, bool | int | float | str):
        raise UsageError(f"{parameter.name} is {given!r}; it must be {parameter.bounds}")
    if fault := parameter.explain(value):
        raise UsageError(fault)
    return parameter.canonical(value)


def _explain_extra(space: SearchSpace, name: str, chosen: Params) -> str:
    scopes = [" and ".join(map(str, p.conditions)) for p in space if p.name == name]
    if not scopes:
        return unknown_name(name, space)
    conditions = {c.name for p in space if p.name == name for c in p.conditions}
    present = ", ".join(f"{each} is {chosen[each]!r}" for each in conditions if each in chosen)
    has = f" (here {present})" if present else ""
    return f"{name} is given but not active: it needs {', or '.join(scopes)}{has}"
