"""The file in a study's directory with its model's scaling curves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ..storage.files import atomic_write
from .curve import ScalingCurve

NAME = "scaling.json"


def write_curves(study: Path, curves: Sequence[ScalingCurve]) -> None:
    """Keep the curves in a study's directory, in place of earlier ones.

    Raises:
        StorageFullError: There is no space, or writing is forbidden.
    """
    content = json.dumps([each.to_json() for each in curves], indent=2)
    atomic_write(study / NAME, f"{content}\n".encode())


def read_curves(study: Path) -> tuple[ScalingCurve, ...]:
    """Return the curves in a study's directory; empty if it has none that can be read."""
    try:
        content = json.loads((study / NAME).read_text(encoding="utf-8"))
        return tuple(map(ScalingCurve.from_json, content))
    except (OSError, ValueError, LookupError, TypeError):  # written by another version, or by hand
        return ()
