"""Only one master at a time: the lock of a study directory.

Two things guard a study, because neither is enough on every file system:

The *kernel lock* is an exclusive POSIX lock on the file `lock`. The kernel lets go of it however
the master dies, and NFSv4 and Lustre (mounted with `flock`) carry it between nodes.

The *lease* is the file `lease`, which names the master and whose modification time is the
master's heartbeat. It says who holds the study, and it is the only guard where the file system
refuses locks, or keeps them to one node without saying so (NFS with `local_lock` or `nolock`,
Lustre with `localflock`). Ages are differences between two times of the same file system, never
of this machine's clock, because nodes' clocks differ.

========================  ===============================  ====================================
what a new master finds   lease of this very kernel        lease of another kernel (node)
========================  ===============================  ====================================
kernel lock taken         refused                          refused
kernel lock free          that master died: taken over     refused until the lease is stale
locks unsupported         refused until the lease is       refused until the lease is stale
                          stale
========================  ===============================  ====================================

A lease is stale after `STALE_SECONDS` without a heartbeat.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import logging
import os
import secrets
import shlex
import socket
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import StudyLockedError

logger = logging.getLogger(__name__)

STALE_SECONDS = 60.0
"""A lease without a heartbeat for this long belongs to a dead master."""

HEARTBEAT_SECONDS = 10.0
"""How often a master's heartbeat is written, however often `refresh` is called."""

_SETTLE_SECONDS = 0.5
"""How long to wait for others who judged the same lease dead at the same time."""

_TAKEN = (errno.EACCES, errno.EAGAIN)
_UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL)


@dataclass(frozen=True, slots=True)
class LockOwner:
    """Who runs a study.

    Attributes:
        host: The machine's name.
        pid: The master's process id there.
        since: When it took the study up, in seconds since the epoch by that machine's clock.
        boot: Names the running kernel: containers of one machine share it, reboots change it.
        token: Tells two masters of the same host and pid apart.
    """

    host: str
    pid: int
    since: float
    boot: str = ""
    token: str = ""

    def __str__(self) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {since}"


class MasterLock:
    """The right to be a study's master, held until `release` or the end of the process.

    Made by `StudyDirectory.acquire`; a context manager. The master's loop calls `refresh` at
    least every few seconds. A forked child does not hold its parent's lock.

    Args:
        directory: The study directory; it must exist.

    Raises:
        StudyLockedError: Another master, in this process or any other, runs the study.
        OSError: The directory cannot be written to.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lease = directory / "lease"
        self._owner = LockOwner(
            host=socket.gethostname(),
            pid=os.getpid(),
            since=time.time(),
            boot=_boot_id(),
            token=secrets.token_hex(8),
        )
        self._refreshed = time.monotonic()
        self._released = False
        with _registry_guard:
            file, self._kernel_locked = _take_kernel_lock(directory)
            try:
                self._take_lease()
            except BaseException:
                os.close(file)
                raise
            self._file = file
            self._identity = _identity(directory / "lock")
            _held[self._identity] = self

    @property
    def owner(self) -> LockOwner:
        """Who holds this lock: this process."""
        return self._owner

    @property
    def kernel_locked(self) -> bool:
        """Whether the file system keeps locks; if not, the lease alone guards the study."""
        return self._kernel_locked

    def refresh(self, *, every_seconds: float = HEARTBEAT_SECONDS) -> None:
        """Show that this master lives; cheap, and does nothing if called again too soon.

        A file system that does not answer is no reason to stop: the next call tries again.

        Raises:
            StudyLockedError: Another master took the study over, because this one was suspended
                for more than `STALE_SECONDS` where locks do not work. Stop without writing.
        """
        if time.monotonic() - self._refreshed < every_seconds:
            return
        try:
            found = _read_lease_or_unknown(self._lease)
            if found == self._owner:
                os.utime(self._lease)
            elif found is _UNKNOWN and self._kernel_locked and not self._lease.exists():
                self._take_lease()  # somebody tidied up
            else:
                raise StudyLockedError(
                    f"the study in {shlex.quote(str(self._directory))} was taken over by {found}, "
                    f"because this master gave no sign of life for {STALE_SECONDS:.0f} seconds. "
                    "This one stops; the study goes on there"
                )
            self._refreshed = time.monotonic()
        except OSError as err:
            logger.warning("cannot refresh %s: %s", self._lease, err)

    def release(self) -> None:
        """Let another master take the study; may be repeated."""
        if self._released or os.getpid() != self._owner.pid:
            return
        self._released = True
        with _registry_guard:
            # The lease goes first: whoever gets the kernel lock must not find it.
            with contextlib.suppress(OSError):
                if _read_lease(self._lease) == self._owner:
                    self._lease.unlink()
            _held.pop(self._identity, None)
            os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _take_lease(self) -> None:
        # Written whole under another name and linked into place: `link` fails if there is a
        # lease already, on NFS too, and nobody ever reads half a lease.
        fresh = self._directory / f".lease.{self._owner.token}"
        fresh.write_text(json.dumps(asdict(self._owner)), encoding="utf-8")
        try:
            sure = True
            for _ in range(3):
                try:
                    _put(fresh, self._lease)
                except FileExistsError:
                    sure = self._clear_dead_lease(fresh)
                    continue
                if not sure:
                    time.sleep(_SETTLE_SECONDS)
                if sure or _read_lease_or_unknown(self._lease) == self._owner:
                    return
            found = _read_lease_or_unknown(self._lease)
            raise _locked(self._directory, found, kernel_locked=self._kernel_locked)
        finally:
            fresh.unlink(missing_ok=True)

    def _clear_dead_lease(self, clock: Path) -> bool:
        """Remove the lease of a dead master, or refuse; whether nobody else can be at it too."""
        try:
            found = _read_lease(self._lease)
            age_seconds = _age_seconds(self._lease, clock)
        except FileNotFoundError:
            return False
        died_here = self._kernel_locked and found.boot == self._owner.boot
        if not died_here and age_seconds < STALE_SECONDS:
            raise _locked(
                self._directory, found, kernel_locked=self._kernel_locked, age_seconds=age_seconds
            )
        # Another master may have judged the same lease dead and have put its own there
        # meanwhile. So what is moved away is looked at, and given back if it is not the dead one.
        aside = self._directory / f".lease.{self._owner.token}.dead"
        with contextlib.suppress(FileNotFoundError):
            self._lease.rename(aside)
            try:
                if _read_lease(aside) != found:
                    with contextlib.suppress(FileExistsError):
                        _put(aside, self._lease)
            finally:
                aside.unlink()
        return died_here


def living_owner(directory: Path) -> LockOwner | None:
    """The master that runs the study now, or None.

    Never disturbs anyone: it asks the kernel who would be in the way of a lock (F_GETLK, inside
    `os.lockf(…, F_TEST)`) and takes none, because even a shared lock held for a moment would make
    a master that starts at this moment fail.
    """
    lease = directory / "lease"
    with _registry_guard:
        # Closing any descriptor of a file drops all POSIX locks that the process has on it, so
        # the file must not even be opened where this process holds the lock.
        mine = _held.get(_identity(directory / "lock"))
        if mine is not None:
            return mine.owner
        locked = _kernel_lock_is_taken(directory / "lock")
    try:
        found = _read_lease(lease)
        if locked:
            return found
        if locked is False and found.boot == _boot_id():
            return None
        return found if _age_seconds_read_only(lease) < STALE_SECONDS else None
    except FileNotFoundError:
        return _UNKNOWN if locked else None


def locks_work(directory: Path) -> bool:
    """Whether the directory's file system keeps POSIX locks; True while that is unknown."""
    with _registry_guard:
        mine = _held.get(_identity(directory / "lock"))
        if mine is not None:
            return mine.kernel_locked
        return _kernel_lock_is_taken(directory / "lock") is not None


