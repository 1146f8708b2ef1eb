"""When a parameter is active."""

from __future__ import annotations

from dataclasses import dataclass

from ....errors import SpaceError
from ...trial import Params, ParamValue
from .checks import scalar


@dataclass(frozen=True, slots=True)
class Condition:
    """Holds while the parameter `name` is active and has one of `values`.

    Values are compared as Python compares them (1 equals True), because KerasTuner does so when
    the model is built, and the two must agree on which parameters are active.
    """

    name: str
    values: tuple[ParamValue, ...]

    def __post_init__(self) -> None:
        values = tuple(scalar(f"a condition on {self.name}", value) for value in self.values)
        if not values:
            raise SpaceError(
                f"a condition on {self.name} names no values; give at least one value of "
                f"{self.name} for which the parameters in the scope are used"
            )
        object.__setattr__(self, "values", values)

    def holds(self, params: Params) -> bool:
        """Whether the condition is met by these values."""
        return self.name in params and params[self.name] in self.values

    def __str__(self) -> str:
        return f"{self.name} is {' or '.join(str(value) for value in self.values)}"
