"""One file in pieces: read on one machine, and whole or absent on the other.

Both directions use the same two parts. The sender reads pieces of a file that must not change
meanwhile; the receiver checks each piece, and gives the file its name when all of it is on disk::

    sender    state_of(root, "trials/3/resume/5.ckpt")  -> FileState(…, size_bytes=9_000_000)
    receiver  Incoming(root, state)
    sender    read_piece(root, state, 0)                -> Piece of 8 MiB
    receiver  incoming.add(piece)                          and so on
    receiver  incoming.commit()
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import stat
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from ...core.meeting import log_name

PIECE_BYTES = 8 << 20
"""Size of a piece: large for the network, small for the memory of the master."""

INCOMING = "incoming"
"""Folder of a study's directory, and of its copy, with the files that are not whole yet."""

TRIALS = "trials"

_MOST_PARTS = 100
"""Depth of a file below the study's directory; deeper ones could not be removed again."""

_PRIVATE = ("journal",)
"""Names in a trial's directory that do not travel."""


class RefusedPath(ValueError):
    """A path that is not one of the study's files that may travel."""


def words_of(error: Exception) -> str:
    """Return what went wrong with a file, for the user.

    >>> words_of(FileNotFoundError(2, "", "a")), words_of(TimeoutError("no answer"))
    ('No such file or directory: a', 'no answer')
    """
    if isinstance(error, OSError) and error.errno:
        where = f": {error.filename}" if error.filename else ""
        return f"{os.strerror(error.errno)}{where}"
    return str(error) or type(error).__name__


class FileChanged(Exception):
    """The file is another one than it was, so that its pieces do not belong together."""


