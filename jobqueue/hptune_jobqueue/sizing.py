"""The size of a worker, from what a node has and what a trial needs; pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .config import ANY_PARTITION, Shape
from .errors import ConfigError
from .nodes import NodeShape, Partition
from .values import clock, gigabytes

MEBIBYTE = 1024**2

_ENDLESS_BYTES = 2**60

WORKER_MEMORY_BYTES = 1024 * MEBIBYTE
"""Memory of a job that its trials do not get: for the worker (0.2 GB) and the process that they are
forked from, which has imported a framework (0.6 GB for TensorFlow)."""


@dataclass(frozen=True, slots=True)
class Need:
    """Resources that one trial holds, or on each of its nodes if it needs several.

    Attributes:
        cpus: Cores.
        gpus: GPUs: a whole number, or a share below 1 of one GPU; None for one for each process if
            there are any.
        memory_bytes: Memory; 0 if unknown.
        processes: Its processes on a node.
        nodes: The nodes that it needs.
        takes_cores_of_gpus: Whether it takes the part of a node's cores that falls to its GPUs;
            `cpus` is then the least.
    """

    cpus: int = 1
    gpus: float | None = 0.0
    memory_bytes: int = 0
    processes: int = 1
    nodes: int = 1
    takes_cores_of_gpus: bool = False

    def __post_init__(self) -> None:
        gpus = self.gpus or 0.0
        if self.cpus < 1 or gpus < 0 or self.memory_bytes < 0:
            raise ValueError(f"{self}: a trial needs at least one core, and nothing below 0")
        if gpus > 1 and gpus != int(gpus):
            raise ValueError(f"{self}: GPUs are shared below 1, and whole above")

    def gpus_where(self, there: int) -> float:
        """Return how many GPUs a trial holds on a node with this many."""
        if self.gpus is not None:
            return self.gpus
        return self.processes if there else 0


def trials_per_gpu(share: float) -> int:
    """Return how many trials share a GPU of which each holds a share below 1.

    >>> trials_per_gpu(0.1), trials_per_gpu(0.3)
    (10, 3)
    """
    return int(1 / share + 1e-9)


def gpus_of(trials: int, each: float) -> int:
    """Return how many GPUs these trials hold; no trial's share spans two of them."""
    if 0 < each < 1:
        return math.ceil(trials / trials_per_gpu(each))
    return int(each) * trials


@dataclass(frozen=True, slots=True)
class WorkerShape:
    """Resources that one worker asks Slurm for; it has a job, or one node of a job of several.

    Attributes:
        cpus: Cores.
        gpus: GPUs.
        memory_bytes: Memory, with that of the worker itself; 0 to leave it to Slurm.
        trials: How many trials it holds at once.
    """

    cpus: int
    gpus: int
    memory_bytes: int
    trials: int

    def text(self) -> str:
        """Return what it asks for, for the user.

        >>> WorkerShape(4, 1, 8 * 10**9, 4).text()
        '4 cores, 1 GPU and 8 GB'
        """
        return _describe(self.cpus, self.gpus, self.memory_bytes)

    def how_many_fit(self, need: Need) -> int:
        """Return how many trials of any size it holds at once."""
        memory_bytes = self.memory_bytes or _ENDLESS_BYTES
        return how_many_fit(NodeShape(self.cpus, memory_bytes, (("", self.gpus),)), need)

    @property
    def for_trials_bytes(self) -> int:
        """The part of its memory that trials may hold."""
        return for_trials(self.memory_bytes)


