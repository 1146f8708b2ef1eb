"""The values that the user's code has drawn beyond those that were suggested."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.attempt import AttemptId
from ...core.messages import ParametersUsed
from ...core.space.parameters.checks import plain
from ...core.space.space import SearchSpace
from ...core.trial import ParamValue


def used_parameters(
    attempt: AttemptId, given: Mapping[str, ParamValue], hp: Any, *, declared: int
) -> ParametersUsed | None:
    """Return the values of hyperparameters that were not suggested; None if there are none.

    The result is that of what was suggested, also where the user's code sets other values: it does
    so each time, and a search could not learn from values outside of its space.

    Args:
        attempt: The attempt.
        given: The values that were suggested.
        hp: The hyperparameters after the training.
        declared: How many of them the study's space has.
    """
    space = hp.get_config()["space"]
    names = {str(each["config"]["name"]) for each in space}.intersection(hp.values)
    drawn = {name: _plain_value(hp.values[name]) for name in names.difference(given)}
    if not drawn:
        return None
    active = {each.name for each in SearchSpace.from_json(space).active({**given, **drawn})}
    used = {name: value for name, value in drawn.items() if name in active}
    new = tuple(space[declared:])
    return ParametersUsed(0.0, attempt, new, {**given, **used}) if used else None


def _plain_value(value: object) -> ParamValue:
    """Return the value that the user's code has set, in a form that any process can read."""
    value = plain(value)
    # A class of the user's own cannot be read elsewhere.
    is_builtin = type(value).__module__ == "builtins"
    if value is None or (is_builtin and isinstance(value, bool | int | float | str)):
        return value
    return str(value)
