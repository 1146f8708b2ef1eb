"""The resources of this machine that this process may use: cores, memory, GPUs."""

from __future__ import annotations

import os
import socket
import sys
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ..core.messages import WorkerJoined
from ..core.resources import Capacity
from ..errors import LINUX_ONLY, UsageError
from .gpus.machine import Gpus
from .gpus.vendor import number, read
from .monitoring.cgroups import control_groups
from .monitoring.memory import free_bytes, total_bytes
from .process_ids import seconds_since_first

NODES = Path("/sys/devices/system/node")

_ENDS_AT, _NOTICE = "HPTUNE_WORKER_ENDS_AT", "HPTUNE_WORKER_NOTICE"
"""Variables of job scripts: the job's end, and how many seconds earlier a worker leaves."""

_WALLTIMES = ("PBS_WALLTIME", "OAR_JOB_WALLTIME_SECONDS")
"""Variables of TORQUE and OAR with a job's length in seconds. PBS Pro, Grid Engine, LSF and
HTCondor tell their jobs no such thing."""

_JOB_IDS = ("SLURM_JOB_ID", "JOB_ID", "PBS_JOBID", "LSB_JOBID", "OAR_JOB_ID")
"""Variables with a job's id of Slurm, Grid Engine, PBS, LSF and OAR."""

_NOTICE_SECONDS = 120.0
"""How long before its job's end a worker leaves, but no more than a quarter of the job."""


def capacity() -> Capacity:
    """Return the cores, GPUs and memory that this process may use.

    Cores follow from `cpus`, their groups from the kernel's NUMA nodes, memory from the control
    group's limit. GPUs follow from the variables of their vendor, such as CUDA_VISIBLE_DEVICES, or
    else from the driver, which also gives their memory.

    Raises:
        UsageError: This system is not Linux.
    """
    if sys.platform != "linux":
        raise UsageError(LINUX_ONLY)
    total, gpus, cores = total_bytes(), Gpus(), cpus()
    names, groups = gpus.names, near(cores, NODES)
    beside = {name: set(cpu_list(gpus.cores_near(name))) for name in names} if groups else {}
    return Capacity(
        cpus=cores,
        gpus=names,
        memory_bytes=total,
        gpu_memory_bytes=gpus.total_bytes(names),
        near=groups,
        gpus_near=tuple(
            tuple(gpu for gpu, close in beside.items() if close.intersection(group))
            for group in groups
        ),
        memory_taken_bytes=max(0, total - free_bytes()[0]),
    )


def share(machine: Capacity, index: int, count: int) -> Capacity:
    """Return the part of one of `count` workers that share a machine evenly.

    >>> mine = share(Capacity((0, 1), ("a", "b", "c"), 100, memory_taken_bytes=20), 0, 2)
    >>> mine.gpus, mine.memory_bytes, mine.memory_taken_bytes
    (('a', 'c'), 50, 10)
    """
    return replace(
        machine,
        gpus=machine.gpus[index::count],
        memory_bytes=machine.memory_bytes // count,
        memory_taken_bytes=machine.memory_taken_bytes // count,
    )


def near(cores: Iterable[int], nodes: Path = NODES) -> tuple[tuple[int, ...], ...]:
    """Return the groups of cores that share a NUMA node; empty if all cores do.

    Args:
        cores: The cores' ids.
        nodes: The kernel's directory of NUMA nodes.
    """
    mine = set(cores)
    listed = sorted(nodes.glob("node[0-9]*/cpulist"))
    found = [tuple(sorted(mine.intersection(cpu_list(read(each))))) for each in listed]
    groups = tuple(group for group in found if group)
    return groups if len(groups) > 1 else ()


def cpu_list(text: str) -> list[int]:
    """Return the cores in a list of the kernel's.

    >>> cpu_list("0-2,8,10-11"), cpu_list("")
    ([0, 1, 2, 8, 10, 11], [])
    """
    found = list[int]()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first.isdecimal():
            found += range(int(first), int(last or first) + 1)
    return found


