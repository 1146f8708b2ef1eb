"""Processes by more than their number, which the kernel gives again after some time."""

from __future__ import annotations

import os
from pathlib import Path


def began(pid: int) -> str:
    """Return when the process began, in the kernel's ticks; empty if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] in "ZX" else fields[19]


def pid_namespace() -> str:
    """Return the container in which process ids mean the same."""
    return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - it is no path
