"""The use of NVIDIA GPUs, by NVML (the extra `gpu`) or else by nvidia-smi."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Sequence
from typing import Any

SMI_SECONDS = 30.0
"""Least number of seconds between two calls of nvidia-smi, which may use seconds of CPU time."""

_DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/dxg")
"""Prefixes of the files that a process on a GPU has open: NVIDIA, AMD, any graphics card, WSL."""

_UUID, _USED, _BUSY, _TOTAL = range(1, 5)
"""Columns of nvidia-smi, after the GPU's number."""


class GpuUsage:
    """The use of this machine's GPUs; one object serves all attempts of a worker.

    If neither NVML nor nvidia-smi answers, nothing is known, and they are not asked again.
    """

    def __init__(self) -> None:
        self._nvml = _nvml()
        self._command = None if self._nvml is not None else shutil.which("nvidia-smi")
        self._asked: dict[str, tuple[float, list[list[str]]]] = {}

    def memory_bytes(self, gpus: Sequence[str], pids: Collection[int] | None) -> int | None:
        """Return the memory in use on the fullest of the GPUs.

        Args:
            gpus: Their names as in CUDA_VISIBLE_DEVICES: numbers or UUIDs.
            pids: The processes to count; None for all.

        Returns:
            Bytes; None if unknown. (In a container, the driver may know the processes by other
            numbers.)
        """
        held = [self._held(name, pids) for name in gpus]
        known = [each for each in held if each is not None]
        return max(known) if known else None

    def is_open(self, pids: Collection[int]) -> bool:
        """Return whether one of these processes has any GPU open."""
        for pid in pids:
            with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.path).startswith(_DEVICE_FILES):  # noqa: PTH115 - many
                            return True
        return False

    @property
    def names(self) -> tuple[str, ...]:
        """The numbers of all GPUs that the driver knows."""
        if self._nvml is None:
            return tuple(row[0] for row in self._gpu_rows())
        with contextlib.suppress(self._nvml.NVMLError):
            return tuple(map(str, range(self._nvml.nvmlDeviceGetCount())))
        return ()

    def total_bytes(self, gpus: Sequence[str]) -> int:
        """Return the memory of the smallest of these GPUs; 0 if one of them is unknown."""
        return min((self._memory(name, "total", _TOTAL) or 0 for name in gpus), default=0)

    def uuid(self, gpu: str) -> str:
        """Return a GPU's UUID; its name if the UUID is unknown."""
        uuid = self._told(gpu, "nvmlDeviceGetUUID", _UUID)
        return uuid.decode() if isinstance(uuid, bytes) else str(uuid or gpu)

    def is_busy(self, gpus: Sequence[str]) -> bool:
        """Return whether one of the GPUs computes; False if unknown."""
        found = (self._told(name, "nvmlDeviceGetUtilizationRates", _BUSY) for name in gpus)
        return any(_number(getattr(each, "gpu", each)) or 0 for each in found)

    def _held(self, name: str, pids: Collection[int] | None) -> int | None:
        if pids is None:
            return self._memory(name, "used", _USED)
        if self._nvml is not None:
            running = self._told(name, "nvmlDeviceGetComputeRunningProcesses", 0) or ()
            used = [each.usedGpuMemory for each in running if each.pid in pids]
            return sum(used) if used and None not in used else None
        rows = self._ask("--query-compute-apps=gpu_uuid,pid,used_memory")
        uuid, wanted = self.uuid(name), {str(each) for each in pids}
        sizes = [_number(size) for of, pid, size in rows if of == uuid and pid in wanted]
        known = [each for each in sizes if each is not None]
        return sum(known) * 2**20 if known else None

    def _memory(self, gpu: str, which: str, column: int) -> int | None:
        """Return how much of a GPU's memory is used, or there is; None if unknown."""
        found = self._told(gpu, "nvmlDeviceGetMemoryInfo", column)
        if not isinstance(found, str):
            return None if found is None else int(getattr(found, which))
        size = _number(found)
        return None if size is None else size * 2**20

    def _told(self, gpu: str, call: str, column: int) -> Any:
        """Return what NVML, or a column of nvidia-smi, tells of a GPU; None if unknown."""
        if self._nvml is None:
            return next((row[column] for row in self._gpu_rows() if gpu in row[:2]), None)
        try:
            return getattr(self._nvml, call)(_handle(self._nvml, gpu))
        except self._nvml.NVMLError:
            return None

    def _gpu_rows(self) -> list[list[str]]:
        return self._ask("--query-gpu=index,uuid,memory.used,utilization.gpu,memory.total")

    def _ask(self, query: str) -> list[list[str]]:
        at, rows = self._asked.get(query, (-SMI_SECONDS, []))
        if self._command is None or time.monotonic() - at < SMI_SECONDS:
            return rows
        try:
            text = subprocess.run(
                [self._command, query, "--format=csv,noheader,nounits"],
                capture_output=True,
                text=True,
                timeout=20,
                check=True,
            ).stdout
        except (OSError, subprocess.SubprocessError):
            self._command = None
            return []
        rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines()]
        # Without the driver's messages, such as that it has lost a GPU.
        rows = [row for row in rows if len(row) == query.count(",") + 1]
        self._asked[query] = (time.monotonic(), rows)
        return rows


def _nvml() -> Any:
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # no such package, no driver, or one that does not fit
        return None
    return pynvml


def _number(told: Any) -> int | None:
    return int(told) if str(told).isdigit() else None


def _handle(nvml: Any, name: str) -> Any:
    if name.isdigit():
        return nvml.nvmlDeviceGetHandleByIndex(int(name))
    return nvml.nvmlDeviceGetHandleByUUID(name.encode())
