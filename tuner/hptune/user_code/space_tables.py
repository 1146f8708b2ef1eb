"""A search space that is written down: a table for each hyperparameter, in TOML, JSON or Python.

::

    [lr]                        # space.toml
    type = "float"
    min_value = 1e-4
    max_value = 0.1
    sampling = "log"

    [momentum]
    type = "float"
    min_value = 0.5
    max_value = 0.99
    when = { optimizer = ["sgd"] }

A list in place of a table is a choice, and another value is fixed.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import SpaceError, UsageError

_KINDS = {
    "float": ("Float", ("min_value", "max_value", "step", "sampling", "default")),
    "int": ("Int", ("min_value", "max_value", "step", "sampling", "default")),
    "choice": ("Choice", ("values", "ordered", "default")),
    "boolean": ("Boolean", ("default",)),
    "fixed": ("Fixed", ("value",)),
}
"""For each type in a file: the method of `hp`, and its arguments."""

_FORMS = (
    "a range such as hptune.Float(0, 1), a table with a type, a list of choices such as [0, 1], "
    "and a fixed number, text or boolean"
)
"""What a space may have for a name."""

EXAMPLE = '[lr]\ntype = "float"\nmin_value = 1e-4\nmax_value = 0.1\nsampling = "log"'


@dataclass(frozen=True, slots=True)
class Declaration:
    """A hyperparameter without its name.

    Attributes:
        kind: The method of `hp` that declares it.
        options: The arguments of that method after the name.
    """

    kind: str
    options: Mapping[str, Any]


def read_file(path: Path) -> Any:
    """Return what a file has: JSON if it is called so, else TOML.

    Raises:
        UsageError: It cannot be read.
    """
    is_json = path.suffix.lower() == ".json"
    form, example = ("JSON", "") if is_json else ("TOML", f". A hyperparameter is\n{EXAMPLE}")
    try:
        return (json.loads if is_json else tomllib.loads)(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the search space in {path} cannot be read: {reason}{example}") from error
    except (ValueError, RecursionError) as error:  # a number or a nesting without end, too
        raise UsageError(f"{path} is no {form}: {error}{example}") from error


def declarations(space: Mapping[str, Any]) -> dict[str, Declaration]:
    """Return the declaration of each hyperparameter.

    Args:
        space: By name: a declaration, a table, a list of choices, or a fixed value.

    Raises:
        SpaceError: A table is wrong.
    """
    found: dict[str, Declaration] = {}
    for name, value in space.items():
        if not isinstance(name, str):
            raise SpaceError(f"a hyperparameter has the name {name!r}; allowed are texts")
        found[name] = _declaration(name, value, before=list(found))
    return found


def _declaration(name: str, value: Any, *, before: list[str]) -> Declaration:
    if isinstance(value, Declaration):
        return value
    if isinstance(value, list):
        value = {"type": "choice", "values": value}
    if not isinstance(value, Mapping):
        is_group = isinstance(value, Iterable) and not isinstance(value, str)
        if is_group or callable(value) or value is None:
            raise SpaceError(f"{name} is {value!r:.100}; allowed are {_FORMS}")
        value = {"type": "fixed", "value": value}
    given = dict(value)
    kind = given.pop("type", None)
    if not isinstance(kind, str) or kind not in _KINDS:
        found = "is missing" if kind is None else f"is {kind!r}"
        raise SpaceError(f"type of {name} {found}; allowed are {', '.join(_KINDS)}")
    method, allowed = _KINDS[kind]
    conditions = _conditions(name, given.pop("when", None), before)
    for key in given:
        if key not in allowed:
            raise SpaceError(
                f"{name} has the key {key!r}; allowed for type {kind} are "
                f"{', '.join((*allowed, 'when'))}"
            )
    # NumPy is slow to import, and an error message needs none of it.
    from ..core.space.parameters.json_form import parameter_from_json

    parameter_from_json({"class_name": method, "config": {"name": name, **given}})
    return Declaration(method, given | conditions)


def _conditions(name: str, when: object, before: list[str]) -> dict[str, Any]:
    """Return the arguments of a condition such as `{ optimizer = ["sgd"] }`."""
    if when is None:
        return {}
    if not isinstance(when, Mapping) or len(when) != 1:
        raise SpaceError(
            f"`when` of {name} is {when!r}; allowed is one other hyperparameter with its "
            'values, such as when = { optimizer = ["sgd"] }'
        )
    ((parent, values),) = when.items()
    if parent not in before:
        raise SpaceError(
            f"`when` of {name} names {parent!r}; allowed are the hyperparameters above it"
            f"{': ' + ', '.join(before) if before else ', and there is none'}"
        )
    return {
        "parent_name": parent,
        "parent_values": values if isinstance(values, list) else [values],
    }
