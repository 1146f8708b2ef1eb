"""One worker: what it has, and what of it is free."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

from ..resources import Amount, Capacity, Placement, Resources
from .device_pool import WHOLE, DevicePool, parts_of
from .first_fit import Amounts

MOST_ON_A_GPU = 8
"""So many attempts share a GPU at most, however little memory they need."""

WIDTH = 5
"""How many amounts there are to what is free, or is asked for."""


@dataclass(slots=True)
class WorkerState:
    """What a worker has, and what of it is free.

    Attributes:
        name: Its name.
        node: The machine that it runs on.
        capacity: What it has.
        ends_at: When it must leave, in seconds since the epoch.
        cpus: Its cores.
        gpus: Its GPUs.
        memory_bytes: What of its memory is free; below 0 where more is used than was given.
        total_bytes: What of its memory can be given; 0 if nobody knows.
        taken_bytes: How much of that others held when it was last told. It counts only while
            attempts run there, for only then it is told again.
        attempts: How many run there.
        most_on_a_gpu: So many share a GPU at most where they ask for memory on it.
        row: Where it stands among the others.
        is_retired: Whether it takes no more.
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
    row: int = -1
    is_retired: bool = False

    def gpus_for(self, wanted: Resources) -> float:
        """How many of its GPUs, or what part of one, that is here."""
        amount = wanted.gpus
        if amount is None:
            amount = 1 if len(self.gpus) else 0
        device_bytes = self.capacity.gpu_memory_bytes
        if amount == 1 and wanted.gpu_memory_bytes and device_bytes:
            part = max(1 / self.most_on_a_gpu, wanted.gpu_memory_bytes / device_bytes)
            amount = min(1, part)  # who may need more than there is has one for itself
        return amount if amount < 1 else int(amount)

    def rooms(self, wanted: Resources) -> int:
        """How many attempts of this size fit into what is free."""
        if self.is_retired:
            return 0
        rooms = self._rooms(wanted, self.cpus, self.gpus, self.free_bytes)
        if self.attempts == 0 and self.taken_bytes and wanted.memory_bytes:
            rooms = min(rooms, 1)  # for more there may be no room beside what others hold
        return rooms

    def rooms_when_empty(self, wanted: Resources) -> int:
        """How many attempts of this size it holds, were nothing else there."""
        pools = DevicePool(self.capacity.cpus), DevicePool(self.capacity.gpus)
        return self._rooms(wanted, *pools, self.total_bytes)

    def _rooms(
        self, wanted: Resources, cpus: DevicePool[int], gpus: DevicePool[str], memory_bytes: int
    ) -> int:
        if self.capacity.memory_bytes and memory_bytes < wanted.memory_bytes:
            return 0  # nor for one that asks for none, where others hold more than there is
        rooms = cpus.rooms(wanted.cpus)
        amount = self.gpus_for(wanted)
        if amount and rooms:
            rooms = min(rooms, gpus.rooms(amount))
        if self.capacity.memory_bytes and wanted.memory_bytes:
            rooms = min(rooms, memory_bytes // wanted.memory_bytes)
        return rooms

    @property
    def free_bytes(self) -> int:
        """What of its memory can be given now."""
        return self.memory_bytes - (self.taken_bytes if self.attempts else 0)

    def take(self, wanted: Resources, spread: Collection[Amount] = ()) -> Placement:
        """Hold room for one attempt; there must be some.

        Args:
            wanted: How much.
            spread: Of what a part comes from the emptiest device.
        """
        amount = self.gpus_for(wanted)
        cpus = self.cpus.take(wanted.cpus, spread=Amount.CPUS in spread)
        gpus = self.gpus.take(amount, spread=Amount.GPUS in spread) if amount else ()
        if cpus is None or gpus is None:
            raise AssertionError(f"{self.name} has no room for {wanted}")
        memory_bytes = wanted.memory_bytes if self.capacity.memory_bytes else 0
        self.memory_bytes -= memory_bytes
        self.attempts += 1
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

    def resize(self, before: Placement, wanted: Resources) -> Placement:
        """What an attempt holds that is found to need other amounts than it was given."""
        amount, cpu_share, gpu_share = self.gpus_for(wanted), before.cpu_share, before.gpu_share
        if len(before.cpus) == 1 and wanted.cpus < cpu_share:
            cpu_share = wanted.cpus
        gpu_bytes = before.gpu_memory_bytes
        if len(before.gpus) == 1 and 0 < amount < gpu_share:
            gpu_share, gpu_bytes = amount, int(amount * self.capacity.gpu_memory_bytes)
        after = replace(
            before,
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

    def give_back(self, placement: Placement) -> None:
        """What was held is free again."""
        self.cpus.give_back(placement.cpus, placement.cpu_share)
        self.gpus.give_back(placement.gpus, placement.gpu_share)
        self.memory_bytes += placement.memory_bytes
        self.attempts -= 1

    @property
    def amounts(self) -> Amounts:
        """What is free, as `asked_for` asks for it."""
        gpus = self.gpus.most
        return (
            self.cpus.most,
            gpus,
            gpus if self.capacity.gpus else 1.0,
            self.free_bytes if self.capacity.memory_bytes else math.inf,
            self.ends_at,
        )


def rather(wanted: Resources, until: float, spread: Collection[Amount]) -> Iterator[Amounts]:
    """What a worker had better have free, the best first, so that devices fill evenly.

    Where a part of a device is wanted, that is a whole one that is free, or else as much of one as
    can be. The last that is asked for is `asked_for`.

    Args:
        wanted: How much is wanted.
        until: The worker must not end before this, in seconds since the epoch.
        spread: Of what parts are to be spread.
    """
    cpus, gpus, if_any, memory, ends_at = least = asked_for(wanted, until)
    for eighths in range(8, 0, -1):
        level = eighths / 8
        better = (
            max(cpus, level) if Amount.CPUS in spread and cpus < 1 else cpus,
            max(gpus, level) if Amount.GPUS in spread and 0 < gpus < 1 else gpus,
            max(if_any, level) if Amount.GPUS in spread and 0 < if_any < 1 else if_any,
            memory,
            ends_at,
        )
        if better != least:
            yield better
    yield least


def asked_for(wanted: Resources, until: float) -> Amounts:
    """The least that a worker must have free; whether that is enough, it knows itself."""
    gpus = wanted.gpus
    one = 1.0 if gpus is None else gpus
    if one == 1 and wanted.gpu_memory_bytes:
        one = 1e-6  # some part of one, by its memory
    return (
        wanted.cpus if wanted.cpus >= 1 else parts_of(wanted.cpus) / WHOLE,
        0.0 if gpus is None else one,
        one if gpus is None else 0.0,
        wanted.memory_bytes,
        until,
    )
