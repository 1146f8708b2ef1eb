"""What the search space of an asked study is read from: declarations, a file, or a model file."""

from __future__ import annotations

import inspect
import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.space.space import SearchSpace
from ..errors import SpaceError, UsageError
from ..training.hyperparameters import HyperParameters
from ..user_code.model_file import Found, ObjectiveSource, SourceKind

KINDS = ("Int", "Float", "Choice", "Boolean", "Fixed")
_FORMS = (
    'a mapping such as {"lr": hptune.Float(1e-4, 0.1, sampling="log")}, a function of hp, the path '
    "of a .toml or .json file, or that of a model file"
)


@dataclass(frozen=True, slots=True)
class Declaration:
    """A hyperparameter without its name.

    Attributes:
        kind: The method of `hp` that declares it.
        arguments: The arguments of that method after the name.
        options: Its keyword arguments.
    """

    kind: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


def _declaring(kind: str) -> Callable[..., Declaration]:
    """Return the function of a kind, which takes what the method of `hp` takes after the name."""
    method = inspect.signature(getattr(HyperParameters, kind))
    parameters = [each for each in method.parameters.values() if each.name not in ("self", "name")]
    signature = inspect.Signature(parameters, return_annotation="Declaration")

    def declare(*arguments: Any, **options: Any) -> Declaration:
        signature.bind(*arguments, **options)
        return Declaration(kind, arguments, options)

    declare.__name__ = declare.__qualname__ = kind
    declare.__doc__ = getattr(HyperParameters, kind).__doc__
    declare.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    return declare


Int, Float, Choice, Boolean, Fixed = map(_declaring, KINDS)


def read_space(space: Any) -> tuple[Found, ObjectiveSource]:
    """Return what a space declares, and where the code is that declares it.

    Args:
        space: One of `_FORMS`; None for what the trials ask for, by their `hp`.

    Raises:
        UsageError: It is none of these, or declares something wrong.
        ModelFileError: The model file cannot be used.
    """
    if isinstance(space, str | Path) and Path(space).suffix == ".py":
        from ..master.code_reader import read_code  # loads what runs the user's code

        source = ObjectiveSource(SourceKind.FILE, str(Path(space).absolute()))
        return read_code(source, quiet=True), source
    is_complete = space is not None and not callable(space)
    declared = tuple(_declared(space).to_json())
    found = Found(is_keras=False, space=declared, constants={}, is_complete=is_complete)
    return found, ObjectiveSource(SourceKind.ASKED, "")


def _declared(space: Any) -> SearchSpace:
    if space is None:
        return SearchSpace()
    if isinstance(space, SearchSpace):
        return space
    if isinstance(space, str | Path):
        space = _from_file(Path(space))
    if callable(getattr(space, "get_config", None)):
        return SearchSpace.from_json(space.get_config()["space"])
    if isinstance(space, list):
        return SearchSpace.from_json(space)
    hp = HyperParameters()
    if isinstance(space, Mapping):
        for name, value in space.items():
            each = _declaration(name, value)
            try:
                getattr(hp, each.kind)(name, *each.arguments, **each.options)
            except TypeError as error:
                raise SpaceError(f"{name}: {error}") from error
    elif callable(space):
        space(hp)
    else:
        raise UsageError(f"space is {space!r}; allowed are {_FORMS}")
    return SearchSpace.from_json(hp.get_config()["space"])


def _declaration(name: str, value: Any) -> Declaration:
    if isinstance(value, Declaration):
        return value
    if isinstance(value, list):
        return Declaration("Choice", (value,), {})
    if not isinstance(value, Mapping):
        return Declaration("Fixed", (value,), {})
    kind = str(value.get("kind", "")).capitalize()
    if kind not in KINDS:
        raise SpaceError(
            f"{name} is {dict(value)!r}; its kind must be one of {', '.join(KINDS)}, such as "
            f'{name} = {{kind = "Float", min_value = 1e-4, max_value = 0.1}}'
        )
    return Declaration(kind, (), {key: each for key, each in value.items() if key != "kind"})


def _from_file(path: Path) -> Any:
    read = {".toml": tomllib.loads, ".json": json.loads}.get(path.suffix.lower())
    if read is None:
        raise UsageError(f"space is {str(path)!r}; allowed are {_FORMS}")
    try:
        return read(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the space in {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UsageError(f"the space in {path} is no {path.suffix[1:].upper()}: {error}") from error
