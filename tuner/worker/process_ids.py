"""Processes by more than their number, which the kernel gives again after some time."""

from __future__ import annotations

import os
from pathlib import Path

from ..storage.lease import boot_id


def began(pid: int) -> str:
    """Return when the process began, in the kernel's ticks; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def place() -> str:
    """Return where process ids mean the same: the running kernel, and the container."""
    # The number of the outermost container is the same on all machines.
    return f"{boot_id()} {os.readlink('/proc/self/ns/pid')}"  # noqa: PTH115 - it is no path
