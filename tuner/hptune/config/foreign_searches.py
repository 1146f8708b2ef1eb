"""Searches of other tuners, which a model file must not run when it is imported."""

from __future__ import annotations

import builtins
import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from ..errors import ModelFileError

_SEARCHES = {"keras_tuner": ("Tuner", "search"), "optuna": ("Study", "optimize")}
"""By library: the class and the method that runs a search."""


@contextlib.contextmanager
def refuse_foreign_searches() -> Iterator[None]:
    """Raise an error, instead of training, if the code in this block runs another tuner's search.

    The libraries are watched from their import on. They are not imported here: what the file does
    before that, such as setting KERAS_BACKEND, counts.
    """
    import_module = builtins.__import__
    replaced: dict[str, tuple[type[Any], str, Any]] = {}

    def watching_import(*arguments: Any, **keywords: Any) -> Any:
        module = import_module(*arguments, **keywords)
        for library, (_, name) in _SEARCHES.items():
            if library in replaced or library not in sys.modules:
                continue
            if (found := _searching_class(library)) is not None:
                replaced[library] = found, name, vars(found)[name]
                setattr(found, name, _refusal(library, name))
        return module

    builtins.__import__ = watching_import
    try:
        yield
    finally:
        builtins.__import__ = import_module
        for found, name, search in replaced.values():
            setattr(found, name, search)


def _searching_class(library: str) -> type[Any] | None:
    kind, method = _SEARCHES[library]
    # The attribute is missing while the library itself is being imported.
    owners = getattr(getattr(sys.modules[library], kind, None), "__mro__", ())
    return next((each for each in owners if method in vars(each)), None)


def _refusal(library: str, method: str) -> Any:
    def refuse(*_arguments: Any, **_keywords: Any) -> None:
        raise ModelFileError(
            f"the file runs a search of {library} when it is imported; put the line with "
            f'.{method}(…), and what follows from it, under `if __name__ == "__main__":`'
        )

    return refuse
