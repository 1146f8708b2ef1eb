"""Resources that a trial asks for, that a worker has, and that an attempt holds."""

from __future__ import annotations

import enum
import functools
import math
import numbers
from dataclasses import dataclass, replace


def size(size_bytes: float) -> str:
    """Return an amount of memory in words.

    >>> size(5.2e9), size(66_600_000), size(999_700_000), size(2e15)
    ('5.2 GB', '66.6 MB', '1 GB', '2,000 TB')
    """
    units = ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"))
    # Not 999.7 MB, which three digits would round to 1000.
    unit, name = next((each for each in units if size_bytes >= 0.9995 * each[0]), units[-1])
    shown = size_bytes / unit
    return f"{shown:.3g} {name}" if shown < 100 else f"{shown:,.0f} {name}"


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources that one attempt of a trial asks for.

    Every amount is the total of the trial. An attempt of several processes (ranks) holds an equal
    share for each of them::

        >>> print(Resources(processes=4, nodes=2, cpus=8, gpus=4))
        4 processes of 2 cores and 1 GPU, on 2 nodes
        >>> print(Resources(processes=4, nodes=2, cpus=8, gpus=4).of_one_process)
        2 cores and 1 GPU

    Attributes:
        cpus: CPU cores: a part of one, or whole ones; 0 (the default) for one per process, and on
            a worker with GPUs for the part of its cores that falls to those of the attempt.
        gpus: GPUs: a part of one, or whole ones. None means one for each process where the worker
            has any and none elsewhere, so that nothing needs to be said on a laptop or on a GPU
            node.
        memory_bytes: Host memory; 0 means that memory is not counted.
        gpu_memory_bytes: Memory on a GPU, where a part of one is asked for by that: it shares a
            device whose memory is known with others. 0 means that it is not asked for.
        processes: Processes (ranks) of an attempt, which train one model together; 0 (the
            default) for one on each node.
        nodes: Nodes that the processes are divided among, as many on each.
        takes_cores_of_gpus: Whether an attempt that holds GPUs gets the part of its worker's cores
            that falls to them, or those of them that are free; `cpus` is then the least. So where
            `cpus` is not given: GPUs wait for data and compilers on one core, and the others
            would be idle.
    """

    cpus: float = 0
    gpus: float | None = None
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    processes: int = 0
    nodes: int = 1
    takes_cores_of_gpus: bool = False

    def __post_init__(self) -> None:
        if self.processes == 0:
            object.__setattr__(self, "processes", self.nodes)
        if self.processes != 1 or self.nodes != 1:
            self._check_processes()
        if self.cpus == 0:
            object.__setattr__(self, "cpus", self.processes)
            object.__setattr__(self, "takes_cores_of_gpus", True)
        if not _whole_or_part(self.cpus):
            raise ValueError(
                f"cpus is {self.cpus!r}: allowed are a part of a core, such as 0.5, or whole cores"
            )
        if self.gpus is not None and not _whole_or_part(self.gpus):
            raise ValueError(
                f"gpus is {self.gpus!r}: allowed are 0, a part of a GPU, such as 0.5, or whole GPUs"
            )
        if not _is_number(self.memory_bytes) or self.memory_bytes < 0:
            raise ValueError(
                f"memory_bytes is {self.memory_bytes!r}: allowed are numbers from 0 on, such as 4e9"
            )

        # Whole amounts are whole numbers, also after a way through JSON.
        for name in ("cpus", "gpus"):
            amount = getattr(self, name)
            if amount is not None and amount == int(amount):
                object.__setattr__(self, name, int(amount))

        if self.processes > 1:
            self._check_shares()

    def _check_processes(self) -> None:
        for name in ("processes", "nodes"):
            if type(count := getattr(self, name)) is not int or count < 1:
                raise ValueError(f"{name} is {count!r}: allowed are whole numbers from 1 on")
        if self.processes % self.nodes:
            raise ValueError(
                f"{self.processes} process{'es' * (self.processes > 1)} cannot be divided equally "
                f"among {self.nodes} nodes: "
                f"ask for {_nearest(self.processes, self.nodes)} processes"
            )

    def _check_shares(self) -> None:
        for amount, name in ((self.cpus, "core"), (self.gpus, "GPU")):
            if amount and amount % self.processes:
                allowed = _nearest(amount, self.processes)
                raise ValueError(
                    f"{amount:g} {name}{'s' * (amount != 1)} cannot be divided equally among "
                    f"{self.processes} processes: ask for {allowed} {name}s"
                )
        if self.gpu_memory_bytes:
            raise ValueError(
                f"gpu_memory_bytes is {self.gpu_memory_bytes}, but a trial of several processes "
                "cannot share a GPU: ask for whole GPUs"
            )

    def __str__(self) -> str:
        if self.processes == 1:
            return self.amounts
        nodes = f", on {self.nodes} nodes" if self.nodes > 1 else ""
        return f"{self.processes} processes of {self.of_one_process.amounts}{nodes}"

    @property
    def amounts(self) -> str:
        """The cores, GPUs and memory in words."""
        cores = "1 core" if self.cpus == 1 else f"{self.cpus:g} cores"
        gpus = f" and {self.gpus:g} GPU{'s' * (self.gpus != 1)}" if self.gpus else ""
        memory = f", {size(self.memory_bytes)}" if self.memory_bytes else ""
        return f"{cores}{gpus}{memory}"

    @property
    def of_one_process(self) -> Resources:
        """What one process of an attempt holds.

        >>> Resources(processes=2, gpus=4).of_one_process.gpus
        2
        """
        count = self.processes
        if count == 1:
            return self
        gpus = None if self.gpus is None else self.gpus // count
        return Resources(
            self.cpus // count,
            gpus,
            -(-self.memory_bytes // count),
            takes_cores_of_gpus=self.takes_cores_of_gpus,
        )

    @property
    def of_one_node(self) -> Resources:
        """What the processes on one node hold.

        >>> print(Resources(processes=4, nodes=2, cpus=8).of_one_node)
        2 processes of 2 cores
        """
        return self if self.nodes == 1 else _of_one_node(self)


@functools.lru_cache
def _of_one_node(wanted: Resources) -> Resources:
    one, count = wanted.of_one_process, wanted.processes // wanted.nodes
    gpus = None if one.gpus is None else one.gpus * count
    return Resources(
        one.cpus * count,
        gpus,
        one.memory_bytes * count,
        processes=count,
        takes_cores_of_gpus=wanted.takes_cores_of_gpus,
    )


class Amount(enum.StrEnum):
    """What of a trial's resources may be decided by what others were seen to use."""

    CPUS = "cpus"
    GPUS = "gpus"
    MEMORY = "memory"


