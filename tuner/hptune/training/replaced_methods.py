"""Methods of Keras's classes, or of a model, that are replaced where Keras has no hook.

A process trains one trial, so nothing else sees them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any


@contextlib.contextmanager
def replaced(owner: Any, methods: Mapping[str, Any]) -> Iterator[None]:
    """Replace methods of a class or a model, by name; at the end, it is as it was."""
    own = {name: vars(owner)[name] for name in methods if name in vars(owner)}
    for name, method in methods.items():
        setattr(owner, name, method)
    try:
        yield
    finally:
        for name in methods:
            if name in own:
                setattr(owner, name, own[name])
            else:
                delattr(owner, name)
