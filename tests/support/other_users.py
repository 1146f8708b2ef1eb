"""Other users of this machine, for tests that run as root."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from requirements import require_root

NOBODY = 65534
ANOTHER = 65533


def give(path: Path, uid: int = NOBODY) -> None:
    """Give a file, or a directory with all in it, to another user."""
    require_root("give files to others")
    for each in (path, *path.rglob("*")):
        os.chown(each, uid, uid, follow_symlinks=False)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Return a folder that all users may enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextlib.contextmanager
def as_user(uid: int = NOBODY) -> Iterator[None]:
    """Let the block run as another user; what it imports must be loaded already."""
    require_root("become another user")
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
