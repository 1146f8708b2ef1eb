"""What the user's code has drawn beyond what was suggested, and what it never asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.attempt import AttemptId
from ...core.messages import ParametersUsed
from ...core.space.parameters.checks import plain
from ...core.space.space import SearchSpace
from ...core.trial import ParamValue


def used_parameters(
    attempt: AttemptId, given: Mapping[str, ParamValue], hp: Any, *, declared: int, is_over: bool
) -> ParametersUsed | None:
    """Return the values that were not suggested, and what was not asked for; None for neither.

    The result is that of what was suggested, also where the user's code sets other values: it does
    so each time, and a search could not learn from values outside of its space.

    Args:
        attempt: The attempt.
        given: The values that were suggested.
        hp: The hyperparameters after the training.
        declared: How many of them the study's space has.
        is_over: Whether the training came to its end, and so has asked for all that it needs.
    """
    unused = tuple(name for name in given if name not in hp.asked)
    if hp.asks_all or not is_over:
        unused = ()
    space = SearchSpace(tuple(hp.space))
    names = {each.name for each in space}.intersection(hp.known_values)
    drawn = {name: _plain_value(hp.known_values[name]) for name in names.difference(given)}
    if not drawn and not unused:
        return None
    active = {each.name for each in space.active({**given, **drawn})}
    used = {name: value for name, value in drawn.items() if name in active}
    new = tuple(space.to_json()[declared:])
    if not used and not unused:
        return None
    return ParametersUsed(0.0, attempt, new if used else (), {**given, **used}, unused)


def _plain_value(value: object) -> ParamValue:
    """Return the value that the user's code has set, in a form that any process can read."""
    value = plain(value)
    # A class of the user's own cannot be read elsewhere.
    return value if isinstance(value, bool | int | float | str | None) else str(value)
