"""What a trial asks for, what a worker has, and what an attempt holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resources:
    """What one attempt of a trial asks for.

    Attributes:
        cpus: CPU cores.
        gpus: Whole GPUs; None means one where the worker has any and none elsewhere, so that
            nothing needs to be said on a laptop or on a GPU node.
        memory_bytes: Host memory; 0 means that memory is not counted.
    """

    cpus: int = 1
    gpus: int | None = None
    memory_bytes: int = 0

    def __post_init__(self) -> None:
        if self.cpus < 1:
            raise ValueError(f"cpus is {self.cpus}: a trial needs at least 1 core")
        if self.gpus is not None and self.gpus < 0:
            raise ValueError(f"gpus is {self.gpus}: allowed are 0 or more")
        if self.memory_bytes < 0:
            raise ValueError(f"memory_bytes is {self.memory_bytes}: allowed are 0 or more")


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a worker has to give.

    Attributes:
        cpus: The ids of its CPU cores (its affinity mask, not the machine's total).
        gpus: The names of its GPUs as CUDA_VISIBLE_DEVICES takes them.
        memory_bytes: Host memory; 0 means unknown, and is then not counted.
    """

    cpus: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Which cores and devices of which worker an attempt holds.

    Attributes:
        worker: Its name.
        cpus: Core ids.
        gpus: The names of the GPUs, as CUDA_VISIBLE_DEVICES takes them.
        memory_bytes: Host memory granted; 0 means that memory is not counted.
        gpu_share: What part of each of its GPUs the attempt may use; below 1 where it shares one.
        gpu_memory_bytes: Memory granted on each of its GPUs; 0 means its share of what there is.
    """

    worker: str
    cpus: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory_bytes: int = 0
    gpu_share: float = 1.0
    gpu_memory_bytes: int = 0
