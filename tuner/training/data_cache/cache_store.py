"""Arrays that the processes of one node share, as files that each of them maps.

What is shared lies in one folder of the user's on a node-local file system:

    lock                          flocked for moments: guards all below
    KEY/                          the results of one function
        users/TOKEN               where the lives of those who asked for it are locked
        turn-…                    flocked by whoever calls the function, while others wait
        unfit                     there if its results are not shared
        N/  bytes record *.npy    one result: its size, what it came from, its arrays

Nothing depends on anyone's last words. All locks are flocks, which end with their process however
it dies. A *user* is a process that lives as long as a study works on the node (the warm parent)
and holds a lock of its own all that time; where no user of a KEY lives, the KEY is swept away: by
the last one as it leaves, or by the next one that comes.

The arrays are mapped copy-on-write: all read the same memory, and who writes gets pages of their
own. Files are removed under those who map them, who keep what they have.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import pickle
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...storage.filesystem import mount_of

LOCK_SECONDS = 30.0
"""The store's own lock is held for moments; who waits longer goes without the store."""

MANY_VARIANTS = 4
"""From so many results of one function on, half of them must have been used again."""

logger = logging.getLogger(__name__)


class Unfit(Exception):
    """A function's results are not to be shared; says why, where the user should know."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A result as the store keeps it.

    Attributes:
        record: What it came from, and its structure.
        arrays: Its arrays, mapped copy-on-write.
    """

    record: Any
    arrays: tuple[Any, ...]


