"""What lies where in a study directory, and how one is created, opened and owned.

::

    DIR/study.db            the ledger
    DIR/best/               the best model, its configuration and its metrics
    DIR/trials/<number>/    a trial's checkpoint while needed, and its log.txt
    DIR/report.html         once asked for
    DIR/lock, DIR/lease     who is the master (see `master_lock`)
    DIR/stop                a request to let go; empty while there is none
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import secrets
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ..errors import NoStudyError, StorageFullError, StudyExistsError, UsageError
from .lock import LockOwner, MasterLock, living_owner, locks_work

_FOLDER = "studies"
_STORAGE_ERRORS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.EFBIG,
        errno.ESTALE,
    }
)


def whole_path(path: str | os.PathLike[str]) -> Path:
    """The path from the root on, without detours: `runs/../one` is `one`, whatever it is.

    Symbolic links stay: other machines may have them lead elsewhere. Only where one stands before
    `..`, so that leaving both out would lead elsewhere, nothing is left out.
    """
    said = Path(path).expanduser().absolute()
    plain = Path(os.path.normpath(said))
    return plain if plain.resolve() == said.resolve() else said


class StudyDirectory:
    """A study's directory; making this object touches nothing.

    Args:
        path: The directory. It is made absolute, so that a later `chdir` does no harm.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._path = whole_path(path)

    def __repr__(self) -> str:
        return f"StudyDirectory({str(self._path)!r})"

    def __str__(self) -> str:
        """The path as a shell takes it, for messages that people copy commands from."""
        return shlex.quote(str(self._path))

    @property
    def path(self) -> Path:
        """The directory itself."""
        return self._path

    @property
    def database(self) -> Path:
        """The ledger's file."""
        return self._path / "study.db"

    @property
    def best(self) -> Path:
        """Where the best model is kept."""
        return self._path / "best"

    @property
    def trials(self) -> Path:
        """Where the trials' directories are."""
        return self._path / "trials"

    def trial(self, number: int) -> Path:
        """A trial's directory; whoever needs it makes it."""
        return self.trials / str(number)

    # --- creating and opening ---------------------------------------------------------------

    def create(self) -> Self:
        """Make the directory and what belongs in it, ready for `Ledger.create`.

        May be repeated until there is a ledger; files that lie there already are left alone.

        Raises:
            StudyExistsError: There is a study here already.
            UsageError: The path, or one above it, is no directory and cannot be made one.
            StorageFullError: There is no room, or writing is forbidden.
        """
        with storage_errors(self._path):
            if self.database.exists():
                raise study_exists(self)
            try:
                for directory in (self._path, self.best, self.trials):
                    directory.mkdir(parents=True, exist_ok=True)
            except (FileExistsError, NotADirectoryError) as err:
                raise self._in_the_way(err.filename) from err
            except OSError as err:
                raise self._no_place(err.errno) from err
            (self._path / "lock").touch()
            self._stop_file.touch()
        return self

    def check_place(self) -> None:
        """See that a study can be put here, as far as that is seen without making anything.

        Raises:
            StudyExistsError: There is a study here already.
            UsageError: Something is in the way, or nothing may be written here.
        """
        if self.database.exists():
            raise study_exists(self)
        above = next(each for each in (self._path, *self._path.parents) if each.exists())
        if not above.is_dir():
            raise self._in_the_way(above)
        if not os.access(above, os.W_OK | os.X_OK):
            is_read_only = bool(os.statvfs(above).f_flag & os.ST_RDONLY)
            raise self._no_place(errno.EROFS if is_read_only else errno.EACCES)

    def _in_the_way(self, found: str | os.PathLike[str]) -> UsageError:
        return UsageError(
            f"the study cannot be put into {self}: {shlex.quote(str(found))} is in the way, which "
            "is not a directory. Name another directory with --study"
        )

    def _no_place(self, number: int | None) -> UsageError:
        return UsageError(
            f"the study cannot be put into {self}: no directory can be made there "
            f"({os.strerror(number or 0)}). Name another directory with --study"
        )

    @classmethod
    def free(cls, name: str) -> Self:
        """Make a directory for a study that was given none: `studies/NAME-1`, or the next number.

        It is empty and nobody else's: two who ask at the same time get two.

        Raises:
            UsageError: `studies` is not a directory.
            StorageFullError: There is no room, or writing is forbidden.
        """
        folder = Path(_FOLDER)
        with storage_errors(folder):
            for number in itertools.count(1):
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(exist_ok=True)
                if not folder.is_dir():
                    raise UsageError(
                        f"the study cannot be put into {folder.absolute()}, which is not a "
                        "directory. Name another place with --study"
                    )
                with contextlib.suppress(FileExistsError):
                    (path := folder / f"{name}-{number}").mkdir()
                    return cls(path)
        raise AssertionError("there is always a next number")

    def give_up(self) -> None:
        """Take the directory away again if nothing lies in it, and `studies` with it."""
        with contextlib.suppress(OSError):
            self._path.rmdir()
            if self._path.parent.name == _FOLDER:
                self._path.parent.rmdir()

    def remove(self) -> None:
        """Take away a study that has no result. What else lies there stays, and so does its folder.

        Raises:
            StorageFullError: Writing is forbidden.
        """
        with storage_errors(self._path):
            for each in self.trials.glob("[0-9]*"):
                shutil.rmtree(each, ignore_errors=True)
            for name in (self.database.name, self._stop_file.name, "lock", "lease"):
                (self._path / name).unlink(missing_ok=True)
            for folder in (self.best, self.trials):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        self.give_up()

    def open(self) -> Self:
        """See that there is a study here.

        Raises:
            NoStudyError: There is none.
            StorageFullError: The directory may not be read.
        """
        with storage_errors(self._path):
            if self.database.is_file():
                return self
            if not self._path.exists():
                found = "there is no such directory"
            elif not self._path.is_dir():
                found = "it is a file; name the directory that the study was put into"
            else:
                found = "the directory has no file study.db"
        raise NoStudyError(
            f"there is no study in {self}: {found}. Start one with "
            f"`hptune run MODEL.PY --study {self}`"
        )

    # --- the one master ---------------------------------------------------------------------

    def acquire(self) -> MasterLock:
        """Become the study's master, until the lock is released or the process ends.

        Use it as a context manager, and call its `refresh` from the master's loop.

        Raises:
            StudyLockedError: Another master runs the study.
            StorageFullError: There is no room, or writing is forbidden.
        """
        with storage_errors(self._path):
            return MasterLock(self._path)

    def owner(self) -> LockOwner | None:
        """The master that runs the study now, or None; disturbs nobody."""
        with storage_errors(self._path):
            return living_owner(self._path)

    def locks_work(self) -> bool:
        """Whether the file system keeps locks."""
        with storage_errors(self._path):
            return locks_work(self._path)

    # --- stop requests ----------------------------------------------------------------------

    # The file is always there and is overwritten in place. A file that comes and goes, or that is
    # renamed into place, may stay unseen for a minute on NFS, whose clients remember which names
    # exist; the contents of a known file are looked up afresh whenever it is opened.

    @property
    def _stop_file(self) -> Path:
        return self._path / "stop"

    def request_stop(self, reason: str) -> None:
        """Ask the study's master to let go; it learns of it when it next asks.

        Args:
            reason: One line for people.

        Raises:
            StorageFullError: There is no room, or writing is forbidden.
        """
        with storage_errors(self._path), self._stop_file.open("wb") as file:
            file.write(json.dumps({"reason": reason}).encode())
            file.flush()
            os.fsync(file.fileno())

    def stop_requested(self) -> str | None:
        """Why somebody asked the master to let go; None if nobody did."""
        with storage_errors(self._path):
            try:
                request = json.loads(self._stop_file.read_bytes())
            except (FileNotFoundError, ValueError):  # ValueError: empty, or half written as yet
                return None
        return str(request["reason"])

    def clear_stop_request(self) -> None:
        """Forget a request, such as one that was meant for the master before."""
        with storage_errors(self._path):
            self._stop_file.write_bytes(b"")


