"""Who runs where: free cores and devices on one side, what attempts ask for on the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .first_fit import Amounts, FirstFit
from .pools import WHOLE, Pool, parts_of
from .resources import Capacity, Placement, Resources

MOST_ON_A_GPU = 8
"""So many attempts share a GPU at most, however little memory they need."""

_FOR_EVER = math.inf
_WIDTH = 5


@dataclass(slots=True)
class _Worker:
    """What a worker has, and what of it is free."""

    name: str
    node: str
    capacity: Capacity
    ends_at: float
    cpus: Pool[int]
    gpus: Pool[str]
    memory_bytes: int
    row: int = -1
    is_retired: bool = False

    def gpus_for(self, wanted: Resources) -> float:
        amount = wanted.gpus
        if amount is None:
            amount = 1 if len(self.gpus) else 0
        device_bytes = self.capacity.gpu_memory_bytes
        if amount == 1 and wanted.gpu_memory_bytes and device_bytes:
            amount = max(1 / MOST_ON_A_GPU, wanted.gpu_memory_bytes / device_bytes)
        return amount if amount < 1 else int(amount)

    def rooms(self, wanted: Resources) -> int:
        """How many attempts of this size fit into what is free."""
        if self.is_retired:
            return 0
        rooms = self.cpus.rooms(wanted.cpus)
        gpus = self.gpus_for(wanted)
        if gpus and rooms:
            rooms = min(rooms, self.gpus.rooms(gpus))
        if wanted.memory_bytes and self.capacity.memory_bytes:
            rooms = min(rooms, self.memory_bytes // wanted.memory_bytes)
        return rooms

    def take(self, wanted: Resources) -> Placement:
        amount = self.gpus_for(wanted)
        cpus = self.cpus.take(wanted.cpus)
        gpus = self.gpus.take(amount) if amount else ()
        if cpus is None or gpus is None:
            raise AssertionError(f"{self.name} has no room for {wanted}")
        memory_bytes = wanted.memory_bytes if self.capacity.memory_bytes else 0
        self.memory_bytes -= memory_bytes
        is_part = 0 < amount < 1
        return Placement(
            self.name,
            tuple(cpus),
            tuple(gpus),
            memory_bytes,
            gpu_share=amount if is_part else 1.0,
            gpu_memory_bytes=int(amount * self.capacity.gpu_memory_bytes) if is_part else 0,
            cpu_share=wanted.cpus if wanted.cpus < 1 else 1.0,
        )

    def give_back(self, placement: Placement) -> None:
        self.cpus.give_back(placement.cpus, placement.cpu_share)
        self.gpus.give_back(placement.gpus, placement.gpu_share)
        self.memory_bytes += placement.memory_bytes

    @property
    def amounts(self) -> Amounts:
        """What is free, as `_asked_for` asks for it."""
        gpus = self.gpus.most
        return (
            self.cpus.most,
            gpus,
            gpus if self.capacity.gpus else 1.0,
            self.memory_bytes if self.capacity.memory_bytes else math.inf,
            self.ends_at,
        )


def _asked_for(wanted: Resources, until: float) -> Amounts:
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


class Places:
    """The workers and what is free on them.

    Attempts go to the worker that joined first and has room, so that workers which came for a
    peak are the ones that fall idle after it.

    Worked example: two workers, of three cores and of two, and attempts of two cores::

        >>> places, two = Places(), Resources(cpus=2)
        >>> places.add("a", "n1", Capacity(cpus=(0, 1, 2)))
        >>> places.add("b", "n2", Capacity(cpus=(0, 1)))
        >>> places.rooms(two, at_most=10)
        2
        >>> first = places.take(two)
        >>> first.worker, first.cpus
        ('a', (0, 1))
        >>> places.take(two).worker
        'b'
        >>> places.take(two) is None, places.take(Resources(cpus=1)).worker
        (True, 'a')
        >>> places.give_back(first)
        >>> places.take(two).worker
        'a'

    So that a large attempt is not passed over for ever by small ones, one worker may be reserved
    for it: it fills no more until the large one fits.
    """

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._rows: list[_Worker | None] = []
        self._free = FirstFit(_WIDTH)
        self._totals = FirstFit(_WIDTH)
        self._reserved: tuple[Resources, str] | None = None
        self.cpus = 0
        self.gpus = 0
        self.cpus_held = 0.0
        self.gpus_held = 0.0

    def __contains__(self, worker: str) -> bool:
        return worker in self._workers

    def __len__(self) -> int:
        return len(self._workers)

    def node(self, worker: str) -> str:
        """The machine that the worker runs on."""
        return self._workers[worker].node

    @property
    def most_memory_bytes(self) -> int:
        """What the worker with the most memory has; 0 if nobody knows."""
        return max((each.capacity.memory_bytes for each in self._workers.values()), default=0)

    # --- workers ----------------------------------------------------------------------------

    def add(
        self, worker: str, node: str, capacity: Capacity, *, ends_at: float | None = None
    ) -> None:
        """A worker joined; all that it has is free, until its end if it says one."""
        record = _Worker(
            name=worker,
            node=node,
            capacity=capacity,
            ends_at=_FOR_EVER if ends_at is None else ends_at,
            cpus=Pool(capacity.cpus, capacity.near),
            gpus=Pool(capacity.gpus),
            memory_bytes=capacity.memory_bytes,
        )
        self._workers[worker] = record
        self.cpus += len(capacity.cpus)
        self.gpus += len(capacity.gpus)
        if len(self._rows) > 64 and len(self._rows) > 2 * len(self._workers):
            self._renumber()
        else:
            self._number(record)

    def _number(self, record: _Worker) -> None:
        self._totals.append(record.amounts)
        record.row = self._free.append(record.amounts)
        self._rows.append(record)

    def _renumber(self) -> None:
        """Forget the rows of workers that left."""
        self._rows, self._free, self._totals = [], FirstFit(_WIDTH), FirstFit(_WIDTH)
        for record in self._workers.values():
            empty = Pool(record.capacity.cpus), Pool(record.capacity.gpus)
            held, record.cpus, record.gpus = (record.cpus, record.gpus), *empty
            memory_bytes, record.memory_bytes = record.memory_bytes, record.capacity.memory_bytes
            self._number(record)
            record.cpus, record.gpus = held
            record.memory_bytes = memory_bytes
            self._update(record)
            if record.is_retired:
                self._totals.drop(record.row)

    @property
    def any_stays(self) -> bool:
        """Whether there is a worker that is not about to leave."""
        return any(not record.is_retired for record in self._workers.values())

    def retire(self, worker: str) -> None:
        """A worker is about to leave: what is free on it is not given away any more."""
        if record := self._workers.get(worker):
            record.is_retired = True
            self._totals.drop(record.row)
            self._update(record)
            if self.reserved == worker:
                self._reserved = None

    def remove(self, worker: str) -> None:
        """A worker left; what was held on it is gone with it."""
        record = self._workers.pop(worker)
        self._rows[record.row] = None
        self._free.drop(record.row)
        self._totals.drop(record.row)
        self.cpus -= len(record.capacity.cpus)
        self.gpus -= len(record.capacity.gpus)
        self.cpus_held -= record.cpus.held
        self.gpus_held -= record.gpus.held
        if self._reserved is not None and self._reserved[1] == worker:
            self._reserved = None

    # --- questions --------------------------------------------------------------------------

    def rooms(self, wanted: Resources, at_most: int = 1, *, until: float = 0.0) -> int:
        """How many more attempts of this size fit now; counting stops at `at_most`.

        Workers that end before `until` do not count.
        """
        found = 0
        for record in self._with_room(wanted, until):
            found += record.rooms(wanted)
            if found >= at_most:
                break
        return min(found, at_most)

    def could_hold(self, wanted: Resources, until: float = 0.0) -> bool:
        """Whether some worker, were it empty, could hold an attempt."""
        return any(self._that_could_hold(wanted, until))

    def _with_room(self, wanted: Resources, until: float) -> Iterator[_Worker]:
        for row in self._free.having(_asked_for(wanted, until)):
            record = self._rows[row]
            if record is not None and record.rooms(wanted):
                yield record

    def _that_could_hold(self, wanted: Resources, until: float) -> Iterator[_Worker]:
        for row in self._totals.having(_asked_for(wanted, until)):
            record = self._rows[row]
            if record is not None and record.gpus_for(wanted) <= len(record.gpus):
                yield record

    # --- attempts ---------------------------------------------------------------------------

    def take(
        self, wanted: Resources, *, until: float = 0.0, may_use_reserved: bool = False
    ) -> Placement | None:
        """Hold room for one attempt; None if there is none at present.

        Args:
            wanted: How much room.
            until: The worker must not end before this, in seconds since the epoch.
            may_use_reserved: Whether this is the attempt that a worker is reserved for.
        """
        record = next(self._with_room(wanted, until), None)
        if may_use_reserved and self._reserved is not None:
            reserved = self._workers[self._reserved[1]]
            if record is None and reserved.rooms(wanted) and reserved.ends_at >= until:
                record = reserved
            if record is not None:
                self.release()
        if record is None:
            return None
        placement = record.take(wanted)
        self.cpus_held += len(placement.cpus) * placement.cpu_share
        self.gpus_held += len(placement.gpus) * placement.gpu_share
        self._update(record)
        return placement

    def give_back(self, placement: Placement) -> None:
        """An attempt ended; what it held is free again, unless its worker left."""
        record = self._workers.get(placement.worker)
        if record is None:
            return
        record.give_back(placement)
        self.cpus_held -= len(placement.cpus) * placement.cpu_share
        self.gpus_held -= len(placement.gpus) * placement.gpu_share
        self._update(record)

    def _update(self, record: _Worker) -> None:
        if record.is_retired or self.reserved == record.name:
            self._free.drop(record.row)
        else:
            self._free.put(record.row, record.amounts)

    # --- reservations -----------------------------------------------------------------------

    @property
    def reserved(self) -> str | None:
        """The worker that is reserved, if one is."""
        return None if self._reserved is None else self._reserved[1]

    def reserve(self, wanted: Resources, until: float = 0.0) -> bool:
        """Let no other attempt begin on a worker until one of this size fits there.

        The one with the most free cores and GPUs of those that could hold it, for that is likely
        to be empty enough first. False if there is none.
        """
        if self._reserved is not None:
            before, name = self._reserved
            if before == wanted and self._workers[name].ends_at >= until:
                return True
        self.release()
        able = self._that_could_hold(wanted, until)
        chosen = max(able, key=lambda each: (each.gpus.whole, each.cpus.whole), default=None)
        if chosen is None:
            return False
        self._reserved = wanted, chosen.name
        self._update(chosen)
        return True

    def release(self) -> None:
        """No worker is reserved any more."""
        if self._reserved is not None:
            record = self._workers[self._reserved[1]]
            self._reserved = None
            self._update(record)

    # --- for the doubtful -------------------------------------------------------------------

    def validate(self, held: Iterable[Placement]) -> None:
        """Check that exactly these placements are held, and nothing twice.

        Raises:
            AssertionError: The books do not balance.
        """
        held = [placement for placement in held if placement.worker in self._workers]
        for name, record in self._workers.items():
            here = [placement for placement in held if placement.worker == name]
            record.cpus.validate((p.cpus, p.cpu_share) for p in here)
            record.gpus.validate((p.gpus, p.gpu_share) for p in here)
            memory_bytes = record.memory_bytes + sum(p.memory_bytes for p in here)
            if memory_bytes != record.capacity.memory_bytes or record.memory_bytes < 0:
                raise AssertionError(f"{name}: memory of {memory_bytes} bytes does not add up")
            if self._rows[record.row] is not record:
                raise AssertionError(f"{name} does not stand where it should")
        cpus = sum(len(p.cpus) * p.cpu_share for p in held)
        gpus = sum(len(p.gpus) * p.gpu_share for p in held)
        if abs(self.cpus_held - cpus) > 1e-6 or abs(self.gpus_held - gpus) > 1e-6:
            raise AssertionError(f"{self.cpus_held} cores, {self.gpus_held} GPUs counted as held")
