"""The output of `hptune space`: the hyperparameters of a model file or a study."""

from __future__ import annotations

from collections.abc import Sequence

from ... import text
from ...core.space.completion import opening_value
from ...core.space.space import Parameter, SearchSpace
from ..table import table


def space_text(
    space: SearchSpace,
    *,
    warnings: Sequence[str] = (),
    is_complete: bool | None = True,
    width: int | None = None,
) -> str:
    """Return the output of `hptune space`; `is_complete` is None if that is not recorded."""
    rows: list[tuple[str, ...]] = [("name", "values", "tried first", "type", "range")]
    rows += [_row(parameter) for parameter in space]
    size = space.size()
    count = "any number of" if size is None else f"{size:,}"
    configurations = f"{count} configuration{'' if size == 1 else 's'}"
    lines = [f"{text.plural(len(space), 'hyperparameter')}, {configurations}"]
    if len(space):
        lines += ["", *table(rows, left=("name", "tried first", "type"), width=width)]
    if is_complete is False:
        lines += ["", "Trials may declare more: not every branch of the code was tried."]
    return "\n".join([*lines, *(f"warning: {warning}" for warning in warnings)])


def space_json(
    space: SearchSpace, *, warnings: Sequence[str] = (), is_complete: bool | None = True
) -> dict[str, object]:
    """Return the output of `hptune space --json`.

    `space` is as in KerasTuner's `get_config()`. `tried_first` is what a search begins with; the
    `default` is KerasTuner's, the lowest number if the code gives none.
    """
    return {
        "configurations": space.size(),
        "is_complete": is_complete,
        "space": [
            {**entry, "bounds": parameter.bounds, "tried_first": opening_value(parameter)}
            for parameter, entry in zip(space, space.to_json(), strict=True)
        ],
        "warnings": list(warnings),
    }


def _row(parameter: Parameter) -> tuple[str, ...]:
    kind, _, bounds = parameter.bounds.partition(" ")
    conditions = " and ".join(map(str, parameter.conditions))
    return (
        parameter.name,
        "any" if parameter.values is None else str(len(parameter.values)),
        text.param(opening_value(parameter)),
        kind,
        bounds + (f", if {conditions}" if conditions else ""),
    )
