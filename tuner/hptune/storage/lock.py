"""The lock of a study directory: only one master runs a study at a time.

Two locks guard a study:

- A POSIX lock on the file `lock`. The kernel releases it when the master dies, however it dies.
  NFSv4 and Lustre (mounted with `flock`) share it between machines.
- The lease, which expires when its heartbeat stops (see `lease`). It names the master in messages,
  and guards the study alone where POSIX locks do not work between machines: where the file system
  refuses them, or keeps them local without an error (Lustre with `localflock`).

======================  ===========================  ===========================
a new master finds      lease of this machine        lease of another machine
======================  ===========================  ===========================
POSIX lock held         refused                      refused
POSIX lock free         taken over: its master died  refused until it is stale
POSIX locks refused     refused until it is stale    refused until it is stale
======================  ===========================  ===========================
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import math
import os
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ..core.clock import polls
from ..errors import NotAFileError, StudyError, StudyLockedError
from ..files.access import open_plain
from ..files.file_errors import removed
from ..files.filesystem import mount_of
from ..text import plural
from .lease import HEARTBEAT_SECONDS, STALE_SECONDS, UNKNOWN, Lease, LockOwner, boot_id

logger = logging.getLogger(__name__)

_SETTLE_SECONDS = 1.0
"""Seconds to wait after a takeover for other masters that saw the same stale lease.

