"""A driver library of GPUs, for tests on machines without one."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

GB = 10**9


class NVMLError(Exception):
    """The error that the real library raises."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of a GPU in bytes."""

    total: int
    used: int = 0


class TwoGpus(ModuleType):
    """Module `pynvml` of a machine with a GPU of 80 GB and one of 40 GB."""

    NVMLError = NVMLError

    def __init__(self) -> None:
        super().__init__("pynvml")

    def nvmlInit(self) -> None:  # noqa: N802 - its name
        """There is a driver."""

    def nvmlDeviceGetHandleByIndex(self, number: int) -> int:  # noqa: N802 - its name
        if number > 1:
            raise NVMLError
        return number

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Memory:  # noqa: N802 - its name
        return Memory((80 * GB, 40 * GB)[handle])
