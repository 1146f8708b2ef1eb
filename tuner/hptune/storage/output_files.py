"""Files that a command writes for its user: reports and exports.

The directory may belong to somebody else, who may have put a symbolic link in the place of the
file: what is written through it would replace a file of the user's.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from .. import text
from ..errors import DISK_FULL, HptuneError, NotAFileError, StorageFullError, UsageError
from ..files.access import read_part, replacing
from ..files.ownership import is_foreign, user_name

_MARK_BYTES = 1_000
"""Where the mark of a file that hptune made is looked for."""


def write_output(path: Path, contents: bytes) -> None:
    """Write a file that the user has named, whole or not at all.

    A link is followed if the user or root made it. A pipe or a device is written to.

    Raises:
        UsageError: It is a link that another user made, or cannot be written.
        StorageFullError: There is no space for it.
    """
    try:
        check_links(path)
        if path.exists() and not path.is_file():
            path.write_bytes(contents)
        else:
            _replace(path.resolve(), contents)
    except OSError as error:
        raise unwritable(path, error) from error


def write_beside_study(path: Path, contents: bytes, *, mark: bytes) -> None:
    """Write a file whose place the user has not named, in a study's directory.

    Args:
        path: The file; only one that hptune made is replaced.
        contents: What to write.
        mark: What the beginning of such a file holds, and so of `contents`.

    Raises:
        UsageError: The directory belongs to another user, something else has this name, or it
            cannot be written.
        StorageFullError: There is no space for it.
    """
    check_unnamed(path)
    try:
        if path.exists() and not _has(path, mark):
            raise _refusal(path, "not a file that hptune made")
        _replace(path, contents)
    except OSError as error:
        raise unwritable(path, error) from error


def check_unnamed(path: Path) -> None:
    """Check that something may be written whose place the user has not named.

    Raises:
        UsageError: Its directory belongs to another user, or it is a link.
    """
    folder = path.parent
    if path.is_symlink():
        raise _refusal(path, "a symbolic link")
    if folder.exists() and is_foreign(found := folder.stat()):
        raise UsageError(
            f"{text.path(folder)} belongs to user {user_name(found.st_uid)}; name a place of your "
            "own with -o"
        )


def check_links(path: Path) -> None:
    """Check that no link which another user made leads to a place.

    Raises:
        UsageError: There is one.
    """
    for each in (path, *path.absolute().parents):
        if each.is_symlink() and is_foreign(found := each.lstat()):
            raise UsageError(
                f"{text.path(each)} is a symbolic link that user {user_name(found.st_uid)} made; "
                "name another place with -o"
            )


def _has(path: Path, mark: bytes) -> bool:
    try:
        return mark in read_part(path, most_bytes=_MARK_BYTES)
    except NotAFileError:
        return False


def _replace(path: Path, contents: bytes) -> None:
    # What is made did not exist, so no link is followed.
    with replacing(path, has_others=True) as fresh, fresh.open("xb") as file:
        if path.exists():
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
        file.write(contents)


def _refusal(path: Path, found: str) -> UsageError:
    return UsageError(
        f"{text.path(path)} is {found}, and is not replaced; name another place with -o"
    )


def unwritable(path: Path, error: OSError) -> HptuneError:
    """Return the error for a place that cannot be written."""
    kind = StorageFullError if error.errno in (*DISK_FULL, errno.EFBIG) else UsageError
    limit = " (see `ulimit -f`)" if error.errno == errno.EFBIG else ""
    found = f"{text.path(path)} cannot be written: {error.strerror}{limit}"
    return kind(f"{found}; name another place with -o")