class CacheStore:
    """One user's view of the store of this node.

    Every method may raise OSError (no room, no permission, a lock that nobody lets go of): then
    there is no sharing, and whoever asked helps themselves.

    Args:
        folder: Where the store is; made when something is first asked of it.
        life: The file that this process's user holds a lock on, as `hold_life` took it.
        limit_bytes: How much the store may hold; None for half of the room there is.
    """

    def __init__(self, folder: Path, life: Path, limit_bytes: int | None = None) -> None:
        self._folder = folder
        self._life = life
        self._limit_bytes = limit_bytes
        self._in_use: list[int] = []

    def find(self, key: str, fits: Callable[[Any], bool]) -> Kept | None:
        """The result of a key whose record fits; None if there is none yet.

        Raises:
            Unfit: The key's results are not shared.
        """
        with self._locked():
            home = self._home(key)
            if (home / "unfit").exists():
                raise Unfit
            for result in _results(home):
                record = _record(result)
                if fits(record):
                    (result / "used").touch()
                    return self._opened(result, record)
            used = [(result / "used").exists() for result in _results(home)]
            if len(used) >= MANY_VARIANTS and sum(used) * 2 < len(used):
                raise Unfit("it returns something else in every trial")
        return None

    def records(self, key: str) -> list[Any]:
        """The records of all results of a key."""
        with self._locked():
            return [_record(result) for result in _results(self._home(key))]

    @contextlib.contextmanager
    def turn(self, key: str, which: str, wait: Callable[[], bool]) -> Iterator[bool]:
        """The sole right to make a result, while others wait for it.

        Args:
            key: Whose result.
            which: Tells results apart that may be made at the same time.
            wait: Called again and again while another one has the turn; false to wait no longer.

        Yields:
            Whether it is our turn; if not, we have waited long enough.
        """
        with self._locked():
            path = self._home(key) / f"turn-{which}"
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        is_ours = False
        try:
            while not (is_ours := _try_lock(file)) and wait():
                pass
            if is_ours:
                # What one who died at it had begun.
                shutil.rmtree(self._unfinished(key, which), ignore_errors=True)
            yield is_ours
        finally:
            # Not by closing alone: a process that the user's code forked meanwhile has it, too.
            if is_ours:
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)

    def keep(self, key: str, which: str, record: Any, arrays: Sequence[Any]) -> Kept:
        """Keep a result; only by who has the turn.

        Returns:
            The result as others find it.

        Raises:
            Unfit: There is no room for it.
        """
        import numpy as np

        needed = sum(array.nbytes for array in arrays)
        fresh = self._unfinished(key, which)
        with self._locked():
            self._home(key)
            self._make_room(needed)
            fresh.mkdir()
            (fresh / "bytes").write_text(str(needed))
        try:
            for number, array in enumerate(arrays):
                np.save(fresh / f"{number}.npy", array)
            (fresh / "record").write_bytes(pickle.dumps(record))
            with self._locked():
                taken = [int(each.name) for each in _results(self._home(key))]
                kept = fresh.rename(fresh.with_name(str(max(taken, default=-1) + 1)))
                return self._opened(kept, record)
        except BaseException as error:
            shutil.rmtree(fresh, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise Unfit(f"{self._folder.parent} is full") from error
            raise

    def refuse(self, key: str) -> None:
        """Note that the key's results are not shared, so that nobody waits for them."""
        with self._locked():
            (self._home(key) / "unfit").touch()

    def sweep(self) -> None:
        """Remove what nobody alive has asked for; the store itself with the last of it."""
        if not self._folder.exists():
            return
        with self._locked():
            homes = [each for each in self._folder.iterdir() if each.is_dir()]
            dead = [home for home in homes if not any(map(_lives, home.glob("users/*")))]
            for home in dead:
                shutil.rmtree(home)
            if len(dead) == len(homes):
                shutil.rmtree(self._folder)

    # --- under the lock ---------------------------------------------------------------------

    def _home(self, key: str) -> Path:
        """The key's folder, where this user's interest is noted."""
        home = self._folder / key
        mark = home / "users" / self._life.parent.name
        if not mark.exists():
            mark.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            mark.write_text(str(self._life))
        return home

    def _unfinished(self, key: str, which: str) -> Path:
        return self._folder / key / f"new-{which}"

    def _opened(self, result: Path, record: Any) -> Kept:
        # Locked while this process lives, so that nobody makes room at its expense.
        file = os.open(result / "record", os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(file, fcntl.LOCK_SH)
        self._in_use.append(file)
        os.utime(result / "record")
        paths = sorted(result.glob("*.npy"), key=lambda path: int(path.stem))
        return Kept(record, tuple(map(mapped, paths)))

    def _make_room(self, needed: int) -> None:
        sizes = {size.parent: int(size.read_text() or 0) for size in self._folder.glob("*/*/bytes")}
        disk = os.statvfs(self._folder)
        free = disk.f_bavail * disk.f_frsize
        if mount_of(self._folder).is_memory:
            import psutil

            free = min(free, int(psutil.virtual_memory().available))
        limit = self._limit_bytes
        if limit is None:
            limit = (free + sum(sizes.values())) // 2
        if needed > min(limit, free + sum(sizes.values())):
            raise Unfit(
                f"it takes {needed / 1e9:.3g} GB, and {self._folder.parent} may hold "
                f"{limit / 1e9:.3g} GB"
            )
        finished = [each for each in sizes if (each / "record").exists()]
        for result in sorted(finished, key=lambda each: (each / "record").stat().st_mtime):
            if sum(sizes.values()) + needed <= limit and needed <= free:
                return
            if _is_idle(result / "record"):
                shutil.rmtree(result)
                free += sizes.pop(result)
        if sum(sizes.values()) + needed > limit or needed > free:
            raise Unfit(f"{self._folder.parent} holds other data that is in use")

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            _make_private(self._folder)
            try:
                file = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except FileNotFoundError:  # swept away just now
                continue
            try:
                while not _try_lock(file):
                    if time.monotonic() > deadline:
                        raise TimeoutError(f"{self._folder} is locked for {LOCK_SECONDS:g} s")
                    time.sleep(0.005)
                if _is_there(file, self._folder / "lock"):
                    yield
                    return
            finally:
                os.close(file)


def mapped(path: Path) -> Any:
    """An array in a file, as a plain array whose pages are copied when they are written to."""
    import numpy as np

    try:
        return np.asarray(np.load(path, mmap_mode="c"))
    except OSError as error:
        # The kernel does not promise private pages for more than it has memory.
        if error.errno != errno.ENOMEM:
            raise
        return np.asarray(np.load(path, mmap_mode="r"))


def hold_life(path: Path) -> int:
    """Lock a file for as long as this process and its forked children live.

    Returns:
        The open file, for `leave`.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def end_life(file: int) -> None:
    """Let go of it, also where children still have the file open."""
    fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


def usual_folder() -> Path:
    """Where this node's store is: in $SLURM_TMPDIR, $TMPDIR or their usual stand-ins.

    Where that is on a network, in memory (/dev/shm). A disk is taken where there is one: the
    kernel keeps what it reads of it in memory as long as there is room and drops it when there is
    not, while files in memory take it for good, count against a job's memory, and outlive it.
    """
    place = Path(os.environ.get("SLURM_TMPDIR") or tempfile.gettempdir())
    shm = Path("/dev/shm")  # noqa: S108 - the folder made in it is the user's alone
    if mount_of(place).is_network and os.access(shm, os.W_OK):
        place = shm
    return place / f"hptune-staged-{os.getuid()}"


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(errno.EPERM, "is not a folder of this user alone", str(folder))


def _record(result: Path) -> Any:
    return pickle.loads((result / "record").read_bytes())  # noqa: S301 - in the user's own folder


def _results(home: Path) -> list[Path]:
    return [each for each in home.iterdir() if each.name.isdigit()]


def _try_lock(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_idle(path: Path) -> bool:
    """Whether nobody holds a lock on the file."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return _try_lock(file)
    finally:
        os.close(file)


def _lives(mark: Path) -> bool:
    return not _is_idle(Path(mark.read_text()))


def _is_there(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
