"""Who runs where: free cores and devices on one side, what an attempt asks for on the other."""

from __future__ import annotations

from dataclasses import dataclass

from .resources import Capacity, Placement, Resources


@dataclass(slots=True)
class _Worker:
    """What a worker has, and what of it is free."""

    node: str
    capacity: Capacity
    cpus: list[int]
    gpus: list[str]
    memory_bytes: int

    def rooms(self, wanted: Resources) -> int:
        """How many attempts of this size fit into what is free."""
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

    Worked example: two workers of two cores each, attempts of one core::

        >>> places = Places()
        >>> places.add("a", "n1", Capacity(cpus=(0, 1)))
        >>> places.add("b", "n2", Capacity(cpus=(0, 1)))
        >>> one = Resources(cpus=1)
        >>> places.rooms(one, at_most=10)
        4
        >>> places.take(one)
        Placement(worker='a', cpus=(0,), gpus=(), memory_bytes=0)
        >>> places.take(Resources(cpus=2)).worker
        'b'
        >>> places.rooms(one, at_most=10)
        1
        >>> places.could_ever_hold(Resources(cpus=3))
        False
    """

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        # Only workers with a free core, so that a full cluster of thousands costs nothing here.
        self._with_room: dict[str, _Worker] = {}
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

    def capacity(self, worker: str) -> Capacity:
        """What the worker has in all."""
        return self._workers[worker].capacity

    def add(self, worker: str, node: str, capacity: Capacity) -> None:
        """A worker joined; all that it has is free."""
        record = _Worker(
            node, capacity, list(capacity.cpus), list(capacity.gpus), capacity.memory_bytes
        )
        self._workers[worker] = record
        self.cpus += len(capacity.cpus)
        self.gpus += len(capacity.gpus)
        if record.cpus:
            self._with_room[worker] = record

    def remove(self, worker: str) -> None:
        """A worker left; what was held on it is gone with it."""
        record = self._workers.pop(worker)
        self._with_room.pop(worker, None)
        self.cpus -= len(record.capacity.cpus)
        self.gpus -= len(record.capacity.gpus)
        self.cpus_held -= len(record.capacity.cpus) - len(record.cpus)
        self.gpus_held -= len(record.capacity.gpus) - len(record.gpus)

    def rooms(self, wanted: Resources, *, at_most: int) -> int:
        """How many more attempts of this size fit now; counting stops at `at_most`."""
        found = 0
        for record in self._with_room.values():
            if found >= at_most:
                break
            found += record.rooms(wanted)
        return min(found, at_most)

    def could_ever_hold(self, wanted: Resources) -> bool:
        """Whether some worker, were it empty, could hold one attempt of this size."""
        for record in self._workers.values():
            whole = record.capacity
            empty = _Worker(
                record.node, whole, list(whole.cpus), list(whole.gpus), whole.memory_bytes
            )
            if empty.rooms(wanted):
                return True
        return False

    def take(self, wanted: Resources) -> Placement | None:
        """Hold room for one attempt; None if there is none at present."""
        for name, record in self._with_room.items():
            if not record.rooms(wanted):
                continue
            gpus = record.gpus_for(wanted)
            held_cpus, record.cpus = record.cpus[: wanted.cpus], record.cpus[wanted.cpus :]
            held_gpus, record.gpus = record.gpus[:gpus], record.gpus[gpus:]
            record.memory_bytes -= wanted.memory_bytes
            self.cpus_held += len(held_cpus)
            self.gpus_held += gpus
            if not record.cpus:
                del self._with_room[name]
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
        self._with_room.setdefault(placement.worker, record)

    def validate(self, held: list[Placement]) -> None:
        """Check that exactly these placements are held, and nothing twice.

        Raises:
            AssertionError: The books do not balance.
        """
        for name, record in self._workers.items():
            here = [placement for placement in held if placement.worker == name]
            cpus = sorted([*record.cpus, *(cpu for p in here for cpu in p.cpus)])
            gpus = sorted([*record.gpus, *(gpu for p in here for gpu in p.gpus)])
            if cpus != sorted(record.capacity.cpus) or gpus != sorted(record.capacity.gpus):
                raise AssertionError(f"{name}: cores {cpus}, GPUs {gpus} do not add up")
            if bool(record.cpus) != (name in self._with_room):
                raise AssertionError(f"{name}: free cores {record.cpus}, listing says otherwise")
        if self.cpus_held != sum(len(p.cpus) for p in held if p.worker in self._workers):
            raise AssertionError(f"{self.cpus_held} cores counted as held")
