"""The kinds of hyperparameters, with KerasTuner's meaning, and their JSON form.

A parameter is identified by its name and its conditions together: a name may be declared again
under other conditions.

All kinds have these attributes and methods:

- `name`, `default`, `conditions`;
- `values`: all values, in the order of the unit interval; None if they are continuous;
- `grid_values(resolution)`: the values for a grid;
- `from_unit(u)` and `to_unit(value)`: maps from and to [0, 1], uniform on the parameter's scale;
- `explain(value)`: why a value is not allowed; empty if it is;
- `canonical(value)`: the equal value of the parameter's own type;
- `read(text)`: the value that a text stands for; the text itself if it stands for none;
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
    """Return what identifies a declaration: its name and conditions."""
    return (parameter.name, parameter.conditions)


def label(parameter: Parameter) -> str:
    """Return the name, followed by the conditions in words if there are any."""
    if not parameter.conditions:
        return parameter.name
    return f"{parameter.name} (when {' and '.join(map(str, parameter.conditions))})"
