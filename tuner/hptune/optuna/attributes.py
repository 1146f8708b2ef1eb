"""Attributes of studies and trials: any value, of any process."""

from __future__ import annotations

import hashlib
import pickle
import secrets
from pathlib import Path
from typing import Any

import cloudpickle

from ..files.access import atomic_write
from ..files.ownership import check_loadable

_known: dict[Path, tuple[object, tuple[str, Any]]] = {}
"""What was read from files, and of which version: a value may be large, such as a model."""


def set_attribute(folder: Path, name: str, value: Any) -> None:
    """Write an attribute, in place of an earlier value."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = folder / secrets.token_hex(8)  # others may write the same attribute at this moment
    atomic_write(fresh, cloudpickle.dumps((name, value)))
    fresh.replace(folder / f"{hashlib.sha256(name.encode()).hexdigest()}.pkl")


def attributes(folder: Path) -> dict[str, Any]:
    """Return all attributes, by name; the values are not the caller's to change.

    Raises:
        UsageError: Another user may have written them.
    """
    return dict(sorted(map(_read, folder.glob("*.pkl")), key=lambda item: item[0]))


def _read(path: Path) -> tuple[str, Any]:
    found = path.stat()
    version = found.st_mtime_ns, found.st_ino
    if path not in _known or _known[path][0] != version:
        with path.open("rb") as file:
            check_loadable(file)
            _known[path] = version, pickle.load(file)  # noqa: S301 - of this user
    return _known[path][1]
