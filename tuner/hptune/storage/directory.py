"""The study directory: its layout, and how it is created, opened, locked and removed.

::

    DIR/study.db            the ledger
    DIR/best/               the best model, its configuration and its metrics
    DIR/scaling.json        how the model scales over devices, where that was measured
    DIR/trials/<number>/    a trial's checkpoint while needed, and its log.txt; log.rank1.txt
                            and so on of the other processes of a parallel trial
    DIR/lock, DIR/lease     the master's lock (see `lock`)
    DIR/requests            what users ask of the master (see `requests`)
    DIR/code/               copies of the model file and its modules
    DIR/incoming/           files that are being received from workers elsewhere
"""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import shlex
import shutil
import stat
from pathlib import Path
from typing import Self

from .. import text
from ..core.meeting import log_name
from ..errors import NoStudyError, StartingStudyError, StudyExistsError, UsageError
from ..files.access import exists, is_file, is_folder, whole_path
from ..files.file_errors import storage_errors
from ..files.ownership import is_foreign
from . import whose
from .lease import Lease, LockOwner
from .lock import MasterLock, living_owner, locks_work
from .requests import RequestFile
from .whose import Use

_FOLDER = "studies"
_PRIVATE = 0o700
"""Mode of a new study's directory: others who write there could run code as the user."""


