"""What a study keeps of its model's scaling: a file of curves, and a fact of its ledger."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ..core.scaling.curve import ScalingCurve
from .files import atomic_write

NAME = "scaling.json"

MEASURING: Final = "measuring"
"""Name of the ledger's fact that says whether the study measures training steps now."""


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
