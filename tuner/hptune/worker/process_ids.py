"""Processes: their names and parents, when they began, their trial, and what they ignore."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from ..errors import LINUX_ONLY, UsageError
from ..storage.lease import boot_id

RLIMIT_LOCKS = 10
"""The limit of file locks, which Python does not name. Linux has not enforced it since 2.4.25."""

_PR_SET_PDEATHSIG = 1
_PR_SET_NAME = 15
_PR_SET_CHILD_SUBREAPER = 36

_SOFT_LIMIT = re.compile(rb"^Max file locks +(\d+)", re.MULTILINE)


def stat_of(pid: int) -> list[str]:
    """Return the fields of a process's /proc/PID/stat from its state on; empty if it has ended."""
    try:
        # The name before them may have blanks and parentheses.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def began(pid: int) -> str:
    """Return when the process began, in the kernel's ticks; empty if it has ended."""
    fields = stat_of(pid)
    return "" if not fields or fields[0] in "ZX" else fields[19]


def seconds_since_first(variable: str) -> float:
    """Return the age of the oldest of this process and those above it that were begun with it.

    Args:
        variable: An environment variable with its value, NAME=VALUE.
    """
    first, each = "", os.getpid()
    with contextlib.suppress(OSError):  # of another user
        while each and variable.encode() in Path(f"/proc/{each}/environ").read_bytes().split(b"\0"):
            first, each = began(each), parent_of(each) or 0
    if not first:
        return 0.0
    up = float(Path("/proc/uptime").read_text().split()[0])
    return max(0.0, up - int(first) / os.sysconf("SC_CLK_TCK"))


def place() -> str:
    """Return where process ids mean the same: the running kernel, and the container.

    Raises:
        UsageError: This system is not Linux. All that starts trials asks for it first.
    """
    if sys.platform != "linux":
        raise UsageError(LINUX_ONLY)
    # The number of the outermost container is the same on all machines.
    return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - it is no path


def children_of(pid: int) -> set[int]:
    """Return the children that the main thread of a process started or adopted."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_bytes()
    except OSError:  # it has ended, or the kernel is old and has no such file
        return set()
    return {int(each) for each in found.split()}


def trial_of(pid: int) -> int | None:
    """Return the process of the trial that a process is of; None if it is of none, or has ended."""
    with contextlib.suppress(OSError):
        if found := _SOFT_LIMIT.search(Path(f"/proc/{pid}/limits").read_bytes()):
            return int(found[1])
    return None


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if it has ended."""
    fields = stat_of(pid)
    return int(fields[1]) if fields else None


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, or end it now."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def empty_stdin() -> None:
    """Have this process, and what it starts, read nothing from standard input."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    if nothing:
        os.dup2(nothing, 0)
        os.close(nothing)


def set_name(name: str) -> None:
    """Set the name, of at most 15 characters, that the system shows for this process."""
    _prctl(_PR_SET_NAME, name.encode())


def adopt_orphans() -> None:
    """Become the parent of the orphans among this process's descendants."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int | bytes) -> None:
    ctypes.CDLL(None).prctl(option, value)


@contextlib.contextmanager
def ignored(*signals: signal.Signals) -> Iterator[None]:
    """Ignore signals, here and in what is started meanwhile; only in the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {each: signal.signal(each, signal.SIG_IGN) for each in signals if is_main}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
