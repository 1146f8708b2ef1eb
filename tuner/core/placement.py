"""Who runs where: free cores and devices on one side, what an attempt asks for on the other."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from .resources import Capacity, Placement, Resources


@dataclass(slots=True)
class _Worker:
    """What a worker has, and what of it is free."""

    number: int
    node: str
    capacity: Capacity
    cpus: list[int]
    gpus: list[str]
    memory_bytes: int
    is_listed: bool = False
    is_retired: bool = False

    def rooms(self, wanted: Resources) -> int:
        """How many attempts of this size fit into what is free."""
        if self.is_retired:
            return 0
        rooms = len(self.cpus) // wanted.cpus
        gpus = self.gpus_for(wanted)
        if gpus:
            rooms = min(rooms, len(self.gpus) // gpus)
        if wanted.memory_bytes and self.capacity.memory_bytes:
            rooms = min(rooms, self.memory_bytes // wanted.memory_bytes)
        return rooms

    def gpus_for(self, wanted: Resources) -> int:
        if wanted.gpus is None:
            return 1 if self.capacity.gpus else 0
        return wanted.gpus


class Places:
    """The workers and what is free on them.

    Attempts go to the worker that joined first and has room, so that workers which came for a
    peak are the ones that fall idle after it.

    Worked example: two workers, of three cores and of two, and attempts of two cores::

        >>> places = Places(Resources(cpus=2))
        >>> places.add("a", "n1", Capacity(cpus=(0, 1, 2)))
        >>> places.add("b", "n2", Capacity(cpus=(0, 1)))
        >>> places.rooms(10)
        2
        >>> first = places.take()
        >>> first
        Placement(worker='a', cpus=(0, 1), gpus=(), memory_bytes=0)
        >>> places.take().worker
        'b'
        >>> places.take() is None
        True
        >>> places.give_back(first)
        >>> places.take().worker
        'a'

    Args:
        wanted: What every attempt asks for.
    """

    def __init__(self, wanted: Resources) -> None:
        self._wanted = wanted
        self._workers: dict[str, _Worker] = {}
        self._joins = 0
        # A heap of (how-manieth to join, name) of those with room, so that a full cluster of
        # thousands costs nothing here. Entries that are out of date go when they are met.
        self._with_room: list[tuple[int, str]] = []
        self.cpus = 0
        self.cpus_held = 0
        self.gpus = 0
        self.gpus_held = 0

    def __contains__(self, worker: str) -> bool:
        return worker in self._workers

    def __len__(self) -> int:
        return len(self._workers)

    def node(self, worker: str) -> str:
        """The machine that the worker runs on."""
        return self._workers[worker].node

    def add(self, worker: str, node: str, capacity: Capacity) -> None:
        """A worker joined; all that it has is free."""
        self._workers[worker] = record = _empty(self._joins, node, capacity)
        self._joins += 1
        self.cpus += len(capacity.cpus)
        self.gpus += len(capacity.gpus)
        self._list(worker, record)

    def retire(self, worker: str) -> None:
        """A worker is about to leave: what is free on it is not given away any more."""
        if record := self._workers.get(worker):
            record.is_retired = True

    def remove(self, worker: str) -> None:
        """A worker left; what was held on it is gone with it."""
        record = self._workers.pop(worker)
        self.cpus -= len(record.capacity.cpus)
        self.gpus -= len(record.capacity.gpus)
        self.cpus_held -= len(record.capacity.cpus) - len(record.cpus)
        self.gpus_held -= len(record.capacity.gpus) - len(record.gpus)

    def rooms(self, at_most: int) -> int:
        """How many more attempts fit now; counting stops at `at_most`."""
        found = 0
        for number, name in self._with_room:
            if found >= at_most:
                break
            record = self._workers.get(name)
            if record is not None and record.number == number:
                found += record.rooms(self._wanted)
        return min(found, at_most)

    def could_ever_hold_one(self) -> bool:
        """Whether some worker, were it empty, could hold an attempt."""
        return any(
            _empty(record.number, record.node, record.capacity).rooms(self._wanted)
            for record in self._workers.values()
        )

    def take(self) -> Placement | None:
        """Hold room for one attempt; None if there is none at present."""
        wanted = self._wanted
        while self._with_room:
            number, name = self._with_room[0]
            record = self._workers.get(name)
            if record is None or record.number != number or not record.rooms(wanted):
                heapq.heappop(self._with_room)
                if record is not None and record.number == number:
                    record.is_listed = False
                continue
            gpus = record.gpus_for(wanted)
            held_cpus, record.cpus = record.cpus[: wanted.cpus], record.cpus[wanted.cpus :]
            held_gpus, record.gpus = record.gpus[:gpus], record.gpus[gpus:]
            record.memory_bytes -= wanted.memory_bytes
            self.cpus_held += len(held_cpus)
            self.gpus_held += gpus
            return Placement(name, tuple(held_cpus), tuple(held_gpus), wanted.memory_bytes)
        return None

    def give_back(self, placement: Placement) -> None:
        """An attempt ended; what it held is free again, unless its worker left."""
        record = self._workers.get(placement.worker)
        if record is None:
            return
        record.cpus = sorted([*record.cpus, *placement.cpus])
        record.gpus = [g for g in record.capacity.gpus if g in {*record.gpus, *placement.gpus}]
        record.memory_bytes += placement.memory_bytes
        self.cpus_held -= len(placement.cpus)
        self.gpus_held -= len(placement.gpus)
        self._list(placement.worker, record)

    def _list(self, worker: str, record: _Worker) -> None:
        if not record.is_listed and record.rooms(self._wanted):
            record.is_listed = True
            heapq.heappush(self._with_room, (record.number, worker))

    def validate(self, held: list[Placement]) -> None:
        """Check that exactly these placements are held, and nothing twice.

        Raises:
            AssertionError: The books do not balance.
        """
        listed = set(self._with_room)
        for name, record in self._workers.items():
            here = [placement for placement in held if placement.worker == name]
            cpus = sorted([*record.cpus, *(cpu for p in here for cpu in p.cpus)])
            gpus = sorted([*record.gpus, *(gpu for p in here for gpu in p.gpus)])
            if cpus != sorted(record.capacity.cpus) or gpus != sorted(record.capacity.gpus):
                raise AssertionError(f"{name}: cores {cpus}, GPUs {gpus} do not add up")
            memory_bytes = record.memory_bytes + sum(p.memory_bytes for p in here)
            if memory_bytes != record.capacity.memory_bytes:
                raise AssertionError(f"{name}: memory of {memory_bytes} bytes does not add up")
            if record.rooms(self._wanted) and (record.number, name) not in listed:
                raise AssertionError(f"{name} has room and is not listed")
        if self.cpus_held != sum(len(p.cpus) for p in held if p.worker in self._workers):
            raise AssertionError(f"{self.cpus_held} cores counted as held")
        if self.gpus_held != sum(len(p.gpus) for p in held if p.worker in self._workers):
            raise AssertionError(f"{self.gpus_held} GPUs counted as held")


def _empty(number: int, node: str, capacity: Capacity) -> _Worker:
    return _Worker(
        number=number,
        node=node,
        capacity=capacity,
        cpus=list(capacity.cpus),
        gpus=list(capacity.gpus),
        memory_bytes=capacity.memory_bytes,
    )
