"""Results of `load_data`, kept as files that the trials of one study on one node map.

A study has one folder on each node, in a temporary directory::

    hptune-data-UID-STUDY/    locked (shared) by each process that serves the study here
        loading-…             locked while a trial calls `load_data` and others wait for it
        saving                locked while a result is written
        refused               exists if no further results are kept
        0/ 1/ …               one result each: `record`, and its arrays as .npy files

All locks are flocks, which the kernel releases when their holder dies, however it dies. A folder
without a lock is removed by the last process that leaves, or by the next one that comes.

Arrays are mapped copy-on-write: all trials read the same memory, and a trial that writes to an
array gets its own copy of the pages that it changes. Removing a file does not affect those who
have mapped it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import hashlib
import os
import pickle
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.resources import size
from ...files.access import mapped
from ...files.filesystem import mount_of
from .hyperparameters_read import HyperparametersRead

MIN_MAPPED_BYTES = 65_536
"""Smaller arrays are kept in the record: a file for each would take more time than it saves."""

MAX_RESULTS = 32
"""Results kept per study and node.

A hyperparameter with more values than this hardly ever has the same value twice, so keeping each
result would cost disk space and time for nothing.
"""


class NotShared(Exception):
    """The result cannot be shared. The message says why; empty if the user need not know."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One result in the store.

    Attributes:
        folder: Its files.
        reads: The hyperparameters that the call of `load_data` read.
        structure: The result, with a `_Slot` in place of each array that has a file.
    """

    folder: Path
    reads: HyperparametersRead
    structure: Any

    @classmethod
    def read(cls, folder: Path) -> Entry:
        """Read the record of a result."""
        reads, structure = pickle.loads((folder / "record").read_bytes())  # noqa: S301 - our own
        return cls(folder, reads, structure)

    def value(self) -> Any:
        """Return what `load_data` returned, with its arrays mapped."""
        import numpy as np

        @functools.cache  # a result may hold one array twice
        def array(number: int) -> Any:
            path = self.folder / f"{number}.npy"
            # A plain array, not a numpy.memmap: the user's code need not see a difference.
            return np.asarray(mapped(lambda mode: np.load(path, mmap_mode=mode)))

        return _replace(
            self.structure,
            lambda each: array(each.number) if isinstance(each, _Slot) else each,
        )


class CacheStore:
    """The results of one study on this node.

    All methods may raise OSError; the caller then continues without the store.

    Args:
        folder: The study's folder, which this process or its parent has locked with `hold`.
        limit_bytes: Limit of all results together; None for half of the free space.
        free_memory_bytes: Returns the memory that is free for this process and its control group;
            files in memory count against it.
    """

    def __init__(
        self, folder: Path, limit_bytes: int | None, free_memory_bytes: Callable[[], int]
    ) -> None:
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._free_memory_bytes = free_memory_bytes

    def find(self, values: Mapping[str, object]) -> Entry | None:
        """Return the result for these hyperparameters; None if there is none."""
        return next((entry for entry in self._entries() if entry.reads.match(values)), None)

    @contextlib.contextmanager
    def loading(self, values: Mapping[str, object]) -> Iterator[bool]:
        """Lock the call of `load_data` with these hyperparameters, and yield whether we got it.

        Calls that return different results, by what earlier calls have read, have different locks.
        """
        names = sorted({name for entry in self._entries() for name in entry.reads.values})
        name = _digest(repr([(each, values.get(each)) for each in names]))
        with _open(self._folder / f"loading-{name}") as file:
            is_ours = _try_lock(file)
            try:
                yield is_ours
            finally:
                # Closing is not enough: a process that load_data started may have it open too.
                if is_ours:
                    fcntl.flock(file, fcntl.LOCK_UN)

    def keep(self, reads: HyperparametersRead, value: Any) -> Entry:
        """Write a result; only with the lock of `loading`.

        Raises:
            NotShared: It is not made of arrays, or there is no space for it.
        """
        import numpy as np

        arrays: list[Any] = []
        structure = _replace(value, _ArrayRemover(arrays))
        record = pickle.dumps((reads, structure))
        with _open(self._folder / "saving") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            number = len(self._entries())
            if number == MAX_RESULTS:
                raise NotShared(
                    f"it has returned {MAX_RESULTS} different results; no more are kept"
                )
            unfinished = self._folder / "unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
            self._check_space(len(record) + sum(array.nbytes for array in arrays))
            unfinished.mkdir()
            try:
                for index, array in enumerate(arrays):
                    np.save(unfinished / f"{index}.npy", array)
                (unfinished / "record").write_bytes(record)
                folder = unfinished.rename(self._folder / str(number))
            except BaseException:
                shutil.rmtree(unfinished, ignore_errors=True)
                raise
        return Entry(folder, reads, structure)

    @property
    def is_refused(self) -> bool:
        """Whether no further results are kept."""
        return (self._folder / "refused").exists()

    def refuse(self) -> None:
        """Keep no further results, so that trials no longer wait for each other's calls."""
        (self._folder / "refused").touch()

    def _entries(self) -> list[Entry]:
        return [Entry.read(path) for path in self._folder.iterdir() if path.name.isdigit()]

    def _check_space(self, needed_bytes: int) -> None:
        kept = sum(path.stat().st_size for path in self._folder.glob("*/*"))
        free = shutil.disk_usage(self._folder).free
        if mount_of(self._folder).is_memory:
            free = min(free, self._free_memory_bytes())
        limit = (free + kept) // 2 if self._limit_bytes is None else self._limit_bytes
        if kept + needed_bytes > limit or needed_bytes > free:
            raise NotShared(
                f"it needs {size(needed_bytes)} in {self._folder.parent}, which has "
                f"{size(free)} free; the limit is {size(limit)} (--cache-data)"
            )


