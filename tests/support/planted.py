"""A pickle that a stranger could plant."""

from __future__ import annotations

import os
from pathlib import Path


class Planted:
    """An object that makes a folder when it is unpickled.

    Args:
        mark: The folder.
    """

    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self._mark),)