class StudyDirectory:
    """A study's directory. Creating this object touches no file.

    Args:
        path: The directory. It is made absolute, so that a later `chdir` does not matter.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        is_path = isinstance(path, str | os.PathLike)
        if not is_path or not os.fspath(path):
            raise UsageError(
                f"the directory of a study is {path!r}; allowed is a path, such as "
                "'studies/model-1'"
            )
        self._path = whole_path(path)
        self._new_parents: list[Path] = []  # that `make` created, the deepest first
        self._drafts: list[Path] = []
        self._was_acquired = False

    def __repr__(self) -> str:
        return f"StudyDirectory({str(self._path)!r})"

    def __str__(self) -> str:
        """Return the path for people and for commands in messages (see `text.path`)."""
        return text.path(self._path)

    @property
    def path(self) -> Path:
        """The directory itself."""
        return self._path

    @property
    def database(self) -> Path:
        """The ledger's file."""
        return self._path / "study.db"

    @property
    def has_ledger(self) -> bool:
        """Whether there is a ledger; True if that cannot be seen, so that nothing is removed."""
        try:
            self.database.stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            pass
        return True

    @property
    def best(self) -> Path:
        """The directory of the best model."""
        return self._path / "best"

    @property
    def trials(self) -> Path:
        """The directory of the trials' directories."""
        return self._path / "trials"

    def trial(self, number: int) -> Path:
        """Return a trial's directory, which may not exist."""
        return self.trials / str(number)

    def log(self, number: int, rank: int = 0) -> Path:
        """Return the file with the output of a trial, or of one of its ranks; it may not exist."""
        return self.trial(number) / log_name(rank)

    # --- creating and opening ---------------------------------------------------------------

    def create(self) -> Self:
        """Create the directory and its folders, ready for `Ledger.create`.

        May be repeated until there is a ledger. Files that exist already are not changed.

        Raises:
            StudyExistsError: There is a study here already.
            UsageError: The path, or a parent, is no directory and cannot become one.
            StorageFullError: There is no space, or writing is forbidden.
        """
        with storage_errors(self._path):
            self._check_unused()
            self.make()
            for folder in (self.best, self.trials):
                self._make(folder)
            (self._path / "lock").touch()
            self._requests_file.touch()
        return self

    def make(self) -> None:
        """Create the directory itself, for this user alone; one that exists keeps its rights.

        Raises:
            UsageError: The path, or a parent, is no directory and cannot become one.
            StorageFullError: There is no space, or writing is forbidden.
        """
        with storage_errors(self._path):
            missing = [parent for parent in self._path.parents if not exists(parent)]
            self._make(self._path, mode=_PRIVATE)
            self._new_parents += missing

    def _make(self, folder: Path, *, mode: int = 0o777) -> None:
        try:
            folder.mkdir(mode=mode, parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as err:
            raise self._in_the_way(err.filename) from err
        except OSError as err:
            raise self._no_place(err.errno) from err

    def writers_warning(self) -> str:
        """Return a warning if a group can change what is loaded from here as code.

        Raises:
            UsageError: Every user can, or the files belong to another user.
        """
        with storage_errors(self._path):
            return whose.check(self._path, Use.RUN)

    def check_place(self) -> None:
        """Check that a study can be created here, without creating anything.

        Raises:
            StudyExistsError: There is a study here already.
            UsageError: Something is in the way, or writing is forbidden.
            StorageFullError: A parent may not be read.
        """
        with storage_errors(self._path):
            self._check_unused()
            above = next(each for each in (self._path, *self._path.parents) if exists(each))
        if not is_folder(above):
            raise self._in_the_way(above)
        if not os.access(above, os.W_OK | os.X_OK):
            is_read_only = bool(os.statvfs(above).f_flag & os.ST_RDONLY)
            raise self._no_place(errno.EROFS if is_read_only else errno.EACCES)

    def _check_unused(self) -> None:
        if is_folder(self.database):
            raise UsageError(
                f"the study cannot be created in {self}: its study.db is a directory. Choose "
                "another directory with --study"
            )
        if exists(self.database):
            raise study_exists(self)
        # Trials have numbers: the new ones would continue from checkpoints of the old ones.
        if any(self.trials.glob("[0-9]*")) or exists(self.best / "best.json"):
            raise UsageError(
                f"the study cannot be created in {self}: it has the files of a study whose "
                "study.db is gone. Remove best/ and trials/ there, or choose another directory "
                "with --study"
            )

    def _in_the_way(self, found: str | os.PathLike[str]) -> UsageError:
        return UsageError(
            f"the study cannot be created in {self}: {shlex.quote(str(found))} is not a directory. "
            "Choose another directory with --study"
        )

    def _no_place(self, number: int | None) -> UsageError:
        return UsageError(
            f"the study cannot be created in {self}: no directory can be created there "
            f"({os.strerror(number or 0)}). Choose another directory with --study"
        )

    @classmethod
    def free(cls, name: str) -> Self:
        """Create an empty directory for a study: `studies/NAME-1`, or the next free number.

        Two processes that call this at the same time get different directories.

        Raises:
            UsageError: `studies` is not a directory.
            StorageFullError: There is no space, or writing is forbidden.
        """
        folder, number = Path(_FOLDER), 1
        with storage_errors(folder):
            while True:
                path = folder / f"{name}-{number}"
                with contextlib.suppress(FileExistsError):
                    folder.mkdir(exist_ok=True)
                try:
                    path.mkdir(mode=_PRIVATE)
                    return cls(path)
                except FileExistsError:
                    number += 1
                except (FileNotFoundError, NotADirectoryError):
                    # Else another process has removed it, as it was empty.
                    if _is_no_directory(folder):
                        raise UsageError(
                            f"the study cannot be created in {folder.absolute()}, which is not a "
                            "directory. Choose another one with --study"
                        ) from None

    def earlier(self) -> list[Self]:
        """Return directories like those that `free` made before this one, the last one first.

        They lie beside it and have the same name, with smaller numbers.
        """
        found = {}
        name, _, number = self._path.name.rpartition("-")
        with contextlib.suppress(OSError):
            for path in self._path.parent.iterdir() if number.isdecimal() else ():
                its_name, _, its_number = path.name.rpartition("-")
                if its_name == name and its_number.isdecimal() and int(its_number) < int(number):
                    found[int(its_number)] = path
        return [type(self)(found[each]) for each in sorted(found, reverse=True)]

    @classmethod
    def newest(cls) -> Self:
        """Return the study that a command without DIR means.

        It is the working directory if that is a study, or lies in one. Otherwise it is the study in
        `studies` that was started last: its master may still read the model, and a detached one may
        wait. What others may write to is passed over, and folders of other users end the search:
        they could have put it there.

        Raises:
            NoStudyError: There is none.
        """
        here, passed = Path.cwd(), list[Path]()
        with contextlib.suppress(OSError):
            for folder in (here, *here.parents):
                if is_foreign(folder.stat()):
                    break
                if is_file(folder / "study.db"):
                    if whose.is_mine(folder):
                        return cls(folder)
                    passed.append(folder)
        started: list[tuple[float, Path]] = []
        studies = Path(_FOLDER)
        with contextlib.suppress(OSError):
            for path in () if is_foreign(studies.stat()) else studies.iterdir():
                with contextlib.suppress(OSError):  # another user's, which may not be read
                    # No master changes its lock file after the study is created.
                    has_begun = exists(path / "study.db") or living_owner(path) is not None
                    mark = "lock" if has_begun else "jobs/master.sbatch"
                    begun = (path / mark).stat().st_mtime
                    if whose.is_mine(path):
                        started.append((begun, path))
                    else:
                        passed.append(path)
        if not started:
            raise NoStudyError(
                f"no study is named, and {here / _FOLDER} has none"
                f"{whose.why_passed(passed)}; name its directory "
                "(`hptune list .` finds it below this one), or change to where hptune was started"
            )
        return cls(max(started)[1])

    def draft(self, file: Path) -> None:
        """Note a file in the directory that is removed if the study does not begin."""
        self._drafts.append(file)

    def give_up(self) -> None:
        """Remove the directory if it is empty, and its parents that `make` created; `studies` too.

        Drafts go if there is no study. A parent that is not empty stays.
        """
        with contextlib.suppress(OSError):
            if not self.has_ledger:
                for draft in self._drafts:
                    draft.unlink(missing_ok=True)
                    if draft.parent != self._path and not any(draft.parent.iterdir()):
                        draft.parent.rmdir()
            self._path.rmdir()
            if self._path.parent.name == _FOLDER:
                self._path.parent.rmdir()
            for parent in self._new_parents:
                parent.rmdir()

    def remove_if_unused(self) -> None:
        """Remove what this process has made here if it was to start a study and did not.

        For a signal handler of a process that then ends: it takes no lock and raises nothing.
        """
        with contextlib.suppress(Exception):
            if self._was_acquired and not self.has_ledger:
                self.remove()
            self.give_up()

    def remove(self) -> None:
        """Remove a study that has no result. Other files, and then the directory too, are kept.

        Raises:
            StorageFullError: Writing is forbidden.
        """
        with storage_errors(self._path):
            for path in self.trials.glob("[0-9]*"):
                shutil.rmtree(path, ignore_errors=True)
            for name in (self.database.name, self._requests_file.name, "lock", "lease"):
                (self._path / name).unlink(missing_ok=True)
            for folder in (self.best, self.trials):
                with contextlib.suppress(OSError):
                    folder.rmdir()
        self.give_up()

    def open(self, use: Use = Use.READ, *, otherwise: str = "") -> Self:
        """Check that there is a study here that this user may use so, and return this object.

        All commands and classes open a study by this method, before anything else.

        Args:
            use: What it is opened for.
            otherwise: A sentence on what to do where no study was begun, for the message; empty to
                say how to start one.

        Raises:
            NoStudyError: There is none.
            UsageError: It is open to others in a way that forbids this use (see `whose`).
            StorageFullError: The directory may not be read.
        """
        with storage_errors(self._path):
            if is_file(self.database):
                whose.check(self._path, use)
                return self
            if not exists(self._path):
                found, near = "there is no such directory", Path(_FOLDER, self._path.name)
                if is_file(near / "study.db"):
                    raise NoStudyError(
                        f"there is no study in {self}: {found}. Did you mean {text.path(near)}?"
                    )
            elif not is_folder(self._path):
                raise NoStudyError(
                    f"there is no study in {self}: it is a file; name a study's directory"
                )
            elif owner := living_owner(self._path):
                raise StartingStudyError(
                    f"the study in {self} is being started by {owner}, which still reads the "
                    "model; try again when it says so"
                )
            elif is_folder(self.trials) and any(self.trials.iterdir()):
                raise NoStudyError(
                    f"there is no study in {self}: it has the trials of one, but the file study.db "
                    "is gone; put that file back, or name another directory"
                )
            elif exists(self._path / "jobs" / "master.sbatch"):
                raise NoStudyError(
                    f"there is no study in {self} yet: the job of its master (--detach) has not "
                    f"made it. `hptune status {self}` shows that job; if it is gone, run the same "
                    "`hptune run` again"
                )
            elif exists(self._path / "lock"):
                found = "a run was started here, but ended before its first trial"
            else:
                found = "the directory has no file study.db"
        with contextlib.suppress(OSError):
            below = (*self._path.glob("*/study.db"), *self._path.glob(f"{_FOLDER}/*/study.db"))
            if below:
                found = f"it has studies below it; name one, such as {text.path(below[0].parent)}"
                raise NoStudyError(f"there is no study in {self}: {found} (`hptune list {self}`)")
            if any(self._path.iterdir()) and not exists(self._path / "lock"):
                raise NoStudyError(
                    f"there is no study in {self}: {found}. Name a study's directory; `hptune list "
                    "FOLDER` finds those below a folder"
                )
        remedy = otherwise or (
            f"`hptune list` shows studies, and `hptune run MODEL.PY --study {self}` starts one"
        )
        raise NoStudyError(f"there is no study in {self}: {found}. {remedy}")

    # --- the one master ---------------------------------------------------------------------

    def acquire(self, *, is_brief: bool = False) -> MasterLock:
        """Become the study's master until the lock is released or the process ends.

        Use the lock as a context manager, and call its `refresh` from the master's loop.

        Args:
            is_brief: Whether this is no master, but needs the lock for a moment: `owner` and those
                who wait for their turn (`turn.acquired`) do not take it for one.

        Raises:
            StudyLockedError: Another master runs the study.
            StorageFullError: There is no space, or writing is forbidden.
        """
        with storage_errors(self._path):
            lock = MasterLock(self._path, is_brief=is_brief)
        self._was_acquired = True
        return lock

    def owner(self) -> LockOwner | None:
        """Return the master that runs the study now, or None, without taking any lock."""
        with storage_errors(self._path):
            owner = living_owner(self._path) if is_folder(self._path) else None
        return None if owner is None or owner.is_brief else owner

    def now(self) -> float:
        """Return the present time by the clock of the file system, in seconds since the epoch."""
        return Lease(self._path / "lease").now()

    def locks_work(self) -> bool:
        """Return whether the file system has POSIX locks that hold on all machines."""
        with storage_errors(self._path):
            return locks_work(self._path)

    # --- requests ---------------------------------------------------------------------------

    @property
    def _requests_file(self) -> Path:
        return self._path / "requests"

    @functools.cached_property
    def requests(self) -> RequestFile:
        """What users ask of the study's master."""
        return RequestFile(self._requests_file, locks_work=self.locks_work())


def _is_no_directory(path: Path) -> bool:
    """Return whether something else has this name; False if nothing has."""
    try:
        return not stat.S_ISDIR(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def study_exists(directory: StudyDirectory) -> StudyExistsError:
    """Return the error for a directory that already holds a study."""
    if (owner := directory.owner()) is not None:
        return StudyExistsError(
            f"{directory} already holds a study, which is run by {owner}. Look at it with `hptune "
            f"status {directory}`, or choose another directory with --study"
        )
    return StudyExistsError(
        f"{directory} already holds a study. Continue it with `hptune resume {directory}`, "
        "or choose another directory with --study"
    )
