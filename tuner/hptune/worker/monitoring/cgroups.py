"""The control groups of this process and their files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..gpus.vendor import read


def control_groups(controller: str) -> Iterator[Path]:
    """Yield the directories of this process's control groups, from its own up to the root."""
    root = Path("/sys/fs/cgroup")
    for line in read(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and controller not in controllers.split(","):
            continue
        base = root / controller if controllers else root
        own = base / path.strip("/")
        for directory in (own, *own.parents):
            yield directory
            if directory == base:
                break
