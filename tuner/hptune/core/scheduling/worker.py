"""One worker: what it has, and what of it is free."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, replace

from ..resources import Amount, Capacity, Placement, Resources
from .device_pool import WHOLE, DevicePool, parts_of

MOST_ON_A_GPU = 8
"""Attempts that share a GPU at most, however little memory they need."""

_ROUNDING = 1e-3
"""The part of a core by which sums of parts of GPUs may be wrong."""

Amounts = tuple[float, float, float, float, float]
"""What is free on a worker, or what an attempt needs there: cores, GPUs, GPUs where there are any,
bytes of memory, and the time until which the worker stays."""


@dataclass(slots=True)
class WorkerState:
    """A worker: what it has, and what of it is free.

    Attributes:
        name: Its name.
        node: The machine that it runs on.
        capacity: What it has.
        ends_at: When it must leave, in seconds since the epoch.
        cpus: Its cores.
        gpus: Its GPUs.
        memory_bytes: The free memory; below 0 if attempts use more than they were given.
        total_bytes: The memory for attempts; 0 if unknown.
        taken_bytes: The part of it that other programs held at the last measurement. It counts
            only while attempts run there, since only those measure it again.
        attempts: The number of attempts that run there.
        cpus_held: The cores that they hold, counted as they are in `ClusterState`.
        gpus_held: The GPUs that they hold.
        most_on_a_gpu: The number of attempts that may share a GPU if they ask for memory on it.
        gang: The name of the workers that it was granted together with; empty if by itself.
        is_leaving: Whether it is about to leave and takes no more attempts.
        takes_one: Whether it takes one attempt, and no more after it.
    """

    name: str
    node: str
    capacity: Capacity
    ends_at: float
    cpus: DevicePool[int]
    gpus: DevicePool[str]
    memory_bytes: int
    total_bytes: int
    most_on_a_gpu: int
    taken_bytes: int = 0
    attempts: int = 0
    cpus_held: float = 0.0
    gpus_held: float = 0.0
    gang: str = ""
    is_leaving: bool = False
    takes_one: bool = False

    def gpus_for(self, wanted: Resources) -> float:
        """Return how many of its GPUs, or what part of one, an attempt needs here."""
        amount = wanted.gpus
        if amount is None:
            amount = wanted.processes if len(self.gpus) else 0
        device_bytes = self.capacity.gpu_memory_bytes
        if amount == 1 and wanted.gpu_memory_bytes and device_bytes:
            part = max(1 / self.most_on_a_gpu, wanted.gpu_memory_bytes / device_bytes)
            amount = min(1, part)  # one that may need more than there is gets the whole GPU
        return amount if amount < 1 else int(amount)

    def cpus_for(self, wanted: Resources) -> float:
        """Return how many cores, or what part of one, an attempt gets here now."""
        gpus, most = self.gpus_for(wanted), self.cpus_when_empty(wanted)
        if not (wanted.takes_cores_of_gpus and gpus):
            return most
        # Others may hold cores and no GPU; attempts on the other GPUs get as much of the rest.
        free = int(self.cpus.whole * gpus / self.gpus.free + _ROUNDING)
        return max(wanted.cpus, min(most, free - free % wanted.processes))

    def cpus_when_empty(self, wanted: Resources) -> float:
        """Return how many cores, or what part of one, an attempt gets if nothing else runs here."""
        gpus = self.gpus_for(wanted)
        if not (wanted.takes_cores_of_gpus and gpus):
            return wanted.cpus
        cores = self._cores_of(gpus)
        return max(wanted.cpus, cores - cores % wanted.processes)

    def _cores_of(self, gpus: float) -> int:
        """Return the part of its cores that falls to some of its GPUs."""
        return int(len(self.cpus) * gpus / len(self.gpus) + _ROUNDING)

    def free_slots(self, wanted: Resources) -> int:
        """Return how many attempts of this size fit now."""
        free_slots = self._slots(wanted, self.cpus, self.gpus, self.free_bytes)
        if self.attempts == 0 and self.taken_bytes and wanted.memory_bytes:
            free_slots = min(free_slots, 1)  # other programs may leave no memory for more
        return free_slots

    def slots_when_empty(self, wanted: Resources) -> int:
        """Return how many attempts of this size fit if nothing else runs there."""
        cpus, gpus = DevicePool(self.capacity.cpus), DevicePool(self.capacity.gpus)
        return self._slots(wanted, cpus, gpus, self.total_bytes)

    def _slots(
        self, wanted: Resources, cpus: DevicePool[int], gpus: DevicePool[str], memory_bytes: int
    ) -> int:
        if self.capacity.memory_bytes and memory_bytes < wanted.memory_bytes:
            return 0  # also for an attempt that asks for none, if free memory is below 0
        free_slots = cpus.free_slots(wanted.cpus)
        amount = self.gpus_for(wanted)
        if amount and free_slots:
            free_slots = min(free_slots, gpus.free_slots(amount))
        if self.capacity.memory_bytes and wanted.memory_bytes:
            free_slots = min(free_slots, memory_bytes // wanted.memory_bytes)
        return min(free_slots, 1) if self.takes_one else free_slots

    @property
    def free_bytes(self) -> int:
        """The memory that can be given to attempts now."""
        return self.memory_bytes - (self.taken_bytes if self.attempts else 0)

    def take(self, wanted: Resources, spread: Collection[Amount] = ()) -> Placement:
        """Hold a place for one attempt, for which there must be room, and return it.

        Args:
            wanted: What the attempt asks for, or what its processes on one node do.
            spread: The kinds of devices whose parts are taken from the emptiest device.
        """
        amount = self.gpus_for(wanted)
        wanted = replace(wanted, cpus=self.cpus_for(wanted))
        gpus = self.gpus.take(amount, spread=Amount.GPUS in spread) if amount else ()
        cpus = None if gpus is None else self._take_cores(wanted, gpus, spread)
        if cpus is None or gpus is None:
            raise AssertionError(f"{self.name} has no room for {wanted}")
        memory_bytes = wanted.memory_bytes if self.capacity.memory_bytes else 0
        memory_bytes -= memory_bytes % wanted.processes  # each process holds as much
        self.memory_bytes -= memory_bytes
        self.attempts += 1
        if wanted.processes > 1:
            return _ranks(self.name, cpus, gpus, wanted=wanted, memory_bytes=memory_bytes)
        is_part = 0 < amount < 1
        return Placement(
            self.name,
            tuple(cpus),
            tuple(gpus),
            memory_bytes,
            gpu_share=amount if is_part else 1.0,
            gpu_memory_bytes=int(amount * self.capacity.gpu_memory_bytes) if is_part else 0,
            cpu_share=wanted.cpus if wanted.cpus < 1 else 1.0,
            floats_on=self.capacity.cpus if wanted.cpus < 1 else (),
        )

    def _take_cores(
        self, wanted: Resources, gpus: tuple[str, ...], spread: Collection[Amount]
    ) -> tuple[int, ...] | None:
        """Hold cores, near the GPUs of each process if it is known which ones are."""
        groups = list(zip(self.capacity.near, self.capacity.gpus_near, strict=False))
        if not groups or not gpus or wanted.cpus < 1:
            return self.cpus.take(wanted.cpus, spread=Amount.CPUS in spread)
        count = wanted.processes
        each, cores = len(gpus) // count, list[int]()
        for rank in range(count):
            own = set(gpus[rank * each : (rank + 1) * each])
            near = {core for group, close in groups if own & {*close} for core in group}
            cores += self.cpus.take(wanted.cpus // count, near=near) or ()
        return tuple(cores)

    def resize(self, before: Placement, wanted: Resources) -> Placement:
        """Change what an attempt holds, and return it (see `ClusterState.resize`)."""
        amount, cpu_share, gpu_share = self.gpus_for(wanted), before.cpu_share, before.gpu_share
        cpus = before.cpus
        if before.gpus:  # others need the rest
            most = self._cores_of(amount) if wanted.takes_cores_of_gpus else wanted.cpus
            cpus = cpus[: max(1, int(most))]
        if len(cpus) == 1 and wanted.cpus < cpu_share:
            cpu_share = wanted.cpus
        gpu_bytes = before.gpu_memory_bytes
        if len(before.gpus) == 1 and 0 < amount < gpu_share:
            gpu_share, gpu_bytes = amount, int(amount * self.capacity.gpu_memory_bytes)
        after = replace(
            before,
            cpus=cpus,
            memory_bytes=wanted.memory_bytes if self.capacity.memory_bytes else 0,
            cpu_share=cpu_share,
            gpu_share=gpu_share,
            gpu_memory_bytes=gpu_bytes,
        )
        self.give_back(before)
        self.attempts += 1
        self.cpus.hold(after.cpus, after.cpu_share)
        self.gpus.hold(after.gpus, after.gpu_share)
        self.memory_bytes -= after.memory_bytes
        return after

    def give_back(self, *ranks: Placement) -> None:
        """Free what the processes of one attempt held here."""
        for rank in ranks:
            self.cpus.give_back(rank.cpus, rank.cpu_share)
            self.gpus.give_back(rank.gpus, rank.gpu_share)
            self.memory_bytes += rank.memory_bytes
        self.attempts -= 1

    @property
    def amounts(self) -> Amounts:
        """What is free."""
        return self._amounts(self.cpus.most, self.gpus.most, self.free_bytes)

    @property
    def amounts_when_empty(self) -> Amounts:
        """What is free if nothing runs there."""
        return self._amounts(len(self.cpus), len(self.gpus), self.total_bytes)

    def _amounts(self, cpus: float, gpus: float, memory_bytes: int) -> Amounts:
        return (
            cpus,
            gpus,
            gpus if self.capacity.gpus else math.inf,
            memory_bytes if self.capacity.memory_bytes else math.inf,
            self.ends_at,
        )


def _ranks(
    worker: str,
    cpus: tuple[int, ...],
    gpus: tuple[str, ...],
    *,
    wanted: Resources,
    memory_bytes: int,
) -> Placement:
    """Divide what an attempt holds on a worker equally among its processes there."""
    count = wanted.processes
    cores, devices = len(cpus) // count, len(gpus) // count
    first, *others = (
        Placement(
            worker,
            cpus[rank * cores : (rank + 1) * cores],
            gpus[rank * devices : (rank + 1) * devices],
            memory_bytes // count,
        )
        for rank in range(count)
    )
    return replace(first, peers=tuple(others))


def minimum_free(wanted: Resources, until: float) -> Amounts:
    """Return the least that a worker must have free.

    This may not be enough: `WorkerState.free_slots` decides.
    """
    gpus = wanted.gpus
    one = float(wanted.processes) if gpus is None else gpus
    if one == 1 and wanted.gpu_memory_bytes:
        one = 1e-6  # some part of one, by its memory
    return (
        wanted.cpus if wanted.cpus >= 1 else parts_of(wanted.cpus) / WHOLE,
        0.0 if gpus is None else one,
        one if gpus is None else 0.0,
        wanted.memory_bytes,
        until,
    )


def parted(least: Amounts, spread: Collection[Amount]) -> list[int]:
    """Return which of these amounts are parts of devices that are spread."""
    kinds = (Amount.CPUS, Amount.GPUS, Amount.GPUS)
    return [i for i, kind in enumerate(kinds) if kind in spread and 0 < least[i] < 1]