The last one to write its lease keeps it, so the others must look again after that.
"""

_UNNAMED_SECONDS = 0.2
"""How long a lock may have no lease: it is written after the lock is taken, and removed first."""

_TAKEN = (errno.EACCES, errno.EAGAIN)
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


class MasterLock:
    """The right to be a study's master, until `release` or the end of the process.

    A context manager, made by `StudyDirectory.acquire`. The master's loop calls `refresh` at least
    every few seconds; `beating` does so while the master does something that takes longer. A forked
    child does not hold its parent's lock.

    Args:
        directory: The study's directory.
        is_brief: Whether it is held for a moment, and by no master.

    Attributes:
        owner: This process, as the lease names it.
        has_posix_lock: Whether the file system supports POSIX locks; otherwise only the lease
            guards.

    Raises:
        StudyLockedError: Another master, in this process or any other, runs the study.
        OSError: The directory cannot be written to.
    """

    def __init__(self, directory: Path, *, is_brief: bool = False) -> None:
        self._directory = directory
        self._lease = Lease(directory / "lease")
        self.owner = LockOwner.this_process(is_brief=is_brief)
        self._refreshed = time.monotonic()
        self._is_released = False
        self._is_failing = False
        self._refreshing = threading.RLock()
        with _registry_guard:
            self._file, self.has_posix_lock = _take_posix_lock(directory)
            try:
                self._take_lease()
            except BaseException:
                os.close(self._file)
                raise
            self._identity = _identity(directory / "lock")
            _held[self._identity] = self

    def refresh(self, *, every_seconds: float = HEARTBEAT_SECONDS) -> None:
        """Write a heartbeat if the last one is `every_seconds` old.

        If the file system does not answer, the next call tries again.

        Raises:
            StudyLockedError: Another master took the study over, because this one was suspended
                for more than `STALE_SECONDS`. This one must stop without writing.
        """
        with self._refreshing:
            if not self._is_released and time.monotonic() - self._refreshed >= every_seconds:
                self._refresh()

    @contextlib.contextmanager
    def beating(self) -> Iterator[None]:
        """Write heartbeats from a thread, also while the master reads data, say, or copies a model.

        Not while a master ends: to workers that have lost their scheduler, a heartbeat says that
        the study goes on without them. If another master takes over, the next `refresh` outside of
        the thread tells it.
        """
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT_SECONDS):
                with contextlib.suppress(StudyError):
                    self.refresh(every_seconds=HEARTBEAT_SECONDS)

        thread = threading.Thread(target=beat, name="hptune-heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join(_SETTLE_SECONDS)  # no longer, as the file system may not answer

    def _refresh(self) -> None:
        try:
            found = self._lease.read()
            if found == self.owner:
                self._lease.beat()
            # The POSIX lock still proves who the master is if the lease was deleted or damaged.
            elif found == UNKNOWN and self.has_posix_lock:
                self._lease.take_over(self.owner, found)
            elif found or not self.has_posix_lock or not self._lease.create(self.owner):
                raise taken_over(self._directory)
            self._refreshed = time.monotonic()
            self._is_failing = False
        except FileNotFoundError as err:
            raise removed(self._directory) from err
        except (OSError, NotAFileError) as err:
            if not self._is_failing:
                logger.warning("cannot refresh %s, and try again: %s", self._lease.path, err)
            self._is_failing = True

    def check(self) -> None:
        """Check that no other master has the lease; called before each write.

        Raises:
            StudyLockedError: Another master took the study over.
        """
        with contextlib.suppress(OSError):  # `refresh` tells of it
            if self._lease.read() not in (self.owner, None, UNKNOWN):
                raise taken_over(self._directory)

    def release(self) -> None:
        """Release the lock; may be repeated."""
        if self._is_released or os.getpid() != self.owner.pid:
            return
        with self._refreshing, _registry_guard:
            self._is_released = True
            # In this order: a master that gets the POSIX lock must not find this lease.
            self._lease.remove(self.owner)
            _held.pop(self._identity, None)
            os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _take_lease(self) -> None:
        if self._lease.create(self.owner):
            return
        found, left_seconds = self._lease.read(), STALE_SECONDS - self._lease.age_seconds()
        died_here = self.has_posix_lock and found is not None and found.boot == self.owner.boot
        if not died_here and left_seconds > 0:
            raise locked(self._directory, found, left_seconds=left_seconds)
        was_taken = self._lease.take_over(self.owner, found)
        if was_taken and not died_here:
            time.sleep(_SETTLE_SECONDS)
        if (now := self._lease.read()) != self.owner:
            raise locked(self._directory, now)


def living_owner(directory: Path) -> LockOwner | None:
    """Return who has the lock of the study now, or None.

    This takes no lock, not even a shared one for a moment: a master that starts at that moment
    would fail. It asks the kernel which lock is in the way (F_GETLK, by `os.lockf(…, F_TEST)`).
    """
    lease = Lease(directory / "lease")
    for _ in polls(_UNNAMED_SECONDS, 0.001):
        with _registry_guard:
            if mine := _held.get(_identity(directory / "lock")):
                return mine.owner
            is_locked = _is_posix_locked(directory / "lock")
        found = lease.read()
        if found is not None or not is_locked:
            break
    if is_locked:
        return found or UNKNOWN
    if found is None or (is_locked is False and found.boot == boot_id()):
        return None
    return found if lease.age_seconds() < STALE_SECONDS else None


def locks_work(directory: Path) -> bool:
    """Return whether POSIX locks in the directory hold on all machines; True if unknown."""
    if mount_of(directory).local_locks:
        return False
    with _registry_guard:
        if mine := _held.get(_identity(directory / "lock")):
            return mine.has_posix_lock
        return _is_posix_locked(directory / "lock") is not None


def taken_over(directory: Path) -> StudyLockedError:
    """Return the error for a master that finds that another one writes to its study."""
    found = Lease(directory / "lease").read()
    is_own = found is not None and (found.boot, found.pid) == (boot_id(), os.getpid())
    return StudyLockedError(
        f"the study in {shlex.quote(str(directory))} was taken over by "
        f"{UNKNOWN if found is None or is_own else found}: its files lock and lease were deleted, "
        f"or this master was suspended for {STALE_SECONDS:.0f} seconds. This master stops, and "
        "writes no more; the study continues there"
    )


def locked(
    directory: Path, owner: LockOwner | None, *, left_seconds: float | None = None
) -> StudyLockedError:
    """Return the error for a study that another master runs, which says how to join it."""
    place = shlex.quote(str(directory))
    message = (
        f"the study in {place} is already run by {owner or UNKNOWN}. "
        f"Follow it with `hptune status {place} --watch`, enqueue a trial with "
        f"`hptune enqueue {place} NAME=VALUE`, or end it with `hptune stop {place}`"
    )
    if left_seconds is not None:
        message += (
            f". If that process is dead, try again in {plural(math.ceil(left_seconds), 'second')}"
        )
    return StudyLockedError(message)


# --- POSIX locks ----------------------------------------------------------------------------

# A POSIX lock belongs to the process. Taking it a second time in the same process succeeds, and
# closing any descriptor of the file drops it. So this process remembers the locks that it holds,
# and never opens their files again.
_Identity = tuple[int, int] | None
_held: dict[_Identity, MasterLock] = {}
_registry_guard = threading.RLock()


def _forget_parents_locks() -> None:
    global _registry_guard  # noqa: PLW0603 - a thread that does not exist here may hold the old one
    _registry_guard = threading.RLock()
    _held.clear()


os.register_at_fork(after_in_child=_forget_parents_locks)


def _identity(path: Path) -> _Identity:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _take_posix_lock(directory: Path) -> tuple[int, bool]:
    """Return the open lock file, and whether the file system supports locks.

    Raises:
        StudyLockedError: The lock is held.
    """
    path = directory / "lock"
    if mine := _held.get(_identity(path)):
        raise locked(directory, mine.owner)
    file = open_plain(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as err:
        if err.errno in _UNSUPPORTED:
            logger.info("%s: the file system has no POSIX locks (%s); using the lease", path, err)
            return file, False
        os.close(file)
        if err.errno in _TAKEN:
            raise locked(directory, Lease(directory / "lease").read()) from err
        raise
    return file, True


def _is_posix_locked(path: Path) -> bool | None:
    """Return whether another process holds the lock; None if the file system has no locks."""
    try:
        file = open_plain(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        os.lockf(file, os.F_TEST, 0)
    except OSError as err:
        if err.errno in _TAKEN:
            return True
        if err.errno in _UNSUPPORTED:
            return None
        raise
    finally:
        os.close(file)
    return False