@dataclass(frozen=True, slots=True)
class FileState:
    """A file, and how to recognise that it has not changed.

    Attributes:
        path: Path below the study's directory.
        size_bytes: Its size.
        changed_ns: Its modification time in nanoseconds since the epoch.
        inode: Its number in its file system; 0 for a symbolic link.
        link: What it leads to, if it is a symbolic link; else empty.
    """

    path: str
    size_bytes: int
    changed_ns: int
    inode: int = 0
    link: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a file, with its checksum."""

    contents: bytes = field(repr=False)
    digest: bytes

    @classmethod
    def of(cls, contents: bytes) -> Piece:
        """Return the piece with these contents."""
        return cls(contents, hashlib.sha256(contents).digest())

    @property
    def is_intact(self) -> bool:
        """Whether the contents are those that were sent."""
        return hashlib.sha256(self.contents).digest() == self.digest


def checked(path: str) -> PurePosixPath:
    """Return a path below a study's directory that may be read or written there.

    >>> str(checked("trials/3/resume/5.ckpt"))
    'trials/3/resume/5.ckpt'

    Raises:
        RefusedPath: It may lead elsewhere.
    """
    parts = path.split("/")
    is_plain = all(part not in ("", ".", "..") and "\0" not in part for part in parts)
    if not is_plain or len(parts) > _MOST_PARTS:
        raise RefusedPath(f"{path!r} is no path below a study's directory")
    return PurePosixPath(path)


def checked_of_trial(path: str, trial: int) -> PurePosixPath:
    """Return a path that may be written for a trial.

    Raises:
        RefusedPath: It is not one of the trial's files.
    """
    found = checked(path)
    if (
        len(found.parts) < 3
        or found.parts[:2] != (TRIALS, str(trial))
        or found.parts[2] in _PRIVATE
    ):
        raise RefusedPath(f"{path!r} is no file of trial {trial}")
    return found


def is_log(path: str) -> bool:
    """Return whether this is the log of a trial or of one of its ranks, which is only appended to.

    >>> is_log("trials/3/log.txt"), is_log("trials/3/log.rank1.txt"), is_log("trials/3/a/log.txt")
    (True, True, False)
    """
    parts = PurePosixPath(path).parts
    if len(parts) != 3 or parts[0] != TRIALS:
        return False
    name = parts[2]
    rank = name.removeprefix("log.rank").removesuffix(".txt")
    return name == log_name(0) or (rank.isdecimal() and name == log_name(int(rank)))


def files_below(root: Path, folder: str) -> list[FileState]:
    """Return the files and symbolic links in a folder and its subfolders, the oldest first.

    In this order, a file that names others, such as an index, follows them.

    Args:
        root: The study's directory, or its copy.
        folder: Path of the folder below it; it need not exist.
    """
    found, waiting = [], [folder]
    while waiting:
        here = waiting.pop()
        with contextlib.suppress(OSError), os.scandir(root / here) as entries:
            for entry in entries:
                path = f"{here}/{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if path.count("/") < _MOST_PARTS - 1:
                        waiting.append(path)
                elif (state := state_of(root, path)) is not None:
                    found.append(state)
    return sorted(found, key=lambda each: (each.changed_ns, each.path))


def state_of(root: Path, path: str) -> FileState | None:
    """Return the state of a file or symbolic link; None for anything else, or if it is not there.

    A link that leads out of its trial's directory does not travel.
    """
    try:
        found = (root / path).lstat()
        if stat.S_ISREG(found.st_mode):
            return FileState(path, found.st_size, found.st_mtime_ns, found.st_ino)
        if stat.S_ISLNK(found.st_mode):
            state = FileState(path, 0, found.st_mtime_ns, link=os.readlink(root / path))  # noqa: PTH115 - as it is
            return state if _stays_within(state) else None
    except (OSError, UnicodeError):
        return None
    return None


def _stays_within(state: FileState) -> bool:
    """Return whether a link leads to something in the same top folder of its trial."""
    if state.link.startswith("/") or "\0" in state.link:
        return False
    parts = list(PurePosixPath(state.path).parent.parts)
    for part in PurePosixPath(state.link).parts:
        if part == "..":
            parts = parts[:-1]
        else:
            parts.append(part)
        if len(parts) < 3:
            return False
    return True


def read_piece(root: Path, state: FileState, offset: int, *, size: int = PIECE_BYTES) -> Piece:
    """Return a piece of a file; an empty one of a symbolic link.

    Args:
        root: The study's directory, or its copy.
        state: The file, as it was when its first piece was read. A log may have grown since.
        offset: Where the piece begins.
        size: The most bytes to return.

    Raises:
        FileChanged: The file is not there, or is not as it was.
        OSError: It cannot be read.
        RefusedPath: The path leads out of the directory.
    """
    path = _within(root, checked(state.path))
    if state.link:
        if state_of(root, state.path) != state:
            raise FileChanged(state.path)
        return Piece.of(b"")
    size = max(0, min(size, PIECE_BYTES, state.size_bytes - offset))
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError as error:
        raise FileChanged(state.path) from error
    try:
        contents = bytearray()
        while len(contents) < size:
            part = os.pread(file, size - len(contents), offset + len(contents))
            if not part:
                raise FileChanged(state.path)
            contents += part
        found = os.fstat(file)
        now = FileState(state.path, found.st_size, found.st_mtime_ns, found.st_ino)
        if now != state and not is_log(state.path):
            raise FileChanged(state.path)
    finally:
        os.close(file)
    return Piece.of(bytes(contents))


def write_log(root: Path, path: str, piece: Piece, *, at: int) -> None:
    """Write a piece of a log, which then ends with it; writing it again changes nothing.

    Args:
        root: The study's directory.
        path: Path of the log below it.
        piece: The piece.
        at: Where in the file the piece begins; a shorter file is appended to.

    Raises:
        ValueError: The piece was damaged on its way, or the file is no log.
        OSError: It cannot be written.
    """
    target = _within(root, checked(path))
    if not piece.is_intact or not is_log(path):
        raise ValueError(f"a piece of {path} was damaged on its way")
    target.parent.mkdir(parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o644), "wb") as file:
        file.seek(min(at, os.fstat(file.fileno()).st_size))
        file.write(piece.contents)
        file.truncate()


class Incoming:
    """A file that is being received. It has its name when it is whole, and not before.

    Args:
        root: The study's directory, or its copy.
        state: The file at the sender.

    Raises:
        RefusedPath: The path leads out of the directory.
        OSError: It cannot be created.
    """

    def __init__(self, root: Path, state: FileState) -> None:
        self._root = root
        self._state = state
        self._target = checked(state.path)
        self.received_bytes = 0
        folder = root / INCOMING
        folder.mkdir(mode=0o700, exist_ok=True)
        self._fresh = folder / f"{secrets.token_hex(8)}.tmp"
        # A checkpoint is loaded as code, so nobody else may write to it.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._file = os.fdopen(os.open(self._fresh, flags, 0o644), "wb")

    def add(self, piece: Piece) -> None:
        """Write the next piece.

        Raises:
            ValueError: It was damaged on its way, or is more than the file has.
            OSError: It cannot be written.
        """
        if not piece.is_intact:
            raise ValueError(f"a piece of {self._state.path} was damaged on its way")
        self.received_bytes += len(piece.contents)
        if self.received_bytes > self._state.size_bytes:
            raise ValueError(f"{self._state.path} is longer than it was said to be")
        self._file.write(piece.contents)

    @property
    def is_complete(self) -> bool:
        """Whether all pieces were added."""
        return self.received_bytes == self._state.size_bytes

    def commit(self) -> None:
        """Give the file its name; its bytes are on disk when this returns.

        Raises:
            ValueError: Pieces are missing.
            OSError: It cannot be written, or something else is in its place.
            RefusedPath: The path leads out of the directory by now.
        """
        if not self.is_complete:
            raise ValueError(f"{self._state.path} is cut short")
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        target = _prepared(self._root, self._target)
        os.utime(self._fresh, ns=(self._state.changed_ns, self._state.changed_ns))
        self._fresh.replace(target)

    def abort(self) -> None:
        """Remove what was received, unless the file has its name by now. May be repeated."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._fresh.unlink()


