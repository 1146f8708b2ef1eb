"""Errors of the file system that holds a study: which they are, and what the user can do."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import tempfile
from collections.abc import Iterator
from pathlib import Path
from resource import RLIM_INFINITY, RLIMIT_FSIZE, getrlimit

from ..errors import StorageFullError, StudyError
from .filesystem import mount_of

OF_SERVER = (
    errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN, errno.EREMOTEIO, errno.EHOSTDOWN
)  # fmt: skip
"""Errors of a file system whose server does not answer: NFS, Lustre, SMB, sshfs."""

_STORAGE_ERRORS = frozenset(
    {
        *OF_SERVER,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.EFBIG,
        errno.ESTALE,
        errno.EISDIR,
    }
)
_PROBE_BYTES = 1_000_000
"""More than a file system with free blocks but without quota takes."""


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's errors for space and permission into `StorageFullError`.

    Those of a file server that does not answer, too.

    Args:
        path: The file that is written or read, for the message.

    Raises:
        StorageFullError: There is no space, or no permission; other errors pass unchanged.
    """
    try:
        yield
    except OSError as err:
        if err.errno not in _STORAGE_ERRORS:
            raise
        raise storage_full(path, os.strerror(err.errno)) from err


def storage_full(path: Path, what: str) -> StorageFullError:
    """Return the error for a file system without space or permission.

    Args:
        path: The file that could not be written or read.
        what: The message of the operating system or of SQLite. It may be vague ("disk I/O error"),
            so the error says what a write to the same directory finds now.
    """
    folder = next(each for each in (path, *path.parents) if os.path.isdir(each))  # noqa: PTH112 - raises nothing
    mount = shlex.quote(mount_of(folder).point)
    match refusal_of(folder):
        case errno.ENOSPC if not os.statvfs(folder).f_ffree:
            found = f"the file system {mount} cannot hold more files (it has no inodes left)"
            remedy = "Remove files there"
        case errno.ENOSPC:
            found, remedy = f"the file system {mount} is full", "Free space there"
        case errno.EDQUOT:
            found = f"your disk quota on the file system {mount} is used up"
            remedy = "Remove files there, or have the quota raised"
        case errno.EROFS:
            found, remedy = f"the file system {mount} is read-only", "Have it made writable"
        case errno.EACCES if not os.access(folder, os.R_OK | os.X_OK, effective_ids=True):
            found = f"this user may not read {shlex.quote(str(folder))}"
            remedy = "Have its owner allow it (`chmod -R go+rX`)"
        case errno.EACCES | errno.EPERM:
            found = f"this user may not write to {shlex.quote(str(folder))}"
            remedy = "Make it writable, which only its owner may do"
        case number if number in OF_SERVER:
            found = f"the file system {mount} does not answer ({os.strerror(number)})"
            remedy = "See that this machine reaches its server"
        case None | errno.EFBIG if (most := getrlimit(RLIMIT_FSIZE)[0]) != RLIM_INFINITY:
            found = f"{what}, and this process may write no file of more than {most} bytes"
            remedy = "Raise that limit (`ulimit -f`), or check space and quota"
        case _:
            found = what
            remedy = f"Check space, quota and rights on the file system {mount}"
    study = next((each for each in (path, *path.parents) if _is_study(each)), None)
    then = "try again"
    if study is not None:
        then = f"continue with `hptune resume {_quoted(study)}`; finished trials are safely stored"
    return StorageFullError(f"{_quoted(path)} cannot be used: {found}. {remedy}, then {then}")


def is_removed(directory: Path) -> bool:
    """Return whether there is no such directory; False where that cannot be seen."""
    try:
        directory.stat()
    except OSError as error:
        return isinstance(error, FileNotFoundError)
    return False


def removed(directory: Path) -> StudyError:
    """Return the error for a study directory that was removed or renamed while a master ran."""
    return StudyError(
        f"the study in {_quoted(directory)} was removed or renamed while it ran. If it was "
        "renamed, nothing is lost: continue with `hptune resume NEW_DIRECTORY`"
    )


def refusal_of(folder: Path) -> int | None:
    """Return the system's error number for a small file in the folder; None if it can be written.

    Only a write shows whether a quota is used up.
    """
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(os.urandom(_PROBE_BYTES))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return error.errno
    return None


def _is_study(path: Path) -> bool:
    return os.path.exists(path / "study.db")  # noqa: PTH110 - False where it may not be read


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
