"""What a trial holds, by the number of its devices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from ..core.resources import Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialSizes:
    """What trials hold, by the number of their devices.

    A device is a GPU on workers that have GPUs, and otherwise a core. If the cores of a whole trial
    are given, it is a process, and the processes divide the cores.

    Attributes:
        cpus: Cores of a whole trial; 0 for one for each device.
        memory_bytes: Host memory of a whole trial; 0 if none is asked for.
        uses_gpus: Whether trials use the GPUs of workers that have any.
        in_one_process: Whether one process has all devices, instead of one process for each.
    """

    cpus: int = 0
    memory_bytes: int = 0
    uses_gpus: bool = True
    in_one_process: bool = False

    @classmethod
    def of(cls, one: Resources) -> Self:
        """Return the sizes of trials that hold this much on one device."""
        return cls(
            cpus=int(one.cpus) if one.cpus > 1 else 0,
            memory_bytes=one.memory_bytes,
            uses_gpus=one.gpus != 0,
        )

    def device(self, *, has_gpus: bool) -> str:
        """Return what a device is called: "GPU", "core" or "process".

        Args:
            has_gpus: Whether workers have GPUs.
        """
        if self.uses_gpus and has_gpus:
            return "GPU"
        return "process" if self.cpus else "core"

    def on(self, devices: int, *, nodes: int = 1, has_gpus: bool = False) -> Resources | None:
        """Return what a trial holds; None if its cores or devices cannot be divided like this.

        >>> print(TrialSizes(memory_bytes=10**9).on(2))
        2 processes of 1 core, 500 MB
        >>> print(TrialSizes(cpus=8).on(2)), TrialSizes(cpus=8).on(3)
        2 processes of 4 cores
        (None, None)
        >>> print(TrialSizes(in_one_process=True).on(2, has_gpus=True))
        2 cores and 2 GPUs

        Args:
            devices: Number of devices.
            nodes: Nodes that they are divided among.
            has_gpus: Whether workers have GPUs.
        """
        cpus = self.cpus or devices
        if self.in_one_process:
            gpus = devices if self.uses_gpus and has_gpus else 0
            return Resources(cpus, gpus, self.memory_bytes) if nodes == 1 else None
        if cpus % devices or devices % nodes:
            return None
        return Resources(
            cpus, None if self.uses_gpus else 0, self.memory_bytes, processes=devices, nodes=nodes
        )