# --- the study's folder -------------------------------------------------------------------------


def folder_of(study: str) -> Path:
    """Return the folder of a study on this node.

    It is in $SLURM_TMPDIR or $TMPDIR (or their usual replacements), or in /dev/shm if that is on a
    network file system. A disk is preferred to /dev/shm: the kernel caches its files in free
    memory, while files in /dev/shm always take memory and count against a job's limit.
    """
    parent = Path(os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())
    shm = Path("/dev/shm")  # noqa: S108 - the folder made in it is private
    if mount_of(parent).is_network and os.access(shm, os.W_OK):
        parent = shm
    return parent / f"{_prefix()}{_digest(study)}"


def hold(folder: Path) -> int:
    """Create the folder and lock it (shared) for as long as this process and its children live.

    Returns:
        The descriptor of the lock, for `release`.
    """
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # removed before we could lock it: again
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                _check_private(descriptor, folder)
                fcntl.flock(descriptor, fcntl.LOCK_SH)
                if os.path.samestat(os.fstat(descriptor), folder.stat()):
                    return descriptor
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)


def release(descriptor: int) -> None:
    """Release the lock that `hold` took, also for children that still live."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def remove_unused(parent: Path) -> None:
    """Remove the folders of this user's studies that no process has locked."""
    for folder in parent.glob(f"{_prefix()}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                _check_private(descriptor, folder)
                if _try_lock(descriptor):
                    shutil.rmtree(folder)
            finally:
                os.close(descriptor)


def _prefix() -> str:
    return f"hptune-data-{os.getuid()}-"


def _check_private(descriptor: int, folder: Path) -> None:
    found = os.fstat(descriptor)
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise PermissionError(errno.EPERM, "not a private folder of this user", str(folder))


@contextlib.contextmanager
def _open(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _digest(text: str) -> str:
    return hashlib.sha256(os.fsencode(text)).hexdigest()[:16]


# --- arrays in nested containers ----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Slot:
    """Place of an array in the structure of a result."""

    number: int


class _ArrayRemover:
    """Moves arrays to a list and leaves a slot for each; an array that occurs twice has one."""

    def __init__(self, arrays: list[Any]) -> None:
        self._arrays = arrays
        self._slots: dict[int, _Slot] = {}

    def __call__(self, value: Any) -> Any:
        import numpy as np

        plain = (type(None), bool, int, float, complex, str, bytes)
        if type(value) in plain or isinstance(value, np.generic):
            return value
        if type(value) not in (np.ndarray, np.memmap) or not _can_be_mapped(value):
            raise NotShared
        if value.nbytes < MIN_MAPPED_BYTES:
            return np.array(value)
        if id(value) not in self._slots:
            self._slots[id(value)] = _Slot(len(self._arrays))
            self._arrays.append(value)
        return self._slots[id(value)]


def _can_be_mapped(array: Any) -> bool:
    if array.dtype.hasobject or array.dtype.kind == "V":
        return False
    if (path := getattr(array, "filename", None)) is not None:
        # Mapped from a file by load_data itself; a copy pays only if that is far away.
        return mount_of(Path(path)).is_network
    # Windows over a shorter array, say, would take many times their memory on disk.
    steps = zip(array.shape, array.strides, strict=True)
    extent = array.itemsize + sum((size - 1) * abs(stride) for size, stride in steps)
    return bool(array.nbytes <= extent)


def _replace(value: Any, replace: Callable[[Any], Any]) -> Any:
    """Apply a function to all that is in tuples, lists and dicts, however deep."""
    if type(value) in (tuple, list):
        return type(value)(_replace(each, replace) for each in value)
    if type(value) is dict:
        # A key of the user's own class could not be read in another process.
        return {_replace(key, replace): _replace(each, replace) for key, each in value.items()}
    return replace(value)