def _is_number(amount: object) -> bool:
    return isinstance(amount, numbers.Real) and math.isfinite(amount)


def _whole_or_part(amount: float) -> bool:
    return _is_number(amount) and (0 <= amount < 1 or amount == int(amount) >= 1)


def _nearest(amount: float, divisor: int) -> str:
    """Return the multiples of a number next to an amount, for a message.

    >>> _nearest(3, 2), _nearest(1, 4)
    ('2 or 4', '4')
    """
    below = int(amount // divisor) * divisor
    return f"{below} or {below + divisor}" if below else str(divisor)


@dataclass(frozen=True, slots=True)
class Capacity:
    """Resources that a worker can give.

    Attributes:
        cpus: The ids of its CPU cores (its affinity mask, not the machine's total).
        gpus: The names of its GPUs (see `worker/gpus`).
        memory_bytes: Host memory; 0 means unknown, and is then not counted.
        gpu_memory_bytes: Memory of each of its GPUs; 0 means unknown.
        near: Which of the cores are near each other (of one NUMA node); empty if unknown.
        gpus_near: The GPUs near each group of `near`; others that are no longer its own may be
            among them.
        memory_taken_bytes: How much of the host memory others held when the worker joined; later
            `Measured.free_share` tells.
    """

    cpus: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    near: tuple[tuple[int, ...], ...] = ()
    memory_taken_bytes: int = 0
    gpus_near: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Cores and devices that an attempt holds, or one process of an attempt of several.

    An attempt of several processes (ranks) has the placement of rank 0, and in `peers` those of
    the others. Ranks on one worker follow each other.

    Attributes:
        worker: Its name.
        cpus: Core ids.
        gpus: The names of the GPUs.
        memory_bytes: Host memory granted; 0 means that memory is not counted.
        gpu_share: What part of each of its GPUs the attempt may use; below 1 where it shares one.
        gpu_memory_bytes: Memory granted on each of its GPUs; 0 means its share of what there is.
        cpu_share: What part of its core the attempt is expected to use; below 1 if it shares
            one.
        floats_on: Where it shares one, the cores of its worker, any of which it may run on.
        peers: The placements of the ranks from 1 on; empty for an attempt of one process.
    """

    worker: str
    cpus: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory_bytes: int = 0
    gpu_share: float = 1.0
    gpu_memory_bytes: int = 0
    cpu_share: float = 1.0
    floats_on: tuple[int, ...] = ()
    peers: tuple[Placement, ...] = ()

    @property
    def ranks(self) -> tuple[Placement, ...]:
        """The placement of each rank, rank 0 first.

        >>> two = Placement("a", cpus=(0,), peers=(Placement("b", cpus=(3,)),))
        >>> [(rank.worker, rank.cpus) for rank in two.ranks]
        [('a', (0,)), ('b', (3,))]
        """
        return (replace(self, peers=()), *self.peers) if self.peers else (self,)

    @property
    def workers(self) -> tuple[str, ...]:
        """The workers of the ranks, each once, in the order of the ranks."""
        if not self.peers:
            return (self.worker,)
        return tuple(dict.fromkeys(rank.worker for rank in self.ranks))
