"""The kinds of hyperparameters: which values each allows, and how it reads in JSON.

They are KerasTuner's kinds, with KerasTuner's meaning. A parameter is identified by its name and
its conditions together: the same name may be declared twice, under different conditions.

Every kind has these in common, and nothing else asks which kind it has before it:

- `name`, `default`, `conditions`;
- `values`: all the values, in the order of the unit interval; None if they form a continuum;
- `grid_values(resolution)`: the values that a grid goes through;
- `from_unit(u)` and `to_unit(value)`: to and from [0, 1], evenly on the parameter's own scale;
- `explain(value)`: why a value is not allowed; empty if it is;
- `canonical(value)`: the same value as this parameter would have written it itself;
- `read(text)`: the value that this text says; the text itself if it says none;
- `bounds`: kind and allowed values in words.

May import: `errors`, `core`.
"""

from __future__ import annotations

from .categorical import BooleanParameter, ChoiceParameter, FixedParameter
from .conditions import Condition
from .numerical import FloatParameter, IntParameter
from .scales import Scale

__all__ = [
    "BooleanParameter",
    "ChoiceParameter",
    "Condition",
    "FixedParameter",
    "FloatParameter",
    "IntParameter",
    "Parameter",
    "Scale",
    "identity",
    "label",
]

Parameter = FloatParameter | IntParameter | ChoiceParameter | BooleanParameter | FixedParameter


def identity(parameter: Parameter) -> tuple[str, tuple[Condition, ...]]:
    """What tells this declaration from others: name and conditions."""
    return (parameter.name, parameter.conditions)


def label(parameter: Parameter) -> str:
    """The name, with the conditions in words if there are any."""
    if not parameter.conditions:
        return parameter.name
    return f"{parameter.name} (when {' and '.join(map(str, parameter.conditions))})"
