"""What the search space of an asked study is read from: declarations, a file, or a model file."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..core.space.space import SearchSpace
from ..errors import UsageError
from ..training.hyperparameters import HyperParameters
from ..user_code.source import Found, ObjectiveSource, SourceKind
from ..user_code.space_tables import Declaration, declarations, read_file

_FORMS = (
    'a mapping such as {"lr": hptune.Float(1e-4, 0.1, sampling="log")}, a function of hp, the path '
    "of a .toml or .json file, or that of a model file"
)


def _declaring(kind: str) -> Callable[..., Declaration]:
    """Return the function of a kind, which takes what the method of `hp` takes after the name."""
    method = inspect.signature(getattr(HyperParameters, kind))
    parameters = [each for each in method.parameters.values() if each.name not in ("self", "name")]
    signature = inspect.Signature(parameters, return_annotation="Declaration")

    def declare(*arguments: Any, **options: Any) -> Declaration:
        try:
            return Declaration(kind, signature.bind(*arguments, **options).arguments)
        except TypeError as error:
            allowed = ", ".join(signature.parameters)
            raise TypeError(f"hptune.{kind}: {error}; its arguments are {allowed}") from None

    declare.__name__ = declare.__qualname__ = kind
    declare.__doc__ = getattr(HyperParameters, kind).__doc__
    declare.__signature__ = signature  # type: ignore[attr-defined]  # read by inspect
    return declare


Int, Float, Choice, Boolean, Fixed = map(_declaring, ("Int", "Float", "Choice", "Boolean", "Fixed"))


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
        if Path(space).suffix.lower() not in (".toml", ".json"):
            raise UsageError(f"space is {str(space)!r}; allowed are {_FORMS}")
        space = read_file(Path(space))
    if callable(getattr(space, "get_config", None)):
        return SearchSpace.from_json(space.get_config()["space"])
    if isinstance(space, list):
        return SearchSpace.from_json(space)
    hp = HyperParameters()
    hp.on_conflict = warnings.warn
    if isinstance(space, Mapping):
        for name, each in declarations(space).items():
            getattr(hp, each.kind)(name, **each.options)
    elif callable(space):
        space(hp)
    else:
        raise UsageError(f"space is {space!r}; allowed are {_FORMS}")
    return SearchSpace.from_json(hp.get_config()["space"])
