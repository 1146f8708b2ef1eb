"""Device locks: which process of this user uses which GPU or core of a machine.

==============================  ==========================================  ==================
who must not share              what                                        by
==============================  ==========================================  ==================
workers and studies             the GPUs that they offer, the set of cores  `lock_gpus`,
                                that they share out                         `lock_core_set`
processes of attempts           the cores that they compute on              `lock_cores`
studies on one worker           its cores and GPUs, in turn                 `device_queue`
==============================  ==========================================  ==================

A lock between processes is a listening socket with an abstract name: it is no file, and it
disappears with its process, however that ends. Where there are no abstract names, every lock is
free. Any user may take any name, so a lock that belongs to another user does not count.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..files.ownership import user_name
from . import devices
from .gpus.machine import Gpus

PROCESS = "this process"
"""The owner of the locks of a worker, and of the cores of an attempt."""


class _Lock(NamedTuple):
    owner: object
    socket: socket.socket


_held: dict[str, _Lock] = {}
"""The locks of this process, by the names that it uses."""

_not_ours: dict[str, str] = {}
"""The locks that other users hold, by the names that this process uses, and who they are."""

_guard = threading.Lock()

_TRIES = 5
_PAUSE_SECONDS = 0.02
"""Pause between tries to see whose a lock is; another process of ours may be about to listen."""


def lock_gpus(names: Iterable[str], most: int, owner: object = PROCESS) -> tuple[str, ...]:
    """Lock GPUs that no other worker or study of this user on this machine has locked.

    They stay locked until `release` or the end of this process. A second call returns the same
    ones first.

    Args:
        names: GPUs by the names in `gpus`.
        most: The number of GPUs to lock at most.
        owner: Who locks them; a process may run several studies.

    Returns:
        The GPUs that the owner has locked, `most` of them or fewer.
    """
    names = list(names)
    with _guard:
        gpus = Gpus()  # a number and a UUID may name the same GPU
        for name in sorted(names, key=lambda each: not _has(owner, each)):
            if sum(_has(owner, each) for each in names) >= most:
                break
            identity = "" if name in _held else _seen_here(name, gpus.identity(name))
            _lock(name, identity, owner)
        return tuple(name for name in names if _has(owner, name))[:most]


def others_locks() -> str:
    """Return a warning that other users have taken names of this user's locks; empty if none."""
    with _guard:
        found = ", ".join(f"{name} ({who})" for name, who in _not_ours.items())
    if not found:
        return ""
    return (
        f"other users of this machine hold locks in your name: {found}. They are ignored, so "
        "hptune does not know whether another study of yours uses the same"
    )


def lock_core_set(numbers: Iterable[int], owner: object = PROCESS) -> bool:
    """Lock a set of cores to share out; return False if another study shares out the same set.

    Both may use the cores nevertheless. The lock lasts until `release` or the end of this process.
    """
    name = f"cores {sorted(numbers)}"
    with _guard:
        return _lock(name, _seen_here(name, name), owner)


def release(owner: object = PROCESS) -> None:
    """Release the locks of an owner."""
    with _guard:
        for name in [each for each in _held if _has(owner, each)]:
            _not_ours.pop(name, None)
            lock = _held.pop(name).socket
            with contextlib.suppress(OSError):
                lock.shutdown(socket.SHUT_RDWR)  # ends `_answer`, which would keep it open
            lock.close()


def lock_cores(wanted: Iterable[int], allowed: Iterable[int]) -> tuple[int, ...]:
    """Lock cores for this process to compute on, until it ends.

    Args:
        wanted: The cores to lock. A wanted core that another process has locked is replaced by a
            free allowed one, or used nevertheless if there is none.
        allowed: The cores that this process may use.

    Returns:
        As many cores as wanted.
    """
    wanted = list(wanted)
    with _guard:
        taken = [core for core in wanted if not _lock_core(core)]
        spare: Iterator[int] = (core for core in sorted({*allowed} - {*wanted}) if _lock_core(core))
        return (*(core for core in wanted if core not in taken), *(next(spare, c) for c in taken))


def _lock_core(core: int) -> bool:
    # Unlike GPUs, cores have the same numbers in all jobs and containers of a machine. Whose lock
    # it is does not matter: where no core is free, a locked one is used.
    return _bind(f"core {core}", f"core-{core}-{os.getuid()}-{devices.node()}", PROCESS)


def _has(owner: object, name: str) -> bool:
    return name in _held and _held[name].owner == owner


def _lock(name: str, identity: str, owner: object) -> bool:
    """Take a lock unless another owner of this user has it; return whether it is free for this one.

    Args:
        name: The name in `_held`.
        identity: The name of the device that all processes use.
        owner: Who is to have it.
    """
    who: str | None = ""
    if name in _held:
        return _has(owner, name)
    for _ in range(_TRIES):
        if _bind(name, identity, owner):
            threading.Thread(
                target=_answer, args=(_held[name].socket,), name="hptune-lock", daemon=True
            ).start()
            return True
        if (who := _holder(identity)) is None:
            return False
        time.sleep(_PAUSE_SECONDS)
    _not_ours[name] = str(who)
    _held[name] = _Lock(owner, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
    return True


def _bind(name: str, identity: str, owner: object) -> bool:
    """Take a lock unless another owner has it; return whether this one has it now."""
    if name in _held:
        return _has(owner, name)
    lock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        lock.bind(_address(identity))
        lock.listen(socket.SOMAXCONN)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            lock.close()
            return False
    _held[name] = _Lock(owner, lock)
    return True


def _answer(lock: socket.socket) -> None:
    """Accept those that look whose lock it is: only some can wait, on many systems 128."""
    with contextlib.suppress(OSError):  # it is released
        lock.settimeout(None)
        while True:
            lock.accept()[0].close()


def _holder(identity: str) -> str | None:
    """Return which other user holds a lock; None if it is this user."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(0)  # a stranger may never accept
        try:
            probe.connect(_address(identity))
            found = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return "an unknown user"
    pid, uid, _ = struct.unpack("3i", found)
    if uid == os.getuid():
        return None
    return f"user {user_name(uid)}, process {pid}"


def _address(identity: str) -> str:
    return f"\0hptune-{identity}"


def _seen_here(device: str, known: str = "") -> str:
    """Return the identity of a device among the processes of a user's job.

    A container or a task that sees only its own GPUs may number them from 0 again, so a name that
    the driver does not know stands for a device of that container and task alone.

    Args:
        device: Its name in this process.
        known: Its name in all processes of this machine; empty if unknown.
    """
    parts = [devices.batch_job(os.environ), devices.node(), str(os.getuid()), known or device]
    if not known:
        parts += [os.environ.get(name, "") for name in ("SLURM_STEP_ID", "SLURM_PROCID")]
        with contextlib.suppress(OSError):
            parts.append(str(Path("/proc/self/ns/mnt").readlink()))
    return hashlib.sha256("|".join(parts).encode()).hexdigest()[:32]
