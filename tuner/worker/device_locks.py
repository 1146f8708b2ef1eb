"""What this machine's workers and studies use: no GPU twice, though none knows of the others."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import threading
from collections.abc import Iterable
from pathlib import Path

from . import devices
from .monitoring.gpu import GpuUsage

_held: dict[str, socket.socket] = {}
"""By the GPU or the cores; kept open until the process ends, however it ends."""

_lock = threading.Lock()


def lock_gpus(names: Iterable[str], most: int) -> tuple[str, ...]:
    """Some of these GPUs, which no other worker or study of this user on this machine has.

    They are this process's until it ends or gives them back; asked again, it gets the same ones.

    Args:
        names: As CUDA_VISIBLE_DEVICES has them.
        most: How many at most; may be fewer.
    """
    names = list(names)
    with _lock:
        # The number of a GPU and its UUID are one GPU.
        has_numbers = any(name.isdecimal() and name not in _held for name in names)
        usage = GpuUsage() if has_numbers else None
        # What is held already comes first.
        for name in sorted(names, key=lambda each: each not in _held):
            if sum(each in _held for each in names) >= most:
                break
            _claim(name, usage.uuid(name) if usage is not None and name.isdecimal() else name)
        return tuple(name for name in names if name in _held)[:most]


def lock_core_set(numbers: Iterable[int]) -> bool:
    """Whether no other study of this user on this machine shares out these cores.

    They may all the same use them, until this process ends or gives them back.
    """
    with _lock:
        name = _cores(numbers)
        _claim(name, name)
        return name in _held


def release(names: Iterable[str], numbers: Iterable[int]) -> None:
    """Others may have these GPUs, and share out these cores."""
    with _lock:
        for name in (*names, _cores(numbers)):
            if (claim := _held.pop(name, None)) is not None:
                claim.close()


def _cores(numbers: Iterable[int]) -> str:
    return f"cores {sorted(numbers)}"


def _claim(name: str, device: str) -> None:
    """Hold what goes by this name here, unless another process holds the same device."""
    if name in _held:
        return
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        # An abstract name: it is no file, and gone with the process.
        claim.bind(f"\0hptune-claim-{_digest(device)}")
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            claim.close()
            return
        # There are no such names here: nobody can be asked.
    _held[name] = claim


def _digest(device: str) -> str:
    """Names a device, or some cores, on this machine.

    In a container or a batch job that sees only its own ones, GPUs may be numbered from 0 again:
    so the name has a meaning there only.
    """
    seen_by = [os.environ.get(name, "") for name in ("SLURM_JOB_ID", "SLURM_STEP_ID")]
    seen_by += [os.environ.get("SLURM_PROCID", ""), devices.node(), str(os.getuid()), device]
    with contextlib.suppress(OSError):
        seen_by.append(str(Path("/proc/self/ns/mnt").readlink()))
    return hashlib.sha256("|".join(seen_by).encode()).hexdigest()[:32]
