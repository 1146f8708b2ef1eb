"""The division of a machine's cores among workers, and the resources of a trial."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..config.asked import Asked
from ..config.kinds import AUTO
from ..config.settings import StudySettings
from ..core.budget import Device
from ..core.resources import Amount, Capacity, Resources, size
from ..core.scheduling.cluster import ClusterState
from ..errors import UsageError
from ..registry import shown_name
from ..text import plural

UNREAD = object()
"""Stands for the model file's RESOURCES before it is known."""


@dataclass(frozen=True, slots=True)
class WorkerLayout:
    """Division of a machine's cores among workers.

    Attributes:
        cores: The core ids of each worker.
        resources: What a trial holds.
        measured: The amounts left unspecified; measured usage decides them.
        gpus: The number of GPUs that all workers share out.
        memory_bytes: The memory that they share out; 0 if unknown.
    """

    cores: list[tuple[int, ...]]
    resources: Resources
    measured: tuple[Amount, ...] = ()
    gpus: int = 0
    memory_bytes: int = 0

    @property
    def at_once(self) -> int:
        """How many trials the workers can hold at once."""
        count, gpus = len(self.cores), tuple(map(str, range(self.gpus)))
        shares = (Capacity(cpus, gpus[i::count], self.memory_bytes // count)
                  for i, cpus in enumerate(self.cores))  # fmt: skip
        return fitting(self.resources, shares)

    @property
    def usual(self) -> Resources:
        """What a trial gets here, with the GPUs and cores that `resources` leaves to the worker."""
        resources = self.resources
        if resources.gpus is None and self.gpus:
            resources = replace(resources, gpus=resources.processes)
        if resources.gpus and resources.takes_cores_of_gpus:
            share = int(sum(map(len, self.cores)) * resources.gpus / self.gpus)
            share -= share % resources.processes
            resources = replace(resources, cpus=max(resources.cpus, share))
        return resources

    def without_sharing(self) -> WorkerLayout:
        """Return the layout in which trials share no device: only their memory is measured."""
        measured = tuple(each for each in self.measured if each is Amount.MEMORY)
        return replace(self, measured=measured)


def checked_trial(
    asked: Asked,
    constants: Mapping[str, object],
    machine: Capacity,
    *,
    is_certain: bool = True,
) -> Resources:
    """Return what a trial holds, after checking that workers can have it.

    Args:
        asked: What the user asked for.
        constants: The model file's constants; RESOURCES applies where the settings say nothing,
            and is `UNREAD` before the file is read.
        machine: What the machine has.
        is_certain: Whether no worker can ever have more, so that asking for more is an error.

    Raises:
        UsageError: A trial asks for more than a worker has, or the budget counts a device that
            trials do not hold.
    """
    settings, declared = asked.settings, constants.get("RESOURCES")
    if (settings.workers or 1) > (most := _MOST_WORKERS_PER_CORE * len(machine.cpus)):
        raise UsageError(
            f"--workers is {settings.workers}, but this machine has "
            f"{plural(len(machine.cpus), 'core')}; allowed are at most {most}, which is "
            f"{_MOST_WORKERS_PER_CORE} for each"
        )
    resources = trial_resources(asked, declared, machine, is_certain=is_certain)
    budget = settings.device_budget
    if budget is not None and budget.device is Device.GPU:
        holds_none = resources.gpus == 0 or (is_certain and not machine.gpus)
        if holds_none:
            raise UsageError(
                f"--budget is {settings.budget}, but trials hold no GPU here, so it would never be "
                "spent; give a budget in core hours, such as 40core-h"
            )
    if resources.cpus < 1 and not asked.executor.shares_workers:
        raise UsageError(
            f"a trial asks for {resources.cpus:g} of a core, but the workers of --executor "
            f"{shown_name(settings.executor)} have whole ones; ask for 1, or leave the executor out"
        )
    return resources


def resolve_layout(
    asked: Asked,
    constants: Mapping[str, object],
    machine: Capacity,
    *,
    is_certain: bool = True,
) -> WorkerLayout:
    """Divide a machine's cores among workers.

    Without `workers`, one worker has all cores and trials of one core fill it. With `workers`
    alone, each worker runs one trial at a time with its share of the cores. The arguments and the
    errors are those of `checked_trial`.
    """
    resources = checked_trial(asked, constants, machine, is_certain=is_certain)
    settings, executor = asked.settings, asked.executor
    cores = worker_cores(settings.workers, machine.cpus)
    if not executor.shares_workers:
        cores = _of_one_trial_each(resources, machine, [core for each in cores for core in each])
    is_packed = (
        settings.pack != "off"
        and executor.shares_workers
        and resources.processes == 1
        and not settings.chooses_split
    )
    measured = _measured(settings, constants.get("RESOURCES")) if is_packed else ()
    return WorkerLayout(cores, resources, measured, len(machine.gpus), machine.memory_bytes)


_MOST_WORKERS_PER_CORE = 8
"""Workers that wait for something else than a core may share one; each takes 100 MB of memory."""


def _of_one_trial_each(
    resources: Resources, machine: Capacity, cores: Sequence[int]
) -> list[tuple[int, ...]]:
    """Return the cores of workers that hold one trial each.

    The workers divide the machine's GPUs and memory equally, so there are as many as all of them
    have enough.

    >>> machine = Capacity((0, 1, 2, 3), ("A", "B", "C"))
    >>> _of_one_trial_each(Resources(cpus=1, gpus=2), machine, machine.cpus)
    [(0,)]
    >>> _of_one_trial_each(Resources(gpus=1), machine, machine.cpus)
    [(0,), (1,), (2,)]
    >>> _of_one_trial_each(Resources(gpus=2), machine, machine.cpus)
    [(0, 1, 2, 3)]
    """
    cpus = int(resources.cpus)
    gpus = resources.processes if resources.gpus is None else resources.gpus
    counts = [len(cores) // cpus]
    if gpus and machine.gpus:
        counts.append(len(machine.gpus) // math.ceil(gpus))
        if resources.takes_cores_of_gpus and counts[-1]:
            cpus = max(cpus, len(cores) // counts[-1])
    if resources.memory_bytes and machine.memory_bytes:
        counts.append(machine.memory_bytes // resources.memory_bytes)
    return [tuple(cores[i * cpus : (i + 1) * cpus]) for i in range(min(counts))]


def fitting(resources: Resources, workers: Iterable[Capacity]) -> int:
    """Return how many trials workers can hold at once.

    >>> fitting(Resources(cpus=2), [Capacity((0, 1, 2, 3, 4)), Capacity((0, 1, 2))])
    3
    >>> fitting(Resources(cpus=2, nodes=2), [Capacity((0, 1, 2, 3)), Capacity((0, 1))])
    3
    """
    state = ClusterState()
    for number, has in enumerate(workers):
        state.add(str(number), "", has)
    return sum(state.slots_when_empty(each, resources) for each in state) // resources.nodes


def _measured(settings: StudySettings, declared: object) -> tuple[Amount, ...]:
    """Return the amounts that neither the settings nor the model file specifies."""
    file = declared if isinstance(declared, Mapping) else {}
    unspecified = {
        Amount.CPUS: not (settings.cpus_per_trial or settings.workers or _declared_cpus(file)),
        Amount.GPUS: settings.fixed_gpus is None
        and file.get("gpus") is None
        and not file.get("gpu_memory_bytes"),
        Amount.MEMORY: not (settings.memory_per_trial_bytes or file.get("memory_bytes")),
    }
    return tuple(amount for amount in Amount if unspecified[amount])


def trial_resources(
    asked: Asked, declared: object, machine: Capacity, *, is_certain: bool = True
) -> Resources:
    """Return what a trial holds.

    Args:
        asked: What the user asked for.
        declared: The model file's RESOURCES, which applies where the settings say nothing: a
            mapping of the fields of `Resources`, or anything else for nothing.
        machine: What the machine has.
        is_certain: As for `resolve_layout`.

    Raises:
        UsageError: It asks for more than a worker has, an amount is invalid, or its amounts cannot
            be divided among its processes.
    """
    settings = asked.settings
    file = _checked(declared) if isinstance(declared, Mapping) else {}
    if settings.chooses_split:
        file = _on_one_device(file, keeps_to_cores=settings.gpus_per_trial != AUTO)
    nodes = settings.nodes_per_trial or file.get("nodes") or 1
    processes = settings.fixed_processes or max(nodes, file.get("processes") or 1)
    whole = len(worker_cores(settings.workers, machine.cpus)[0])
    fills_worker = settings.workers and not settings.chooses_split
    filling = max(1, whole // processes) * processes if fills_worker else 0
    declared_cpus = _declared_cpus(file)
    if declared_cpus == 1 < processes:  # what a plain trial has
        declared_cpus = 0
    try:
        resources = Resources(
            settings.cpus_per_trial or declared_cpus or filling,
            file.get("gpus") if settings.fixed_gpus is None else settings.fixed_gpus,
            settings.memory_per_trial_bytes or file.get("memory_bytes") or 0,
            file.get("gpu_memory_bytes") or 0,
            processes=processes,
            nodes=nodes,
        )
    except ValueError as error:
        raise UsageError(f"of a trial, {error}") from error
    _check_fits(resources, asked, machine, is_certain=is_certain)
    is_read = declared is not UNREAD  # RESOURCES may say that a trial has no GPU
    if is_read and is_certain and resources.gpus is None:
        _check_gpus_of_processes(resources, machine)
    return resources


def _declared_cpus(file: Mapping[str, Any]) -> float:
    """Return the cores that the model file's RESOURCES names; 0 if it does not."""
    return 0 if file.get(_CPUS_LEFT_OPEN) else file.get("cpus") or 0


def _check_fits(wanted: Resources, asked: Asked, machine: Capacity, *, is_certain: bool) -> None:
    settings = asked.settings
    if is_certain and wanted.nodes > 1:
        raise UsageError(
            f"a trial asks for {wanted.nodes} nodes, but all workers are on this machine; use "
            "those of other nodes by --slurm or --connect, or ask for one node"
        )
    cores = worker_cores(settings.workers, machine.cpus)
    if wanted.cpus > len(cores[0]):
        of_each = f", and each of {len(cores)} workers {len(cores[0])}" if len(cores) > 1 else ""
        raise UsageError(
            f"a trial asks for {wanted.cpus:g} cores, but this machine has {len(machine.cpus)}"
            f"{of_each}; ask for fewer cores{' or fewer workers' if of_each else ''}"
        )
    if not is_certain:
        return
    if settings.gpus_per_trial == AUTO and not machine.gpus:
        raise UsageError(
            "--gpus-per-trial is auto, but this machine has no GPU (`hptune doctor` says where it "
            "looks); --processes-per-trial auto divides its cores"
        )
    shares = len(cores) if asked.executor.shares_workers else 1
    most = -(-len(machine.gpus) // shares)
    if wanted.gpus and wanted.gpus > most:
        found = ", ".join(machine.gpus) or "none"
        of_each = f"; each of {shares} workers gets {most}" if most < len(machine.gpus) else ""
        raise UsageError(
            f"a trial asks for {wanted.gpus:g} GPU{'s' * (wanted.gpus != 1)}, but this machine's "
            f"are: {found} (`hptune doctor` says where it looks){of_each}; ask for fewer"
            f"{' or fewer workers' if of_each else ''}"
        )
    memory = machine.memory_bytes // shares
    if memory and wanted.memory_bytes > memory:
        whose = "this machine" if shares == 1 else f"each of {shares} workers"
        raise UsageError(
            f"a trial asks for {size(wanted.memory_bytes)} of memory, but {whose} has "
            f"{size(memory)}; ask for less{' or fewer workers' * (shares > 1)}"
        )


def _check_gpus_of_processes(wanted: Resources, machine: Capacity) -> None:
    if 0 < len(machine.gpus) < wanted.processes:
        raise UsageError(
            f"each of a trial's {wanted.processes} processes takes a GPU where there are any, but "
            f"this machine's are: {', '.join(machine.gpus)}; ask for fewer processes, or train on "
            "cores: --gpus-per-trial 0"
        )


def _on_one_device(file: Mapping[str, Any], *, keeps_to_cores: bool) -> Mapping[str, Any]:
    """Return what RESOURCES says of a trial whose number of devices is not chosen yet.

    Args:
        file: The model file's RESOURCES.
        keeps_to_cores: Whether trials may do without the GPUs of their worker.
    """
    found = {"cpus": _declared_cpus(file), "memory_bytes": file.get("memory_bytes")}
    if found["cpus"] == file.get("processes"):  # one for each
        found["cpus"] = None
    return found | ({"gpus": 0} if keeps_to_cores and file.get("gpus") == 0 else {})


_CPUS_LEFT_OPEN = "takes_cores_of_gpus"
"""What `Resources` without `cpus` have."""

_IN_PARTS = {"cpus": "core", "gpus": "GPU"}
_LEAST = {
    "cpus": 1, "gpus": 0, "memory_bytes": 0, "gpu_memory_bytes": 0, "processes": 1, "nodes": 1,
}  # fmt: skip


def _checked(declared: Mapping[str, Any]) -> Mapping[str, Any]:
    unknown = set(declared) - set(_LEAST) - {_CPUS_LEFT_OPEN}
    if unknown:
        raise UsageError(
            f"RESOURCES has {', '.join(sorted(unknown))}; allowed are {', '.join(_LEAST)}"
        )
    # Whole amounts may be written as 4e9.
    found = {n: int(v) if type(v) is float and v.is_integer() else v for n, v in declared.items()}
    for name, least in _LEAST.items():
        value = found.get(name)
        is_part = name in _IN_PARTS and type(value) is float and 0 < value < 1
        if value is not None and not is_part and (type(value) is not int or value < least):
            raise UsageError(
                f"RESOURCES says {name} is {value!r}; allowed are whole numbers from {least} on"
                + (f" and parts of one {_IN_PARTS[name]}, such as 0.5" if name in _IN_PARTS else "")
            )
    return found


def worker_cores(workers: int | None, machine: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the core ids of each worker; workers beyond the number of cores share cores.

    >>> worker_cores(None, [0, 1, 2]), worker_cores(2, [0, 1, 2, 3])
    ([(0, 1, 2)], [(0, 1), (2, 3)])
    """
    count = workers or 1
    share = len(machine) // count
    if share:
        return [tuple(machine[i * share : (i + 1) * share]) for i in range(count)]
    return [(machine[i % len(machine)],) for i in range(count)]
