"""What `hptune worker` prints of its devices and of its attempts."""

from __future__ import annotations

from ...core.attempt import Cause, Ending
from ...core.resources import Capacity, Placement, size
from ...text import plural


def capacity_text(capacity: Capacity) -> str:
    """Return what a worker offers."""
    parts = [plural(len(capacity.cpus), "core")]
    if capacity.gpus:
        parts.append(f"{plural(len(capacity.gpus), 'GPU')} ({', '.join(capacity.gpus)})")
    parts.append(f"{size(capacity.memory_bytes)} of memory")
    return ", ".join(parts)


def placement_text(placement: Placement) -> str:
    """Return what an attempt holds."""
    is_part = placement.cpu_share < 1
    cores = plural(len(placement.cpus), "core")
    words = f"{placement.cpu_share:.2g} of a core" if is_part else cores
    if not placement.gpus:
        return words
    part = f"{placement.gpu_share:.2g} of " if placement.gpu_share < 1 else ""
    return f"{words} and {part}GPU {','.join(placement.gpus)}"


def ending_text(ending: Ending) -> str:
    """Return how an attempt ended."""
    if ending.cause is Cause.PRUNED:
        return "pruned"  # by a pruner or a user; only the master knows
    return f"{ending.cause} ({ending.reason})" if ending.reason else str(ending.cause)
