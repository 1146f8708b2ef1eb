"""Methods of Keras's classes that are replaced while a trial trains, where Keras has no hook.

A process trains one trial, so nothing else sees them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def replaced(cls: Any, methods: Mapping[str, Any]) -> Iterator[None]:
    """Replace methods of a class, by name; at the end, the class is as it was."""
    own = {name: vars(cls)[name] for name in methods if name in vars(cls)}
    for name, method in methods.items():
        setattr(cls, name, method)
    try:
        yield
    finally:
        for name in methods:
            if name in own:
                setattr(cls, name, own[name])
            else:
                delattr(cls, name)