def for_trials(memory_bytes: int) -> int:
    """Return how much of a worker's memory trials may hold; a small worker needs less itself."""
    return max(memory_bytes - WORKER_MEMORY_BYTES, memory_bytes // 2)


def how_many_fit(node: NodeShape, need: Need) -> int:
    """Return how many such trials a node holds at once.

    >>> how_many_fit(NodeShape(8, 64 * 2**30, (("a100", 2),)), Need(cpus=3, gpus=1))
    2
    >>> how_many_fit(NodeShape(8, 64 * 2**30), Need(memory_bytes=16 * 2**30))
    3
    """
    fit = node.cpus // need.cpus
    gpus = node.gpu_count()
    each = need.gpus_where(gpus)
    if 0 < each < 1:
        fit = min(fit, gpus * trials_per_gpu(each))
    elif each:
        fit = min(fit, gpus // int(each))
    if need.memory_bytes:
        fit = min(fit, for_trials(node.memory_bytes) // need.memory_bytes)
    return fit


def size_worker(node: NodeShape, need: Need, shape: Shape) -> WorkerShape:
    """Return the worker for a node: for as many trials as fit, or as the shape says.

    The worker asks for no more than its trials hold. If memory is not specified, it asks for a
    part of the node's, in proportion to its cores or its GPUs, whichever is more. If trials
    take the cores of their GPUs, it asks for the part of the node's cores that falls to its GPUs.

    Raises:
        ConfigError: No trial fits, or the shape asks for more than the node has.
    """
    limit = NodeShape(
        cpus=_limited(shape, "cpus", node.cpus),
        memory_bytes=_limited(shape, "memory", node.memory_bytes),
        gpus=((shape.gpu_type or "", _limited(shape, "gpus", node.gpu_count(shape.gpu_type))),),
    )
    fit = how_many_fit(limit, need)
    each = need.gpus_where(limit.gpu_count())
    own_bytes = limit.memory_bytes - for_trials(limit.memory_bytes)
    if not fit:
        raise ConfigError(
            f"a trial needs {_describe(need.cpus, each, need.memory_bytes)}, but a job in "
            f"partition {shape.partition} can have "
            f"{_describe(limit.cpus, limit.gpu_count(), limit.memory_bytes)} at most"
            + (f", of which the worker needs {gigabytes(own_bytes)}" if need.memory_bytes else "")
        )
    if shape.trials_per_job is not None and shape.trials_per_job > fit:
        raise ConfigError(
            f"trials_per_job is {shape.trials_per_job}, but of trials that need "
            f"{_describe(need.cpus, each, need.memory_bytes)} each, {fit} fit into a job in "
            f"partition {shape.partition}"
        )
    trials = shape.trials_per_job or fit
    gpus = gpus_of(trials, each) if shape.gpus is None else shape.gpus
    owned = node.gpu_count(shape.gpu_type)
    of_gpus = node.cpus * gpus // owned if each and need.takes_cores_of_gpus else 0
    cpus = shape.cpus or max(need.cpus * trials, of_gpus)
    if shape.memory is not None:
        memory = shape.memory
    elif need.memory_bytes:
        memory = min(need.memory_bytes * trials + WORKER_MEMORY_BYTES, limit.memory_bytes)
    else:
        share = max(cpus / node.cpus, gpus / owned if owned else 0.0)
        memory = int(node.memory_bytes * share)
    return WorkerShape(cpus, gpus, math.ceil(memory / MEBIBYTE) * MEBIBYTE, trials)


def chosen_partitions(names: str, partitions: Sequence[Partition]) -> list[Partition]:
    """Return the partitions that a `partition` in slurm.toml names.

    Raises:
        ConfigError: There is none of a name.
    """
    if names == ANY_PARTITION:
        return list(partitions)
    known = {partition.name: partition for partition in partitions}
    for name in names.split(","):
        if name not in known:
            raise ConfigError(
                f"there is no partition {name!r}; Slurm has {', '.join(sorted(known)) or 'none'}"
            )
    return [known[name] for name in names.split(",")]


def allowing(shape: Shape, partitions: Sequence[Partition]) -> list[Partition]:
    """Return the shape's partitions, which must allow its walltime; of any, one is enough.

    Raises:
        ConfigError: There is no such partition, or its time limit is too short.
    """
    chosen = chosen_partitions(shape.partition, partitions)
    short = [
        partition
        for partition in chosen
        if partition.limit_seconds is not None and shape.walltime_seconds > partition.limit_seconds
    ]
    others = [partition for partition in chosen if partition not in short]
    if short and not (others and shape.partition == ANY_PARTITION):
        longest = max(short, key=lambda partition: partition.limit_seconds or 0)
        raise ConfigError(
            f"walltime is {shape.walltime}, but partition {longest.name} allows "
            f"{clock(longest.limit_seconds or 0)} at most"
        )
    return others


def choose_worker(partitions: Sequence[Partition], shape: Shape, need: Need) -> WorkerShape:
    """Return the worker for a shape, sized for the nodes of its partition that hold most trials.

    If a partition has several kinds of nodes, the kind that holds most trials in all is chosen, of
    those with enough nodes for a job. A shape can choose another kind by `gpu_type`, or by a
    constraint in `directives` with `cpus`, `gpus` and `memory`.

    Raises:
        ConfigError: There is no such partition or type of GPUs, the time limit is too short, or
            no trial fits.
    """
    nodes = [each for chosen in allowing(shape, partitions) for each in chosen.nodes]
    if not nodes:
        raise ConfigError(f"partition {shape.partition} has no nodes")
    _check_gpu_type(shape, nodes, partitions)
    sized: list[tuple[tuple[bool, bool, int], WorkerShape]] = []
    problem: ConfigError | None = None
    for node, count in nodes:
        try:
            worker = size_worker(node, need, shape)
        except ConfigError as error:
            problem = error
        else:
            is_wanted = need.gpus is None and worker.gpus > 0
            has_enough = count >= shape.nodes
            sized.append(((is_wanted, has_enough, worker.trials * max(count, 1)), worker))
    has_gpus = any(node.gpu_count() for node, _ in nodes)
    if not sized:
        assert problem is not None
        is_without = (need.gpus or shape.gpus) and not has_gpus
        raise ConfigError(f"{problem}{_gpus_elsewhere(partitions)}") if is_without else problem
    worker = max(sized, key=lambda each: each[0])[1]
    if problem and has_gpus and need.gpus is None and shape.gpus is None and not worker.gpus:
        raise ConfigError(
            f"{problem}. Only its nodes without GPUs hold a trial; for training on cores give "
            "--gpus-per-trial 0"
        )
    return worker


def beside_master(
    partitions: Sequence[Partition], shape: Shape, master: Shape
) -> tuple[Partition, ...]:
    """Return the partitions without what the master's job holds of the only nodes for a shape.

    A job that asks for the whole of these nodes would wait for as long as the master runs. If
    other nodes can take the job, or the master runs in another partition, nothing changes.

    Args:
        partitions: The partitions.
        shape: What the jobs of workers ask for.
        master: What the master's job asks for.
    """
    chosen = chosen_partitions(shape.partition, partitions)
    theirs = chosen_partitions(master.partition, partitions)
    nodes = sum(count for each in chosen for _, count in each.nodes)
    if nodes > shape.nodes or not any(each in theirs for each in chosen):
        return tuple(partitions)
    cpus, memory_bytes = master.cpus or 1, master.memory or 0

    def left(node: NodeShape) -> NodeShape:
        return replace(
            node,
            cpus=max(0, node.cpus - cpus),
            memory_bytes=max(0, node.memory_bytes - memory_bytes),
        )

    return tuple(
        replace(each, nodes=tuple((left(node), count) for node, count in each.nodes))
        if each in chosen
        else each
        for each in partitions
    )


def are_nodes_up(partitions: Sequence[Partition], shape: Shape, worker: WorkerShape) -> bool:
    """Return whether enough nodes that hold a shape's worker are neither down nor drained."""
    # Partitions share nodes, and a job has all of its nodes in one partition.
    return any(
        shape.nodes
        <= sum(
            count
            for node, count in partition.nodes
            if node.cpus >= worker.cpus
            and node.memory_bytes >= worker.memory_bytes
            and node.gpu_count(shape.gpu_type) >= worker.gpus
        )
        for partition in chosen_partitions(shape.partition, partitions)
    )


def _check_gpu_type(
    shape: Shape, nodes: Sequence[tuple[NodeShape, int]], partitions: Sequence[Partition]
) -> None:
    """Check that a node has GPUs of the shape's type, whose name must match in every letter."""
    types = {kind for node, _ in nodes for kind, _ in node.gpus}
    if shape.gpu_type is None or shape.gpu_type in types:
        return
    if not types:
        there = f"has no GPUs{_gpus_elsewhere(partitions)}"
    elif named := sorted(filter(None, types)):
        there = f"has {', '.join(named)}; write the type as here, also its capitals"
    else:
        there = "has GPUs without a type; leave gpu_type out"
    raise ConfigError(f"gpu_type is {shape.gpu_type!r}, but partition {shape.partition} {there}")


def _gpus_elsewhere(partitions: Sequence[Partition]) -> str:
    """Return in which partitions the GPUs are, to be added to a message."""
    found = [
        f"{partition.name} ({', '.join(kind or 'no type' for kind in partition.gpu_types())})"
        for partition in partitions
        if partition.gpu_types()
    ]
    return f"; GPUs are in {', '.join(found)}" if found else "; Slurm shows GPUs in no partition"


def _limited(shape: Shape, key: str, there: int) -> int:
    """Return how much of a node a job may have: what the shape asks for, else all."""
    asked: int | None = getattr(shape, key)
    if asked is None or (key == "memory" and not asked):
        return there
    if asked > there:
        shown = gigabytes if key == "memory" else str
        raise ConfigError(
            f"{key} is {shown(asked)}, but a node of partition {shape.partition} has {shown(there)}"
        )
    return asked


def _describe(cpus: int, gpus: float, memory_bytes: int) -> str:
    words = ["1 core" if cpus == 1 else f"{cpus} cores"]
    words += [f"{gpus:g} GPU" if gpus == 1 else f"{gpus:g} GPUs"]
    if memory_bytes:
        words.append(gigabytes(memory_bytes))
    return f"{', '.join(words[:-1])} and {words[-1]}"