class IncomingFiles:
    """The files that are being received.

    Args:
        root: The study's directory, or its copy.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._begun: dict[str, Incoming] = {}
        self._is_closed = False

    def add(self, state: FileState, piece: Piece) -> bool:
        """Write the next piece of a file, or a link; return whether it is whole now.

        Raises:
            ValueError: As `Incoming` does, or it is closed. What was received of the file is
                removed.
            OSError: Likewise.
        """
        if state.link:
            make_link(self._root, state)
            return True
        try:
            if (incoming := self._begun.get(state.path)) is None:
                incoming = self._begun[state.path] = Incoming(self._root, state)
            if self._is_closed:  # by another thread, which may not have seen this file
                raise ValueError("the files are not wanted any more")
            incoming.add(piece)
            if not incoming.is_complete:
                return False
            incoming.commit()
            self._begun.pop(state.path, None)
        except BaseException:
            self.drop(state.path)
            raise
        return True

    def drop(self, path: str) -> None:
        """Remove what was received of a file that is not whole."""
        if (begun := self._begun.pop(path, None)) is not None:
            begun.abort()

    def close(self) -> None:
        """Remove what was received of files that are not whole, and take no more."""
        self._is_closed = True
        for path in [*self._begun]:
            self.drop(path)


def make_link(root: Path, state: FileState) -> None:
    """Create or replace a symbolic link.

    Raises:
        RefusedPath: It leads out of its trial's directory.
        OSError: It cannot be written.
    """
    path = checked(state.path)
    if not state.link or not _stays_within(state):
        raise RefusedPath(f"the link {state.path!r} leads out of the trial's directory")
    target = _prepared(root, path)
    folder = root / INCOMING
    folder.mkdir(mode=0o700, exist_ok=True)
    fresh = folder / f"{secrets.token_hex(8)}.tmp"
    fresh.symlink_to(state.link)
    try:
        fresh.replace(target)
    except OSError:
        fresh.unlink()
        raise


def remove(root: Path, path: str) -> None:
    """Remove a file, and the folders that are empty then; one that is gone is no error.

    Raises:
        RefusedPath: The path leads out of the directory.
        OSError: It cannot be removed.
    """
    relative = checked(path)
    target = _within(root, relative)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        target.unlink()
    for folder in [*target.parents][: max(0, len(relative.parts) - 3)]:
        try:
            folder.rmdir()
        except OSError:
            break


def sweep(root: Path) -> None:
    """Remove files that were being received when their receiver was killed."""
    shutil.rmtree(root / INCOMING, ignore_errors=True)


def _prepared(root: Path, path: PurePosixPath) -> Path:
    """Return where a received file goes; the folders exist, and no folder has its name."""
    target = _within(root, path)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    return _within(root, path)


def _within(root: Path, path: PurePosixPath) -> Path:
    """Return a path below a directory.

    Raises:
        RefusedPath: A symbolic link on the way leads elsewhere.
    """
    here = root
    for part in path.parts[:-1]:
        here /= part
        if here.is_symlink():
            raise RefusedPath(f"{path} goes through the symbolic link {here}")
    return root / path