# --- the locks that this process holds ------------------------------------------------------

_Identity = tuple[int, int] | None
_held: dict[_Identity, MasterLock] = {}
_registry_guard = threading.RLock()
_UNKNOWN = LockOwner(host="an unknown machine", pid=0, since=0.0)


def _forget_parents_locks() -> None:
    global _registry_guard  # noqa: PLW0603 - the parent's may be held by a thread that is gone
    _registry_guard = threading.RLock()
    _held.clear()


os.register_at_fork(after_in_child=_forget_parents_locks)


def _identity(path: Path) -> _Identity:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _take_kernel_lock(directory: Path) -> tuple[int, bool]:
    """The open lock file, and whether the kernel keeps the lock."""
    path = directory / "lock"
    identity = _identity(path)
    if identity is not None and identity in _held:
        raise _locked(directory, _held[identity].owner, kernel_locked=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as err:
        if err.errno in _UNSUPPORTED:
            logger.info("%s: no locks here (%s); a lease guards the study", path, err)
            return file, False
        os.close(file)
        if err.errno in _TAKEN:
            found = _read_lease_or_unknown(directory / "lease")
            raise _locked(directory, found, kernel_locked=True) from err
        raise
    return file, True


def _kernel_lock_is_taken(path: Path) -> bool | None:
    """Whether another process holds the lock; None where the file system keeps no locks."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
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


# --- leases ---------------------------------------------------------------------------------


def _put(file: Path, name: Path) -> None:
    """Give a file a second name that nobody else has; FileExistsError if somebody has it."""
    try:
        os.link(file, name)
    except OSError as err:
        if err.errno not in (errno.EPERM, *_UNSUPPORTED):
            raise
        # No hard links here. A reader may meet half a lease, and then takes it for a stranger's.
        with name.open("xb") as lease:
            lease.write(file.read_bytes())


def _read_lease(path: Path) -> LockOwner:
    try:
        return LockOwner(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError):
        return _UNKNOWN


def _read_lease_or_unknown(path: Path) -> LockOwner:
    try:
        return _read_lease(path)
    except FileNotFoundError:
        return _UNKNOWN


def _age_seconds(lease: Path, clock: Path) -> float:
    """How long ago the heartbeat was, told by a file of ours that is touched now."""
    os.utime(clock)
    return clock.stat().st_mtime - lease.stat().st_mtime


def _age_seconds_read_only(lease: Path) -> float:
    clock = lease.with_name(f".clock.{secrets.token_hex(8)}")
    try:
        clock.touch(exist_ok=False)
        try:
            return _age_seconds(lease, clock)
        finally:
            clock.unlink()
    except FileNotFoundError:
        raise
    except OSError:  # whoever may only read here has no better clock than the machine's
        return time.time() - lease.stat().st_mtime


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _locked(
    directory: Path, owner: LockOwner, *, kernel_locked: bool, age_seconds: float | None = None
) -> StudyLockedError:
    place = shlex.quote(str(directory))
    message = (
        f"the study in {place} is already run by {owner}, and only one master may run it. "
        f"Look at it with `hptune status {place}` or end it with `hptune stop {place}`"
    )
    if age_seconds is not None:
        why = "on another machine" if kernel_locked else "and this file system keeps no locks"
        message += (
            f". If that master is dead: it ran {why}, so it counts as alive until "
            f"{STALE_SECONDS:.0f} seconds after its last sign of life, which was "
            f"{max(age_seconds, 0.0):.0f} seconds ago; then try again"
        )
    return StudyLockedError(message)
