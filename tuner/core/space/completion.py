"""Configurations that are given in part: read, checked, and completed with defaults."""

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
    """The configuration that has these values, and `opening_value` for every other parameter.

    Args:
        space: The space that the configuration is to lie in.
        given: Values by name: as they are, or as text, which each parameter reads as its kind.

    Raises:
        UsageError: A value is not allowed, or belongs to no active parameter.
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
    """What to take for a parameter of which nothing is known: its default, if somebody gave one.

    The lowest number is what KerasTuner takes for a default if nobody gave one. It is seldom a
    good guess, so the middle of the parameter's own scale stands in for it.

    >>> from tuner.core.space.parameters import IntParameter
    >>> opening_value(IntParameter("a", 1, 9)), opening_value(IntParameter("a", 1, 9, default=3))
    (5, 3)
    """
    is_ordered = not isinstance(parameter, BooleanParameter | FixedParameter) and not (
        isinstance(parameter, ChoiceParameter) and not parameter.ordered
    )
    if is_ordered and parameter.default == parameter.from_unit(0.0):
        return parameter.from_unit(0.5)
    return parameter.default


def unknown_name(name: str, space: SearchSpace) -> str:
    """Says that the space has no such parameter, and which one may be meant."""
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
    standing = ", ".join(f"{each} is {chosen[each]!r}" for each in conditions if each in chosen)
    has = f" (here {standing})" if standing else ""
    return f"{name} is given but not active: it needs {', or '.join(scopes)}{has}"