def cpus() -> tuple[int, ...]:
    """Return the ids of the CPU cores that this process may use; at least one.

    They follow from the affinity mask, the control group's quota, and what Slurm granted on this
    node: not every cluster confines its jobs.
    """
    allowed = tuple(sorted(os.sched_getaffinity(0)))
    limits = [limit for limit in (_cpu_quota(), _cpus_of_slurm()) if limit is not None]
    return some_of(allowed, max(1, int(min(limits)))) if limits else allowed


def some_of(cores: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return a number of the cores, others for each node and job.

    Containers and jobs on one machine see all of its cores, and must not all use the first ones.
    """
    first = zlib.crc32((node() + batch_job(os.environ)).encode()) % len(cores)
    return tuple(sorted([*cores[first:], *cores[:first]][:count]))


def _cpu_quota() -> float | None:
    quotas = []
    for directory in control_groups("cpu"):
        text = read(directory / "cpu.max")
        if text and not text.startswith("max"):
            quota, period = text.split()[:2]
            quotas.append(int(quota) / int(period))
        text = read(directory / "cpu.cfs_quota_us")
        if text and int(text) > 0:
            quotas.append(int(text) / int(read(directory / "cpu.cfs_period_us") or 100_000))
    return min(quotas, default=None)


def _cpus_of_slurm() -> int | None:
    return number(os.environ.get("SLURM_CPUS_ON_NODE")) if is_slurm_job() else None


def is_slurm_job() -> bool:
    """Return whether this process belongs to a Slurm job."""
    return "SLURM_JOB_ID" in os.environ


def batch_job(environment: Mapping[str, str]) -> str:
    """Return the id of the job of any batch system that an environment is of; empty if none."""
    return next((environment[each] for each in _JOB_IDS if each in environment), "")


def ends_at() -> float | None:
    """Return when this process's job ends, in seconds since the epoch; None if unknown.

    hptune's job scripts and `set_walltime` set HPTUNE_WORKER_ENDS_AT; Slurm (from release 23.02)
    sets SLURM_JOB_END_TIME.
    """
    for name in (_ENDS_AT, "SLURM_JOB_END_TIME"):
        if (end := number(os.environ.get(name))) is not None:
            return float(end)
    return None


def set_walltime(seconds: float | None) -> None:
    """Set when this process's job ends, for this process and what it starts.

    Args:
        seconds: How long the job may run from now on; None for what its script, or else its batch
            system says.
    """
    if seconds is None and not os.environ.get(_ENDS_AT):
        end, known = ends_at(), [(name, os.environ.get(name, "")) for name in _WALLTIMES]
        found = next((each for each in known if each[1].isdecimal()), None)
        if end is None and found is not None:  # a job may do much before its worker begins
            end = time.time() - seconds_since_first("=".join(found)) + int(found[1])
        seconds = None if end is None else end - time.time()
    if seconds is not None:
        os.environ[_ENDS_AT] = f"{time.time() + seconds:.0f}"
        os.environ[_NOTICE] = f"{notice_seconds(seconds):.0f}"


def notice_seconds(walltime_seconds: float) -> float:
    """Return how long before its end a worker leaves a job of this length.

    >>> notice_seconds(3600.0), notice_seconds(60.0)
    (120.0, 15.0)
    """
    return min(_NOTICE_SECONDS, walltime_seconds / 4)


def leaves_at() -> float | None:
    """Return when this process must leave its job, in seconds since the epoch; None if unknown.

    Slurm may tell it up to a minute earlier, because it looks at its jobs that seldom.
    """
    end, notice = ends_at(), os.environ.get(_NOTICE, "")
    return end if end is None or not notice.isdecimal() else end - int(notice)


def joined(worker: str, has: Capacity) -> WorkerJoined:
    """Return that a worker of this process joined, with what is known of its job."""
    return WorkerJoined(0.0, worker, node(), has, ends_at=leaves_at(), gang=gang())


def gpus_of_job() -> int:
    """Return how many GPUs the job of this worker asked for on its node; 0 if unknown."""
    return number(os.environ.get("HPTUNE_WORKER_GPUS")) or 0


def gang() -> str:
    """Return the name of the group of workers that started together; empty for a single one."""
    return os.environ.get("HPTUNE_WORKER_GANG", "")


def node() -> str:
    """Return this machine's name."""
    return os.environ.get("SLURMD_NODENAME") or socket.gethostname()