def study_exists(directory: StudyDirectory) -> StudyExistsError:
    """The error for a directory that holds a study already."""
    return StudyExistsError(
        f"{directory} already holds a study. Go on with it by `hptune resume {directory}` (in "
        "Python: Tuner(resume=True)), or name another directory with --study"
    )


def atomic_write(path: Path, contents: bytes) -> None:
    """Write a file so that a reader, or a crash at any instant, meets the old or the new whole.

    Args:
        path: The file; its directory must exist.
        contents: What it is to hold. When this returns, it is on disk.

    Raises:
        StorageFullError: There is no room, or writing is forbidden; the old file is unharmed.
    """
    fresh = path.with_name(f".{secrets.token_hex(8)}.tmp")
    with storage_errors(path):
        try:
            with fresh.open("xb") as file:
                file.write(contents)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(path)
        except BaseException:
            fresh.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def sync_directory(path: Path) -> None:
    """Put a directory's entries (new and renamed files) on disk."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    except OSError as err:
        if err.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):  # no such thing here
            raise
    finally:
        os.close(directory)


def storage_full(path: Path, what: str) -> StorageFullError:
    """The error for a file system that takes no more.

    Args:
        path: What could not be written or read.
        what: What the operating system or the database said.
    """
    return StorageFullError(
        f"{shlex.quote(str(path))} cannot be used: {what}. What the study finished is safely "
        "stored. Free some room (or lift the quota, or make it writable), then go on with "
        "`hptune resume DIR`"
    )


@contextlib.contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn the operating system's "no room" and "forbidden" into `StorageFullError`.

    Args:
        path: What is written or read, for the message.

    Raises:
        StorageFullError: There is no room, or it is forbidden; other errors pass unchanged.
    """
    try:
        yield
    except OSError as err:
        if err.errno not in _STORAGE_ERRORS:
            raise
        raise storage_full(path, os.strerror(err.errno)) from err
