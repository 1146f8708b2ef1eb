"""Configurations that the user gives in part: reading, checking, completing."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence

from ...errors import UsageError
from ..trial import Params, ParamValue, Trial, TrialState
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

    def value_of(parameter: Parameter) -> ParamValue:
        if parameter.name in given:
            return _read(parameter, given[parameter.name])
        return opening_value(parameter)

    chosen = space.configure(value_of)
    for name in given:
        if name not in chosen:
            raise UsageError(space.explain_extra(name, chosen))
    return chosen


def opening_value(parameter: Parameter) -> ParamValue:
    """Return the value to begin with: the default that the user gave, else the middle.

    KerasTuner begins with the lowest number if there is no default, which is seldom a good guess.

    >>> from hptune.core.space.parameters import IntParameter
    >>> opening_value(IntParameter("a", 1, 9)), opening_value(IntParameter("a", 1, 9, default=3))
    (5, 3)
    """
    if isinstance(parameter, BooleanParameter | FixedParameter) or parameter.has_default:
        return parameter.default
    if isinstance(parameter, ChoiceParameter) and not parameter.ordered:
        return parameter.default
    return parameter.from_unit(0.5)


def _read(parameter: Parameter, given: object) -> ParamValue:
    value = plain(given)
    if isinstance(value, str):
        value = parameter.read(value)
    if not isinstance(value, bool | int | float | str | None):
        raise UsageError(f"{parameter.name} is {given!r}; it must be {parameter.bounds}")
    own = parameter.canonical(value)
    if parameter.explain(own):
        # A Float makes 2.0 of 2, which nobody gave.
        raise UsageError(parameter.explain(own if isinstance(own, int) else value))
    return own


def completed_points(points: Sequence[Mapping[str, object]], space: SearchSpace) -> list[Params]:
    """Return the points as whole configurations.

    Raises:
        UsageError: One lies outside the space.
    """
    found = []
    for number, point in enumerate(points, start=1):
        try:
            found.append(completed(space, point))
        except UsageError as error:
            words = ", ".join(f"{name}={value}" for name, value in point.items())
            raise UsageError(f"start point {number} ({words}): {error.message}") from error
    return found


def known_configurations(
    space: SearchSpace, trials: Sequence[Trial], added: Iterable[Params], *, retry_hint: str
) -> dict[Hashable, str]:
    """Return the keys of the configurations that a study has, each with why it is not new.

    Args:
        space: The search space.
        trials: The study's trials.
        added: Configurations that users added, of which some may be no trials yet.
        retry_hint: How a failed trial runs again, for the message; empty if it does in any case.
    """
    known: dict[Hashable, str] = {space.key(params): "was added already" for params in added}
    for trial in reversed(trials):
        is_failed = retry_hint and trial.state is TrialState.FAILED
        hint = f", which failed; {retry_hint}" if is_failed else ""
        known[space.key(trial.params)] = f"is trial {trial.number} already{hint}"
    return known
