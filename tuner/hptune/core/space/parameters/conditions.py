"""Conditions: when a parameter is active."""

from __future__ import annotations

from dataclasses import dataclass

from ....errors import SpaceError
from ...trial import Params, ParamValue
from .checks import scalar


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that holds while the parameter `name` is active and has one of `values`.

    Values are compared as in Python (1 equals True), as in KerasTuner: a study and the user's code
    must agree on which parameters are active.
    """

    name: str
    values: tuple[ParamValue, ...]

    def __post_init__(self) -> None:
        what = f"a condition on {self.name}"
        values = tuple(scalar(what, value, may_be_none=True) for value in self.values)
        if not values:
            raise SpaceError(
                f"a condition on {self.name} has no values; give at least one value of "
                f"{self.name} for which the parameters in the scope are active"
            )
        object.__setattr__(self, "values", values)

    def holds(self, params: Params) -> bool:
        """Return whether the values meet the condition."""
        return self.name in params and params[self.name] in self.values

    def __str__(self) -> str:
        return f"{self.name} is {' or '.join(str(value) for value in self.values)}"
