"""What a machine offers to the studies of a scheduler."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from ...core.resources import Capacity, size
from ...errors import StudyError, UsageError
from ...security.handshake import INSECURE, identity_for
from ...text import plural
from .. import device_locks, devices
from ..addresses import address_of

_NO_CORES: Mapping[object, tuple[int, ...]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """What the user asked `hptune worker` for.

    Attributes:
        scheduler: The scheduler's address, or the path of a scheduler file.
        cpus: The number of cores to offer; None for all.
        gpus: The number of GPUs to offer; None for all.
        memory_bytes: The memory to offer, 0 to count none; None for the same part as of the cores.
        cores_granted: The cores granted by a batch system that does not confine its jobs to them;
            None for no such limit.
        memory_granted_bytes: The memory, likewise.
        name: The worker's name in Dask; empty for its address.
        death_timeout_seconds: How long to wait for a scheduler before leaving; None forever.
        walltime_seconds: How long the worker's job may run from now on; None for what its script
            or its batch system says.
        interface: The network interface to listen on; None for the one towards the scheduler.
        local_directory: Where to put the folder of Dask's files; None for the temporary directory.
        certs: The certificates to show, a file or a folder; empty for the user's own.
        insecure: Whether the user accepts a scheduler without certificates.
    """

    scheduler: str
    cpus: int | None = None
    gpus: int | None = None
    memory_bytes: int | None = None
    cores_granted: int | None = None
    memory_granted_bytes: int | None = None
    name: str = ""
    death_timeout_seconds: float | None = None
    walltime_seconds: float | None = None
    interface: str | None = None
    local_directory: str | None = None
    certs: str = ""
    insecure: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """Resources that a worker offers to the studies of a scheduler.

    Attributes:
        capacity: The cores, GPUs and memory.
        note: A warning to the user; empty if there is none.
    """

    capacity: Capacity
    note: str = ""


def offered(options: WorkerOptions) -> Offer:
    """Return an offer of this machine's resources, or of a part of them.

    Raises:
        UsageError: More is offered than there is, or `scheduler` is without certificates, which
            the user has not accepted.
        StudyError: There are fewer GPUs here than this process's job asked for.
    """
    scheduler, cpus, gpus = options.scheduler, options.cpus, options.gpus
    address = address_of(scheduler)
    identity = None
    if address:
        identity = identity_for(address, certs=options.certs, insecure=options.insecure)
    machine = devices.capacity()
    cores = devices.some_of(machine.cpus, options.cores_granted or len(machine.cpus))
    has = _within(replace(machine, cpus=cores), None, options.memory_granted_bytes or None)
    for option, asked, there in (("--cpus", cpus, has.cpus), ("--gpus", gpus, has.gpus)):
        if asked is not None and asked > len(there):
            raise UsageError(
                f"{option} is {asked}, but this process may use {len(there)}; offer at most as many"
            )
    memory = options.memory_bytes
    if memory is None:
        memory = has.memory_bytes if cpus is None else has.memory_bytes * cpus // len(has.cpus)
    if has.memory_bytes and memory > has.memory_bytes:
        raise UsageError(
            f"{size(memory)} of memory are offered, but this process may use "
            f"{size(has.memory_bytes)}; offer at most as much"
        )
    most = len(has.gpus) if gpus is None else gpus
    free = device_locks.lock_gpus(has.gpus, most)
    if gpus is not None and len(free) < gpus:
        raise UsageError(
            f"{gpus} GPUs are offered, but other workers on this machine offer all but "
            f"{len(free)} of its {len(has.gpus)}; offer at most as many, or end one of them"
        )
    if len(free) < (needed := devices.gpus_of_job()):
        seen = ", ".join(has.gpus) or "no GPU"
        raise StudyError(
            f"the job asked for {plural(needed, 'GPU')}, but this process can use {len(free)} on "
            f"{devices.node()} (it sees {seen}), so it runs no trials; run `hptune doctor` there"
        )
    capacity = replace(_within(has, cpus, memory), gpus=free)
    notes = [_note_on(capacity, machine), device_locks.others_locks()]
    if address and identity is None:
        notes.append(INSECURE)
    return Offer(capacity, "; ".join(filter(None, notes)))


def granted_by(worker: Any, cores: Mapping[object, tuple[int, ...]] = _NO_CORES) -> Capacity:
    """Return what studies may use of a Dask worker.

    Args:
        worker: Dask's worker, which hptune may not have started.
        cores: Core ids by the worker's name, if the master started the workers of this machine.
    """
    name = worker.name
    if name in cores:
        has = devices.share(devices.capacity(), list(cores).index(name), len(cores))
        return replace(has, cpus=cores[name])
    # A worker of `hptune worker` has what its user granted.
    granted: Capacity | None = getattr(worker, "granted", None)
    if granted is not None:
        return granted
    # Other workers may run on this machine; by Dask's convention its threads are its share.
    has, threads = devices.capacity(), worker.state.nthreads
    share = min(1.0, threads / len(has.cpus))
    gpus = device_locks.lock_gpus(has.gpus, math.ceil(share * len(has.gpus)))
    return replace(
        has,
        cpus=has.cpus[:threads],
        gpus=gpus,
        memory_bytes=int(share * has.memory_bytes),
        memory_taken_bytes=int(share * has.memory_taken_bytes),
    )


def _note_on(given: Capacity, machine: Capacity) -> str:
    """Return a warning if this process and another one both offer the whole machine."""
    gives_all = (given.cpus, given.memory_bytes) == (machine.cpus, machine.memory_bytes)
    if not gives_all or device_locks.lock_core_set(machine.cpus):
        return ""
    return (
        "another worker or study of yours has all cores and all memory of this machine, too. "
        "Memory may run out: start each worker with a part (--cpus, --memory)"
    )


def _within(has: Capacity, cores: int | None, memory_bytes: int | None) -> Capacity:
    memory = has.memory_bytes if memory_bytes is None else min(has.memory_bytes, memory_bytes)
    # Memory that other processes use counts first against the memory that is not offered.
    taken = max(0, has.memory_taken_bytes - (has.memory_bytes - memory))
    return replace(has, cpus=has.cpus[:cores], memory_bytes=memory, memory_taken_bytes=taken)
