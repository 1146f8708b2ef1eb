"""Private folders in the shared temporary directory, where other users may put what they like."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from .process_ids import began, place

NAME = "hptune-"
_OWNER = "owner"
"""The file that names the process that the folder belongs to."""

_NAMELESS_SECONDS = 3_600.0
"""Age of a folder without an owner from which it is removed. It is made within milliseconds."""


@contextlib.contextmanager
def server_folder(parent: str | None = None, *, prefix: str = f"dask-{NAME}") -> Iterator[Path]:
    """Create a folder for a server's files as `create_folder` does, and remove it in the end."""
    folder = create_folder(parent, prefix=prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def create_folder(parent: str | None = None, *, prefix: str = NAME) -> Path:
    """Create a folder that only this user may enter.

    Folders that killed processes of this user left in the same directory are removed.

    Args:
        parent: The directory to create it in, created if missing; None for the temporary one.
        prefix: The beginning of its name.
    """
    if parent is not None:
        Path(parent).mkdir(parents=True, exist_ok=True)
    owner = f"{place()} {os.getpid()} {began(os.getpid())}"
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
    (folder / _OWNER).write_text(owner)  # at once: without it, a folder is left for an hour
    _sweep(folder.parent)
    return folder


def _sweep(parent: Path) -> None:
    for folder in parent.glob(f"*{NAME}*"):
        if _has_living_owner(folder) is False or _has_no_owner(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _has_no_owner(folder: Path) -> bool:
    """Return whether the process of a folder died before it wrote its name there."""
    with contextlib.suppress(OSError):
        is_old = time.time() - folder.stat().st_mtime > _NAMELESS_SECONDS
        return is_old and _is_mine(folder) and not (folder / _OWNER).exists()
    return False


def is_in_use(folder: Path) -> bool:
    """Return whether a folder belongs to a process of this user's that runs here."""
    return bool(_has_living_owner(folder))


def _has_living_owner(folder: Path) -> bool | None:
    """Return whether a folder's process runs; None if that is unknown, or not this user's."""
    with contextlib.suppress(OSError, ValueError):
        if _is_mine(folder):
            where, pid, since = (folder / _OWNER).read_text().rsplit(" ", 2)
            if where == place():
                return began(int(pid)) == since
    return None


def _is_mine(folder: Path) -> bool:
    # Another user's could be a link, or hold a pipe or an endless file instead of a name.
    found = folder.lstat()
    return (
        stat.S_ISDIR(found.st_mode)
        and found.st_uid == os.getuid()
        and not found.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    )
