"""The workers, and which cores, GPUs and memory of each are free."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from ..resources import Amount, Capacity, Placement, Resources
from ..workers import Phase, Worker
from . import distinct_nodes
from .device_pool import DevicePool
from .worker import MOST_ON_A_GPU, Amounts, WorkerState, minimum_free, parted

_NOTHING: Amounts = (-1.0, -1.0, -1.0, -1.0, -1.0)
"""The amounts of a worker that takes no attempts: less than any attempt needs."""


class ClusterState:
    """The workers, and what is free on them.

    An attempt gets a place on the worker that joined first and has room; if parts of devices are
    spread, on the first whose devices are the emptiest. So workers that were added for a peak are
    the first to be idle after it.

    Worked example: two workers, of three cores and of two, and attempts of two cores::

        >>> cluster_state, two = ClusterState(), Resources(cpus=2)
        >>> cluster_state.add("a", "n1", Capacity(cpus=(0, 1, 2)))
        >>> cluster_state.add("b", "n2", Capacity(cpus=(0, 1)))
        >>> cluster_state.free_slots(two, at_most=10)
        2
        >>> first = cluster_state.take(two)
        >>> first.worker, first.cpus
        ('a', (0, 1))
        >>> cluster_state.take(two).worker
        'b'
        >>> cluster_state.take(two) is None, cluster_state.take(Resources(cpus=1)).worker
        (True, 'a')
        >>> cluster_state.give_back(first)
        >>> cluster_state.take(two).worker
        'a'

    An attempt of several processes gets all of its places or none. If it needs several nodes, its
    workers are on different ones, and of one gang if possible::

        >>> cluster_state = ClusterState()
        >>> for number, gang in enumerate(["", "job 1", "job 1"]):
        ...     cluster_state.add(f"w{number}", f"n{number}", Capacity(cpus=(0, 1)), gang=gang)
        >>> large = Resources(processes=4, nodes=2)
        >>> [(rank.worker, rank.cpus) for rank in cluster_state.take(large).ranks]
        [('w1', (0,)), ('w1', (1,)), ('w2', (0,)), ('w2', (1,))]
        >>> cluster_state.take(large) is None
        True

    Workers may be reserved for a large attempt, which small ones would delay forever: nothing else
    starts there until the large one fits.

    Args:
        kept_back: The share of a worker's memory that is not given to attempts. If it is not 0,
            nor is the memory that other programs held at the last measurement.
        spread: The kinds of devices whose parts are taken from the emptiest device, so that none
            is idle while others are shared. Parts of other devices are taken from the fullest, so
            that whole devices stay free.

    Attributes:
        cpus: The number of cores of all workers.
        gpus: The number of GPUs of all workers.
        cpus_held: The cores held by attempts.
        gpus_held: The GPUs held by attempts.
        most_memory_bytes: The memory that the largest worker has for attempts; 0 if unknown.
        reserved: The reserved workers.
    """

    def __init__(self, *, kept_back: float = 0.0, spread: Collection[Amount] = ()) -> None:
        self._kept_back = kept_back
        self._spread = frozenset(spread)
        self._most_on_a_gpu = MOST_ON_A_GPU
        self._workers: dict[str, WorkerState] = {}
        # Beside the workers, so that a trial is soon compared with thousands of them.
        self._free: dict[str, Amounts] = {}
        self._totals: dict[str, Amounts] = {}
        self._reserved_for: Resources | None = None
        self.reserved: tuple[str, ...] = ()
        self.most_memory_bytes = 0
        self._full_for: set[Resources] = set()  # for which nothing is free until a worker changes
        self.cpus = 0
        self.gpus = 0
        self.cpus_held = 0.0
        self.gpus_held = 0.0

    def __iter__(self) -> Iterator[str]:
        return iter(self._workers)

    def __contains__(self, worker: str) -> bool:
        return worker in self._workers

    def node(self, worker: str) -> str:
        """Return the machine that a worker runs on."""
        return self._workers[worker].node

    # --- workers ----------------------------------------------------------------------------

    def add(
        self,
        worker: str,
        node: str,
        capacity: Capacity,
        *,
        ends_at: float | None = None,
        gang: str = "",
        takes_one: bool = False,
    ) -> None:
        """Add a worker, all of it free.

        Args:
            worker: Its name.
            node: The machine that it runs on.
            capacity: What it has.
            ends_at: When it must leave, in seconds since the epoch; None if unknown.
            gang: The name of the workers that it was granted together with; empty if by itself.
            takes_one: Whether it takes one attempt, and no more after it.
        """
        total_bytes = int((1.0 - self._kept_back) * capacity.memory_bytes)
        record = WorkerState(
            name=worker,
            node=node,
            capacity=capacity,
            ends_at=math.inf if ends_at is None else ends_at,
            cpus=DevicePool(capacity.cpus, capacity.near),
            gpus=DevicePool(capacity.gpus),
            memory_bytes=total_bytes,
            total_bytes=total_bytes,
            most_on_a_gpu=self._most_on_a_gpu,
            taken_bytes=capacity.memory_taken_bytes if self._kept_back else 0,
            gang=gang,
            takes_one=takes_one,
        )
        self._workers[worker] = record
        self._full_for.clear()
        self.most_memory_bytes = max(self.most_memory_bytes, total_bytes)
        self.cpus += len(capacity.cpus)
        self.gpus += len(capacity.gpus)
        self._free[worker] = record.amounts
        self._totals[worker] = record.amounts_when_empty

    def follow(self, worker: Worker) -> None:
        """Add, drain or remove a worker as it has changed in the roster."""
        match worker.phase:
            case Phase.JOINED:
                self.add(
                    worker.name,
                    worker.node,
                    worker.capacity,
                    ends_at=worker.ends_at,
                    gang=worker.gang,
                    takes_one=worker.is_program,
                )
            case Phase.DRAINING:
                self.drain(worker.name)
            case Phase.LEFT:
                self.remove(worker.name)
            case _:
                pass

    @property
    def any_stays(self) -> bool:
        """Whether a worker is there that is not about to leave."""
        return any(not record.is_leaving for record in self._workers.values())

    def drain(self, worker: str) -> None:
        """Start nothing more on a worker, which is about to leave."""
        record = self._workers[worker]
        record.is_leaving = True
        self._totals[worker] = _NOTHING
        if worker in self.reserved:
            self.release()
        self._update(record)

    def remove(self, worker: str) -> None:
        """Remove a worker that left, with all that was held on it."""
        if worker in self.reserved:
            self.release()
        record = self._workers.pop(worker)
        if record.total_bytes == self.most_memory_bytes:
            left = (each.total_bytes for each in self._workers.values())
            self.most_memory_bytes = max(left, default=0)
        del self._free[worker], self._totals[worker]
        self.cpus -= len(record.capacity.cpus)
        self.gpus -= len(record.capacity.gpus)
        self.cpus_held -= record.cpus_held
        self.gpus_held -= record.gpus_held

    # --- questions --------------------------------------------------------------------------

    def free_slots(
        self, wanted: Resources, at_most: int = 1, *, until: float = 0.0, avoid: str = ""
    ) -> int:
        """Return how many more attempts of this size fit now, counting up to `at_most`.

        Workers that end before `until`, or are on a node to avoid, do not count.
        """
        if wanted in self._full_for:
            return 0
        if wanted.nodes > 1:
            able = list(self._with_room(wanted.of_one_node, until))
            return min(distinct_nodes.free_slots(able, wanted), at_most)
        found = 0
        for record in self._with_room(wanted, until, avoid):
            found += record.free_slots(wanted)
            if found >= at_most:
                break
        if not found and not until and not avoid:
            self._full_for.add(wanted)
        return min(found, at_most)

    def slots_when_empty(self, worker: str, wanted: Resources) -> int:
        """Return how many attempts of this size fit on a worker if nothing else runs there.

        For an attempt that needs several nodes, its processes on one of them count.
        """
        return self._workers[worker].slots_when_empty(wanted.of_one_node)

    def fewest_cpus(self, wanted: Resources) -> float:
        """Return how many cores an attempt of this size holds at least, on a worker that is empty.

        More than it asks for, if it takes the cores of its GPUs.
        """
        able = self._able_to_hold(wanted.of_one_node, 0.0, "")
        cpus = [record.cpus_when_empty(wanted.of_one_node) for record in able]
        return wanted.nodes * min(cpus) if cpus else wanted.cpus

    def could_hold(self, wanted: Resources, until: float = 0.0, *, avoid: str = "") -> bool:
        """Return whether the workers could hold an attempt if nothing else ran there.

        Those that end before `until`, or are on a node to avoid, do not count.
        """
        able = self._able_to_hold(wanted.of_one_node, until, avoid)
        if wanted.nodes > 1:
            return bool(distinct_nodes.choose(able, wanted, _whole_devices))
        return any(able)

    def _with_room(self, wanted: Resources, until: float, avoid: str = "") -> Iterator[WorkerState]:
        """Yield the workers on which an attempt fits now, the best first.

        For a part of a device that is spread, a whole free device is best, then one of which the
        most is free (in eighths), so that devices fill evenly.
        """
        least = minimum_free(wanted, until)
        names: Iterable[str] = _having(self._free, least)
        if columns := parted(least, self._spread):
            names = sorted(names, key=lambda name: -_emptiness(self._free[name], columns))
        for record in self._named(names, avoid):
            if record.free_slots(wanted):
                yield record

    def _named(self, names: Iterable[str], avoid: str) -> Iterator[WorkerState]:
        records = (self._workers[name] for name in names)
        return (record for record in records if record.node != avoid)

    def _able_to_hold(self, wanted: Resources, until: float, avoid: str) -> Iterator[WorkerState]:
        names = _having(self._totals, minimum_free(wanted, until))
        for record in self._named(names, avoid):
            if record.gpus_for(wanted) <= len(record.gpus):
                yield record

    def _chosen_when_empty(self, wanted: Resources, until: float, avoid: str) -> list[WorkerState]:
        """Return the workers that are likely to have room for an attempt first; empty if none."""
        able = self._able_to_hold(wanted.of_one_node, until, avoid)
        if wanted.nodes > 1:
            return distinct_nodes.choose(able, wanted, _whole_devices)
        chosen = max(able, key=_whole_devices, default=None)
        return [] if chosen is None else [chosen]

    # --- attempts ---------------------------------------------------------------------------

    def take(
        self,
        wanted: Resources,
        *,
        until: float = 0.0,
        may_use_reserved: bool = False,
        avoid: str = "",
    ) -> Placement | None:
        """Return a place for one attempt and hold it; None if there is no room now.

        Args:
            wanted: What the attempt asks for.
            until: No worker of it may end before this, in seconds since the epoch.
            may_use_reserved: Whether workers are reserved for this attempt.
            avoid: A node that it may not be on, if it needs one node; empty for none.
        """
        if wanted.nodes > 1:
            return self._take_several(wanted, until, may_use_reserved=may_use_reserved)
        is_full = wanted in self._full_for
        record = None if is_full else next(self._with_room(wanted, until, avoid), None)
        if may_use_reserved and self.reserved:
            if record is None:
                able = self._reserved_with_room(wanted, until)
                record = next((each for each in able if each.node != avoid), None)
            if record is not None:
                self.release()
        if record is None:
            return None
        return self._hold(record, wanted)

    def _take_several(
        self, wanted: Resources, until: float, *, may_use_reserved: bool
    ) -> Placement | None:
        share = wanted.of_one_node
        able = list(self._with_room(share, until))
        if may_use_reserved:
            able += self._reserved_with_room(share, until)
        chosen = distinct_nodes.choose(able, wanted, lambda each: (each.free_slots(share),))
        if not chosen:
            return None
        if may_use_reserved:
            self.release()
        cpus = min(record.cpus_for(share) for record in chosen)
        share = replace(share, cpus=cpus, takes_cores_of_gpus=False)  # as many for each process
        held = [self._hold(record, share) for record in chosen]
        first, *others = (rank for placement in held for rank in placement.ranks)
        return replace(first, peers=tuple(others))

    def _reserved_with_room(self, wanted: Resources, until: float) -> Iterator[WorkerState]:
        for name in self.reserved:
            record = self._workers[name]
            if record.free_slots(wanted) and record.ends_at >= until:
                yield record

    def _hold(self, record: WorkerState, wanted: Resources) -> Placement:
        placement = record.take(wanted, self._spread)
        for rank in placement.ranks:
            self._count_held(record, rank, 1)
        if record.takes_one:
            self.drain(record.name)
        self._update(record)
        return placement

    def resize(self, placement: Placement, wanted: Resources) -> Placement:
        """Change what an attempt holds, and return it, as its need is known better.

        Its part of a device never grows. Its memory may grow beyond what is free: then nothing
        more starts there until enough is free.

        Args:
            placement: What it holds; it has one process.
            wanted: What it needs.
        """
        record = self._workers.get(placement.worker)
        if record is None:
            return placement
        after = record.resize(placement, wanted)
        if after == placement:
            return placement
        self._count_held(record, placement, -1)
        self._count_held(record, after, 1)
        self._update(record)
        return after

    def set_free_share(self, worker: str, share: float) -> None:
        """Set the share of a worker's memory that is really free, other programs included."""
        record = self._workers.get(worker)
        if record is None or not self._kept_back:
            return
        free = int(max(0.0, share - self._kept_back) * record.capacity.memory_bytes)
        record.taken_bytes = max(0, record.memory_bytes - free)
        self._update(record)

    def set_most_per_gpu(self, most: int) -> None:
        """Set the number of attempts that may share a GPU."""
        self._most_on_a_gpu = most
        self._full_for.clear()
        for record in self._workers.values():
            record.most_on_a_gpu = most

    def trials_per_device(self, worker: str, device: Amount, attempts: int) -> float:
        """Return how many of some attempts on a worker there are per core or GPU; at least 1."""
        record = self._workers[worker]
        devices = record.gpus if device is Amount.GPUS else record.cpus
        return max(1.0, attempts / (len(devices) or 1))

    def _count_held(self, record: WorkerState, placement: Placement, sign: int) -> None:
        cpus = sign * len(placement.cpus) * placement.cpu_share
        gpus = sign * len(placement.gpus) * placement.gpu_share
        record.cpus_held += cpus
        record.gpus_held += gpus
        self.cpus_held += cpus
        self.gpus_held += gpus

    def give_back(self, placement: Placement, *, left: Collection[str] = ()) -> None:
        """Free what an attempt held, except on workers that left; `left`: also if they are back."""
        for worker in placement.workers:
            record = self._workers.get(worker)
            if record is not None and worker not in left:
                here = [rank for rank in placement.ranks if rank.worker == worker]
                record.give_back(*here)
                for rank in here:
                    self._count_held(record, rank, -1)
                self._update(record)

    def _update(self, record: WorkerState) -> None:
        self._full_for.clear()
        is_closed = record.is_leaving or record.name in self.reserved
        self._free[record.name] = _NOTHING if is_closed else record.amounts

    # --- reservations -----------------------------------------------------------------------

    def reserve(self, wanted: Resources, until: float = 0.0, *, avoid: str = "") -> bool:
        """Reserve workers for an attempt of this size, and return whether there are enough.

        None of them ends before `until`, or is on a node to avoid.

        Of the workers that could hold it, those with the most free GPUs and cores are chosen: they
        are likely to have room first.
        """
        reserved = [self._workers[name] for name in self.reserved]
        if self._reserved_for == wanted and all(
            each.ends_at >= until and each.node != avoid for each in reserved
        ):
            return True
        self.release()
        chosen = self._chosen_when_empty(wanted, until, avoid)
        if not chosen:
            return False
        self._reserved_for = wanted
        self.reserved = tuple(record.name for record in chosen)
        for record in chosen:
            self._update(record)
        return True

    def release(self) -> None:
        """End the reservation, if there is one."""
        reserved, self.reserved, self._reserved_for = self.reserved, (), None
        for name in reserved:
            self._update(self._workers[name])


def _having(table: Mapping[str, Amounts], least: Amounts) -> Iterator[str]:
    """Return the names of the workers that have at least these amounts, in order."""
    cpus, gpus, any_gpus, memory_bytes, until = least
    return (
        name
        for name, has in table.items()
        if has[0] >= cpus
        and has[1] >= gpus
        and has[2] >= any_gpus
        and has[3] >= memory_bytes
        and has[4] >= until
    )


def _emptiness(free: Amounts, columns: Collection[int]) -> int:
    """Return how many eighths of some devices are free, of the one of which the least is."""
    return min(int(8.0 * min(1.0, free[column])) for column in columns)


def _whole_devices(record: WorkerState) -> tuple[int, int]:
    return record.gpus.whole, record.cpus.whole
