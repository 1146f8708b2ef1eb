"""Commands that a test makes, in place of those of the machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Commands:
    """A directory of commands; the fixture `commands` is the first one on PATH."""

    folder: Path

    def make(self, name: str, script: str) -> Path:
        """Make a command of lines of bash, or replace it."""
        path = self.folder / name
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
        return path
