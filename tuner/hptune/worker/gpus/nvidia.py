"""NVIDIA's GPUs, by NVML (the extra `gpu`) or else by nvidia-smi."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import subprocess
import time
from collections.abc import Collection, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, ClassVar, NamedTuple

from .vendor import Filter, Gpu, Note, Vendor, number

SMI_SECONDS = 30.0
"""Least number of seconds between two calls of nvidia-smi, which may use seconds of CPU time."""

ANSWER_SECONDS = 20.0
"""How long nvidia-smi may take. With a driver that hangs, it never ends."""

PAUSE_SECONDS = 600.0
"""How long this process does not call nvidia-smi after it did not answer in time."""

_VISIBLE, _ORDER, _BY_BUS = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "PCI_BUS_ID"

_COLUMNS = "index,uuid,memory.used,utilization.gpu,memory.total,name,pci.bus_id"
_UUID, _USED, _BUSY, _TOTAL, _MODEL, _ADDRESS = range(1, 7)
"""Columns of nvidia-smi, after the GPU's number."""


class _Card(NamedTuple):
    """A GPU as the driver knows it. If MIG divides it, its slices are the devices."""

    number: str
    uuid: str
    model: str
    address: str
    memory_bytes: int
    slices: tuple[tuple[str, int], ...] = ()


