"""The fields in which a user gives the values of a new trial."""

from __future__ import annotations

import html

from ... import text
from ...core.space.completion import opening_value
from ...core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    FixedParameter,
    Parameter,
    SearchSpace,
)
from ...core.trial import ParamValue


def add_trial_form(space: SearchSpace) -> str:
    """Return a field for each searched hyperparameter, as HTML.

    A field that is left empty means the default, which it shows.
    """
    declared: dict[str, list[Parameter]] = {}
    for parameter in space:
        if not isinstance(parameter, FixedParameter):
            declared.setdefault(parameter.name, []).append(parameter)
    return "\n".join(
        _field(f"value-{number}", name, found)
        for number, (name, found) in enumerate(declared.items())
    )


def _field(identifier: str, name: str, declared: list[Parameter]) -> str:
    hints = "; or ".join(map(_hint, declared))
    default = text.param(opening_value(declared[0]))
    label, described = html.escape(text.clean(name)), f"{identifier}-hint"
    marks = (
        f'id="{identifier}" name="{html.escape(name)}" aria-describedby="{described}" '
        'autocomplete="off"'
    )
    words = [value for each in declared for value in _words(each)]
    if words:
        options = "".join(
            f'<option value="{html.escape(str(value))}">{html.escape(text.param(value))}</option>'
            for value in dict.fromkeys(words)
        )
        default_option = f'<option value="">default ({html.escape(default)})</option>'
        control = f"<select {marks}>{default_option}{options}</select>"
    else:
        control = f'<input {marks} inputmode="decimal" placeholder="{html.escape(default)}">'
    return (
        f'<div class="field"><label for="{identifier}">{label}</label>{control}'
        f'<p id="{described}">{html.escape(hints)}</p></div>'
    )


def _words(parameter: Parameter) -> list[ParamValue]:
    is_listed = isinstance(parameter, ChoiceParameter | BooleanParameter)
    return [*(parameter.values or ())] if is_listed else []


def _hint(parameter: Parameter) -> str:
    conditions = " and ".join(map(str, parameter.conditions))
    return parameter.bounds + (f", if {conditions}" if conditions else "")
