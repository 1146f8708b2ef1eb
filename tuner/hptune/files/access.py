"""One file, read in part or replaced as a whole."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shlex
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeVar

from ..errors import NotAFileError
from .file_errors import storage_errors

_Data = TypeVar("_Data")


def whole_path(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path without `..`: `runs/../one` becomes `/here/one`.

    Symbolic links are kept, because they may lead elsewhere on other machines. A `..` after a
    symbolic link is kept too if its removal would change where the path leads.
    """
    given = Path(os.path.expanduser(path)).absolute()  # noqa: PTH111 - Path fails on ~nobody
    plain = Path(os.path.normpath(given))
    return plain if plain.resolve() == given.resolve() else given


def exists(path: Path) -> bool:
    """Return whether a path leads to something; an error if that cannot be found out.

    From Python 3.14 on, `Path.exists`, `is_file` and `is_dir` are also False if the server does not
    answer or the folder may not be read. Use these functions where that must not look like absence.

    Raises:
        OSError: A folder may not be read, the server does not answer, the name is too long.
    """
    return _mode(path) != 0


def is_file(path: Path) -> bool:
    """Return whether a path leads to a file; raises what `exists` does."""
    return stat.S_ISREG(_mode(path))


def is_folder(path: Path) -> bool:
    """Return whether a path leads to a folder; raises what `exists` does."""
    return stat.S_ISDIR(_mode(path))


def _mode(path: Path) -> int:
    """Return the type and rights of what is at a path; 0 if nothing is."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):  # or the path has a null character
        return 0
    except OSError as error:
        if error.errno == errno.ELOOP:
            return 0
        raise


def open_plain(path: Path, flags: int) -> int:
    """Open a file of a study, without waiting and through no link, and return its descriptor.

    Others may have put something else in its place, such as a pipe, which would be waited for.

    Args:
        path: The file.
        flags: Those of `os.open`.

    Raises:
        NotAFileError: It is a link, a pipe, a directory or a device.
    """
    try:
        file = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise
        raise not_plain(path) from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise not_plain(path)
    return file


def not_plain(path: Path) -> NotAFileError:
    """Return the error for something else where hptune has a file."""
    return NotAFileError(
        f"{shlex.quote(str(path))} is a link, a pipe or a directory, where hptune has a file; "
        "remove it, or use another directory"
    )


def read_part(path: Path, *, begin: int = 0, most_bytes: int = 65_536) -> bytes:
    """Return a part of a file, without waiting.

    Raises:
        FileNotFoundError: There is no such file.
        NotAFileError: It is a link, a pipe, a directory or a device.
    """
    file = open_plain(path, os.O_RDONLY)
    try:
        return os.pread(file, most_bytes, begin)
    finally:
        os.close(file)


def read_whole(path: Path) -> bytes:
    """Return a file's contents, without waiting.

    Raises:
        FileNotFoundError: There is no such file.
        NotAFileError: It is a link, a pipe, a directory or a device.
    """
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        return file.read()


def mapped(load: Callable[[Literal["c", "r"]], _Data]) -> _Data:
    """Return data whose arrays are mapped from a file, copy-on-write or else read-only.

    Args:
        load: Loads the data with this `mmap_mode` of NumPy.
    """
    try:
        return load("c")
    except OSError as error:
        # The kernel refuses copy-on-write for more than its memory; read-only needs none.
        if error.errno != errno.ENOMEM:
            raise
        return load("r")


@contextlib.contextmanager
def replacing(path: Path, *, has_others: bool = False) -> Iterator[Path]:
    """Let the body make a file, and give it the name `path` then: readers never find half of it.

    If the body raises, `path` stays as it is.

    Args:
        path: The file.
        has_others: Whether several processes may replace it at a time, or others may write to its
            folder. A process that is killed then leaves a `.*.tmp`.

    Yields:
        Where the body makes the file, next to `path`.
    """
    unique = f".{path.name[:50]}.{secrets.token_hex(8)}.tmp"
    fresh = path.with_name(unique if has_others else f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    try:
        yield fresh
        fresh.replace(path)
    finally:
        # It is left if the body raised, or if both names are links to the same file.
        fresh.unlink(missing_ok=True)


def atomic_write(path: Path, contents: bytes, *, has_others: bool = False) -> None:
    """Replace a file's contents so that readers, also after a crash, find all old or all new ones.

    Args:
        path: The file; its directory must exist.
        contents: The new contents, which are on disk when this returns.
        has_others: As for `replacing`.

    Raises:
        StorageFullError: There is no space, or writing is forbidden; the old file is unchanged.
    """
    with storage_errors(path):
        with replacing(path, has_others=has_others) as fresh, fresh.open("xb") as file:
            file.write(contents)
            file.flush()
            os.fsync(file.fileno())
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Write a directory's entries (new and renamed files) to disk."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    except OSError as err:
        if err.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # not supported here
            raise
    finally:
        os.close(directory)