class Nvidia(Vendor):
    """NVIDIA's GPUs. If neither NVML nor nvidia-smi answers, an object does not ask them again.

    NVML alone tells of slices by MIG.

    The driver numbers GPUs by their PCI buses, and so does Slurm. By default CUDA gives the number
    0 to the fastest one, so CUDA_DEVICE_ORDER is set where numbers are the driver's or Slurm's. If
    GPUs are unequal or divided by MIG, those that no variable names have their UUIDs as names, and
    nothing is known of a number in a variable unless that order is set.
    """

    title, prefix = "NVIDIA", ""
    filters = (Filter((_VISIBLE,), empty_hides_all=True),)
    hidden: ClassVar[Mapping[str, str]] = {_VISIBLE: ""}
    source, tool = "the driver", "nvidia-smi"
    build = "its CUDA build, such as pip install 'tensorflow[and-cuda]'"

    hung_at: ClassVar[float] = -math.inf
    """When nvidia-smi last did not answer in time, for all objects of this process."""

    def __init__(self) -> None:
        self._command = shutil.which("nvidia-smi")
        self._asked: dict[str, tuple[float, list[list[str]]]] = {}
        self._uuids: dict[str, str] = {}

    @functools.cached_property
    def _nvml(self) -> Any:
        try:
            import pynvml

            pynvml.nvmlInit()
        except Exception:  # no such package, no driver, or one that does not fit
            return None
        return pynvml

    def visible(self, environment: MutableMapping[str, str]) -> list[str]:
        """Return the names of the visible devices, and set CUDA_DEVICE_ORDER for their numbers."""
        names = super().visible(environment)
        if names:
            self.set_order(environment)
        return names

    @staticmethod
    def set_order(environment: MutableMapping[str, str]) -> None:
        """Set CUDA_DEVICE_ORDER if numbers of GPUs are the driver's or Slurm's, not a user's."""
        if _VISIBLE not in environment or "SLURM_JOB_ID" in environment:
            environment.setdefault(_ORDER, _BY_BUS)

    def _chosen(self, left: Sequence[str], names: Sequence[str]) -> list[str]:
        del left
        return self._plausible(names)  # whether there is such a device, CUDA knows

    def gpu(self, name: str) -> Gpu | None:
        """Return what is known of a device, by its number or its UUID, or the UUID's beginning."""
        every = self.devices
        if name.isdecimal():
            name = self._uuids.get(name, "") if self._are_numbers_known(os.environ) else ""
        found = [each for each in every if name and each.identity.startswith(name)]
        exact = [each for each in found if each.identity == name]
        return exact[0] if exact else found[0] if len(found) == 1 else None

    def _are_numbers_known(self, environment: Mapping[str, str]) -> bool:
        are_equal = all(device.name != device.identity for device in self.devices)
        return are_equal or environment.get(_ORDER) == _BY_BUS

    def notes(self, environment: Mapping[str, str]) -> Iterator[Note]:
        """Yield what is wrong with the variables, or unknown of the visible devices."""
        yield from super().notes(environment)
        names = self.visible(dict(environment))
        if any(name.isdecimal() for name in names) and not self._are_numbers_known(environment):
            yield Note(
                f"the GPUs are unequal, and {_VISIBLE} has CUDA's own numbers: which GPU is meant, "
                "and its memory, are unknown",
                f"set {_ORDER}={_BY_BUS}, or name the GPUs by their UUIDs (nvidia-smi -L)",
            )
        if any(name.startswith("MIG-") for name in names):
            yield Note(
                "the driver does not tell whether a MIG slice computes; a trial there "
                "counts as hanging if it neither reports nor uses a processor",
                "nothing, unless epochs take longer than --hang-timeout",
            )

    def _find(self) -> Iterator[Gpu]:
        cards = list(self._cards_by_smi() if self._nvml is None else self._cards_by_nvml())
        self._uuids = {card.number: card.uuid for card in cards}
        are_equal = len({card.model for card in cards}) == 1
        has_numbers = are_equal and not any(card.slices for card in cards)
        for card in cards:
            if card.uuid and not card.slices:
                name = card.number if has_numbers else card.uuid
                yield Gpu(name, card.uuid, card.address, card.memory_bytes)
            for uuid, memory_bytes in card.slices:
                yield Gpu(uuid, uuid, card.address, memory_bytes)

    def used_bytes(self, name: str, pids: Collection[int] | None) -> int | None:
        """Return the memory that these processes, or all (None), hold on a device.

        In a container, the driver may know the processes by other numbers.
        """
        gpu = self.gpu(name)
        if gpu is None:
            return None
        if self._nvml is None:
            return self._used_by_smi(gpu.identity, pids)
        if pids is None:
            memory = self._of_device(gpu, "nvmlDeviceGetMemoryInfo")
            return None if memory is None else int(memory.used)
        running = self._of_device(gpu, "nvmlDeviceGetComputeRunningProcesses") or ()
        used = [each.usedGpuMemory for each in running if each.pid in pids]
        return sum(used) if used and None not in used else None

    def is_busy(self, name: str) -> bool | None:
        """Return whether a device computes; of a slice, the driver does not say."""
        gpu = self.gpu(name)
        if gpu is None:
            return None
        if self._nvml is None:
            busy = number(self._row(gpu.identity)[_BUSY])
        else:
            busy = getattr(self._of_device(gpu, "nvmlDeviceGetUtilizationRates"), "gpu", None)
        return None if busy is None else busy > 0

    def joules(self, name: str) -> float | None:
        """Return what the energy counter of a device shows; NVML alone has it, of no slice."""
        gpu = None if self._nvml is None else self.gpu(name)
        counter = "nvmlDeviceGetTotalEnergyConsumption"
        millijoules = None if gpu is None else self._of_device(gpu, counter)
        return None if millijoules is None else millijoules / 1000.0

    # --- NVML

    def _cards_by_nvml(self) -> Iterator[_Card]:
        for place in range(self._tell("nvmlDeviceGetCount") or 0):
            card = self._tell("nvmlDeviceGetHandleByIndex", place)
            most = self._tell("nvmlDeviceGetMaxMigDeviceCount", card) or 0
            slices = (self._tell("nvmlDeviceGetMigDeviceHandleByIndex", card, i)
                      for i in range(most))  # fmt: skip
            yield _Card(
                str(place),
                self._uuid(card),
                str(self._tell("nvmlDeviceGetName", card)),
                _address(getattr(self._tell("nvmlDeviceGetPciInfo", card), "busId", "")),
                self._total(card),
                tuple((self._uuid(each), self._total(each)) for each in slices if each is not None),
            )

    def _tell(self, call: str, *arguments: Any) -> Any:
        """Return what NVML tells; None if it does not, or its package is too old for the call."""
        try:
            return None if None in arguments else getattr(self._nvml, call)(*arguments)
        except (AttributeError, self._nvml.NVMLError):
            return None

    def _of_device(self, gpu: Gpu, call: str) -> Any:
        return self._tell(call, self._tell("nvmlDeviceGetHandleByUUID", gpu.identity.encode()))

    def _uuid(self, handle: Any) -> str:
        return _text(self._tell("nvmlDeviceGetUUID", handle) or "")

    def _total(self, handle: Any) -> int:
        return int(getattr(self._tell("nvmlDeviceGetMemoryInfo", handle), "total", 0))

    # --- nvidia-smi

    def _cards_by_smi(self) -> Iterator[_Card]:
        for row in self._rows():
            address, memory_bytes = _address(row[_ADDRESS]), _megabytes(row[_TOTAL]) or 0
            yield _Card(row[0], row[_UUID], row[_MODEL], address, memory_bytes)

    def _used_by_smi(self, uuid: str, pids: Collection[int] | None) -> int | None:
        if pids is None:
            return _megabytes(self._row(uuid)[_USED])
        rows = self._table("--query-compute-apps=gpu_uuid,pid,used_memory")
        wanted = {str(each) for each in pids}
        sizes = [_megabytes(size) for of, pid, size in rows if of == uuid and pid in wanted]
        known = [each for each in sizes if each is not None]
        return sum(known) if known else None

    def _rows(self) -> list[list[str]]:
        return self._table(f"--query-gpu={_COLUMNS}")

    def _row(self, uuid: str) -> list[str]:
        unknown = [""] * (1 + _COLUMNS.count(","))
        return next((row for row in self._rows() if row[_UUID] == uuid), unknown)

    def _table(self, query: str) -> list[list[str]]:
        at, rows = self._asked.get(query, (-SMI_SECONDS, []))
        if self._command is None or time.monotonic() - at < SMI_SECONDS:
            return rows
        try:
            output = _answer([self._command, query, "--format=csv,noheader,nounits"])
        except (OSError, subprocess.SubprocessError):
            self._command = None
            return []
        rows = [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]
        # Without the driver's messages, such as that it has lost a GPU.
        rows = [row for row in rows if len(row) == query.count(",") + 1]
        self._asked[query] = (time.monotonic(), rows)
        return rows


def _answer(command: Sequence[str]) -> str:
    """Return the output of nvidia-smi.

    Raises:
        subprocess.SubprocessError: It failed, or did not answer in time, now or a short time ago.
        OSError: It cannot be started.
    """
    if time.monotonic() - Nvidia.hung_at < PAUSE_SECONDS:
        raise subprocess.TimeoutExpired(command, ANSWER_SECONDS)
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        output, _ = process.communicate(timeout=ANSWER_SECONDS)
    except subprocess.TimeoutExpired:
        Nvidia.hung_at = time.monotonic()
        process.kill()
        # `subprocess.run` would wait for its end, which does not come while the driver hangs.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
        if process.stdout is not None:
            process.stdout.close()
        raise
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return output


def _address(told: Any) -> str:
    """Return a PCI address as sysfs writes it.

    >>> _address("00000000:3B:00.0")
    '0000:3b:00.0'
    """
    return _text(told).lower()[-12:]


def _text(told: Any) -> str:
    return told.decode() if isinstance(told, bytes) else str(told)


def _megabytes(text: str) -> int | None:
    found = number(text)
    return None if found is None else found * 2**20
