"""Attributes of other libraries that are replaced from their import on, such as their searches."""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import ModelFileError

_SEARCHES = {"keras_tuner": ("Tuner", "search"), "optuna": ("Study", "optimize")}
"""By library: the class and the method that runs a search."""

Replacement = tuple[Any, str, Any]
"""A module or class, the name of its attribute, and the new value."""


@contextlib.contextmanager
def replaced_on_import(
    find: Callable[[Mapping[str, Any]], Iterable[Replacement]],
) -> Iterator[None]:
    """Replace attributes of modules as soon as the code in this block has imported them.

    The modules are not imported here: what a file does before that, such as setting KERAS_BACKEND,
    counts.

    Args:
        find: Returns what to replace in the modules that are loaded.
    """
    import_module = builtins.__import__
    replaced: dict[tuple[int, str], Replacement] = {}

    def watching_import(*arguments: Any, **keywords: Any) -> Any:
        module = import_module(*arguments, **keywords)
        for owner, name, value in find(sys.modules):
            if (id(owner), name) not in replaced:
                replaced[id(owner), name] = owner, name, vars(owner)[name]
                setattr(owner, name, value)
        return module

    builtins.__import__ = watching_import
    try:
        yield
    finally:
        builtins.__import__ = import_module
        for owner, name, value in replaced.values():
            setattr(owner, name, value)


def refuse_foreign_searches() -> contextlib.AbstractContextManager[None]:
    """Raise an error, instead of training, if the code in this block runs such a search."""
    return replaced_on_import(_refusals)


def _refusals(modules: Mapping[str, Any]) -> Iterator[Replacement]:
    for library, (kind, method) in _SEARCHES.items():
        # The attribute is missing while the library itself is being imported.
        owners = getattr(getattr(modules.get(library), kind, None), "__mro__", ())
        for owner in [each for each in owners if method in vars(each)][:1]:
            yield owner, method, _refusal(library, method)


def _refusal(library: str, method: str) -> Any:
    more = {
        "keras_tuner": "`hptune run` runs a whole script as it is",
        "optuna": "`hptune help from-optuna` has the rest",
    }

    def refuse(*_arguments: Any, **_keywords: Any) -> None:
        raise ModelFileError(
            f"the file runs a search of {library} when it is imported; put the line with "
            f'.{method}(…), and what follows from it, under `if __name__ == "__main__":`; '
            f"{more[library]}"
        )

    return refuse
