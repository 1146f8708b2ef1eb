"""The lease of a study: a file that names its master and carries the master's heartbeat.

The heartbeat is the file's modification time. Its age is the difference between two times of the
same file system, because the clocks of two machines differ.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import secrets
import socket
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from ..core.clock import TIMES_END
from ..errors import NotAFileError
from ..files.access import read_part
from ..text import moment

STALE_SECONDS = 60.0
"""Age of a heartbeat, in seconds, from which its master counts as dead.

Six missed heartbeats: a busy file server delays one or two.
"""

_LONGEST_NAME = 255
"""Most characters of a machine's name."""

HEARTBEAT_SECONDS = 10.0
"""Seconds between two heartbeats of a master."""


@dataclass(frozen=True, slots=True)
class LockOwner:
    """Who has the lock of a study: its master, or another process for a moment.

    Attributes:
        host: The machine's name.
        pid: The process id on that machine.
        since: When it took the lock, in seconds since the epoch by that machine's clock.
        boot: The id of the running kernel. Containers of one machine share it; a reboot changes it.
        token: A random text that is different for every lock.
        is_brief: Whether it is no master, but needs the lock for a moment: a program that asks for
            trials or tells of one, or a note.
    """

    host: str
    pid: int
    since: float
    boot: str = ""
    token: str = ""
    is_brief: bool = False

    @classmethod
    def this_process(cls, *, is_brief: bool = False) -> LockOwner:
        """Return this process as a new owner."""
        now, token = time.time(), secrets.token_hex(8)
        return cls(socket.gethostname(), os.getpid(), now, boot_id(), token, is_brief)

    def __str__(self) -> str:
        if not self.pid:
            return f"a process on {self.host}"
        return f"process {self.pid} on {self.host} since {moment(self.since)}"


UNKNOWN = LockOwner(host="an unknown machine", pid=0, since=0.0)
"""The owner of a lease that cannot be read, and of a lock without a lease."""


class Lease:
    """The lease file of one study directory."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> LockOwner | None:
        """Return the owner, `UNKNOWN` if the file is damaged, or None if there is no file.

        Raises:
            NotAFileError: It is no file, but a pipe or a directory.
        """
        try:
            return _owner(json.loads(read_part(self.path)))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError, RecursionError):
            return UNKNOWN

    def create(self, owner: LockOwner) -> bool:
        """Create the file, and return whether it did not exist before."""
        fresh = self._temporary()
        try:
            fresh.write_bytes(_encoded(owner))
            # A link is atomic, on NFS too, and the lease names its owner from the first moment on.
            self.path.hardlink_to(fresh)
        except FileExistsError:
            # An NFS server whose answer was lost refuses the repeated request.
            return self.read() == owner
        except OSError:  # the file system may have no hard links
            return self._create_without_link(owner)
        finally:
            fresh.unlink(missing_ok=True)
        return True

    def _create_without_link(self, owner: LockOwner) -> bool:
        try:
            # O_EXCL is atomic on NFS (from version 3 on) and on Lustre.
            file = self.path.open("xb")
        except FileExistsError:
            return False
        try:
            with file:
                file.write(_encoded(owner))
        except BaseException:
            # Without its owner's name, it would keep all masters off until it is stale.
            self.path.unlink(missing_ok=True)
            raise
        return True

    def take_over(self, owner: LockOwner, found: LockOwner | None) -> bool:
        """Replace the owner that was found, and return whether it was still there.

        Several may do so at the same moment; the last one keeps it.
        """
        fresh = self._temporary()
        try:
            fresh.write_bytes(_encoded(owner))
            if self.read() != found:  # until here, others may have had any time
                return False
            fresh.replace(self.path)
        finally:
            fresh.unlink(missing_ok=True)
        return True

    def remove(self, owner: LockOwner) -> None:
        """Remove the file if it names this owner."""
        with contextlib.suppress(OSError, NotAFileError):
            if self.read() == owner:
                self.path.unlink()

    def beat(self) -> None:
        """Write a heartbeat."""
        os.utime(self.path)

    def age_seconds(self) -> float:
        """Return the age of the heartbeat; infinity if there is no lease."""
        try:
            beat = self.path.stat().st_mtime
        except FileNotFoundError:
            return math.inf
        return self.now() - beat

    def now(self) -> float:
        """Return the present time by the clock of the file system, in seconds since the epoch."""
        clock = self._temporary()
        try:
            clock.touch(exist_ok=False)
            try:
                return clock.stat().st_mtime
            finally:
                clock.unlink()
        except OSError:  # read-only: the machine's own clock is the best one left
            return time.time()

    def _temporary(self) -> Path:
        return self.path.with_name(f".{self.path.name}.{secrets.token_hex(8)}")


@functools.cache
def boot_id() -> str:
    """Return the id of the running kernel; the machine's name if the kernel gives none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()


def _owner(fields: dict[str, object]) -> LockOwner:
    """Return the owner of a lease, which anybody may have written.

    Raises:
        TypeError: It has other fields.
        ValueError: A field cannot be what a master writes.
    """
    owner = LockOwner(**fields)  # type: ignore[arg-type]  # checked here
    texts, numbers = (owner.host, owner.boot, owner.token), (owner.pid, owner.since)
    are_texts = all(isinstance(each, str) and each.isprintable() for each in texts)
    is_plain = isinstance(owner.is_brief, bool)
    are_numbers = is_plain and all(isinstance(each, int | float) for each in numbers)
    if not (are_texts and len(owner.host) <= _LONGEST_NAME):
        raise ValueError("a name in a lease cannot be shown")
    if not (are_numbers and 0 <= owner.pid < 2**31 and 0 <= owner.since < TIMES_END):
        raise ValueError("a process or a time in a lease cannot be one")
    return owner


def _encoded(owner: LockOwner) -> bytes:
    return json.dumps(asdict(owner)).encode()
