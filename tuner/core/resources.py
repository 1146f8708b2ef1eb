"""Resources that a trial asks for, that a worker has, and that an attempt holds."""

from __future__ import annotations

import enum
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Resources:
    """Resources that one attempt of a trial asks for.

    Attributes:
        cpus: CPU cores: a part of one, or whole ones.
        gpus: GPUs: a part of one, or whole ones. None means one where the worker has any and none
            elsewhere, so that nothing needs to be said on a laptop or on a GPU node.
        memory_bytes: Host memory; 0 means that memory is not counted.
        gpu_memory_bytes: Memory on a GPU, where a part of one is asked for by that: it shares a
            device whose memory is known with others. 0 means that it is not asked for.
    """

    cpus: float = 1
    gpus: float | None = None
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0

    def __post_init__(self) -> None:
        if not _whole_or_part(self.cpus) or not self.cpus:
            raise ValueError(
                f"cpus is {self.cpus}: allowed are a part of a core, such as 0.5, or whole cores"
            )
        if self.gpus is not None and not _whole_or_part(self.gpus):
            raise ValueError(
                f"gpus is {self.gpus}: allowed are 0, a part of a GPU, such as 0.5, or whole GPUs"
            )
        if self.memory_bytes < 0:
            raise ValueError(f"memory_bytes is {self.memory_bytes}: allowed are 0 or more")

        # Whole amounts are whole numbers, also after a way through JSON.
        for name in ("cpus", "gpus"):
            amount = getattr(self, name)
            if amount is not None and amount == int(amount):
                object.__setattr__(self, name, int(amount))

    def __str__(self) -> str:
        cores = "1 core" if self.cpus == 1 else f"{self.cpus:g} cores"
        gpus = f" and {self.gpus:g} GPU{'s' * (self.gpus != 1)}" if self.gpus else ""
        memory = f", {self.memory_bytes / 1e9:.3g} GB" if self.memory_bytes else ""
        return f"{cores}{gpus}{memory}"


class Amount(enum.StrEnum):
    """What of a trial's resources may be decided by what others were seen to use."""

    CPUS = "cpus"
    GPUS = "gpus"
    MEMORY = "memory"


def _whole_or_part(amount: float) -> bool:
    return 0 <= amount < 1 or amount == int(amount) >= 1


@dataclass(frozen=True, slots=True)
class Capacity:
    """Resources that a worker can give.

    Attributes:
        cpus: The ids of its CPU cores (its affinity mask, not the machine's total).
        gpus: The names of its GPUs as CUDA_VISIBLE_DEVICES takes them.
        memory_bytes: Host memory; 0 means unknown, and is then not counted.
        gpu_memory_bytes: Memory of each of its GPUs; 0 means unknown.
        near: Which of the cores are near each other (of one NUMA node); empty if unknown.
        memory_taken_bytes: How much of the host memory others held when the worker joined; later
            `Measured.free_share` tells.
    """

    cpus: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory_bytes: int = 0
    gpu_memory_bytes: int = 0
    near: tuple[tuple[int, ...], ...] = ()
    memory_taken_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Placement:
    """Cores and devices of a worker that an attempt holds.

    Attributes:
        worker: Its name.
        cpus: Core ids.
        gpus: The names of the GPUs, as CUDA_VISIBLE_DEVICES takes them.
        memory_bytes: Host memory granted; 0 means that memory is not counted.
        gpu_share: What part of each of its GPUs the attempt may use; below 1 where it shares one.
        gpu_memory_bytes: Memory granted on each of its GPUs; 0 means its share of what there is.
        cpu_share: What part of its core the attempt is expected to use; below 1 if it shares
            one.
        floats_on: Where it shares one, the cores of its worker, any of which it may run on.
    """

    worker: str
    cpus: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    memory_bytes: int = 0
    gpu_share: float = 1.0
    gpu_memory_bytes: int = 0
    cpu_share: float = 1.0
    floats_on: tuple[int, ...] = ()
