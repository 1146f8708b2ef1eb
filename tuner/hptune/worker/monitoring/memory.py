"""The memory of this worker: how much is free, and whether the kernel killed for lack of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..gpus.vendor import read
from .cgroups import control_groups


def kills() -> dict[str, int]:
    """Return how often the kernel has killed for lack of memory, by the file that counts it.

    The files are those of this process's control groups and of the whole machine.
    """
    found = {}
    for directory in control_groups("memory"):
        for name in ("memory.events", "memory.oom_control"):
            count = _count(directory / name)
            if count is not None:
                found[str(directory / name)] = count
    count = _count(Path("/proc/vmstat"))
    if count is not None:
        found["/proc/vmstat"] = count
    return found


def new_kills(before: dict[str, int]) -> str:
    """Return which count has increased since `before`, in words; empty if none has.

    >>> new_kills(kills())
    ''
    """
    for name, count in kills().items():
        if name in before and count > before[name]:
            return f"oom_kill in {name}: {before[name]} -> {count}"
    return ""


def free_bytes() -> tuple[int, int]:
    """Return the free and the total memory for this process and those in its control groups."""
    return min(_free_and_total())


def total_bytes() -> int:
    """Return the memory that this process may use: the machine's, or its control group's limit."""
    return min(total for _, total in _free_and_total())


def _free_and_total() -> Iterator[tuple[int, int]]:
    """Yield the free and the total memory of the machine, and of control groups with a limit."""
    import psutil

    machine = psutil.virtual_memory()
    yield int(machine.available), int(machine.total)
    for directory in control_groups("memory"):
        for limit_name, used_name, cache_name in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            limit, used = (read(directory / name) for name in (limit_name, used_name))
            if limit.isdigit() and used.isdigit() and int(limit) < machine.total:
                cache = _number(read(directory / "memory.stat"), cache_name) or 0
                yield max(0, int(limit) - int(used) + cache), int(limit)


def _count(path: Path) -> int | None:
    return _number(read(path), "oom_kill")


def _number(text: str, name: str) -> int | None:
    for line in text.splitlines():
        word, _, value = line.partition(" ")
        if word == name and value.strip().isdigit():
            return int(value)
    return None
