"""Attributes of studies and trials: any value, of any process."""

from __future__ import annotations

import pickle
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import cloudpickle

from ..files.access import atomic_write
from ..files.ownership import check_loadable


def set_attribute(folder: Path, name: str, value: Any) -> None:
    """Write an attribute, in place of an earlier value."""
    folder.mkdir(parents=True, exist_ok=True)
    atomic_write(folder / f"{quote(name, safe='')}.pkl", cloudpickle.dumps(value))


def attributes(folder: Path) -> dict[str, Any]:
    """Return all attributes, by name; a value may be large, such as a model, and is read once.

    Raises:
        UsageError: Another user may have written them.
    """
    paths = sorted(folder.glob("*.pkl"))
    return {unquote(path.stem): _read(path, path.stat().st_mtime_ns) for path in paths}


@cache
def _read(path: Path, _written_at: int) -> Any:
    with path.open("rb") as file:
        check_loadable(file)
        return pickle.load(file)  # noqa: S301 - of this user
