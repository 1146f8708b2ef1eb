"""The GPUs of this machine, of whichever vendor."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, MutableMapping, Sequence

from .nvidia import Nvidia
from .sysfs import Amd, Intel
from .vendor import Note, Vendor, path, read

VENDORS: tuple[type[Vendor], ...] = (Nvidia, Amd, Intel)
"""If a machine has GPUs of several vendors, those of the first one are used."""

GIVEN = "HPTUNE_WORKER_DEVICES"
"""Variable of a worker: the names of its GPUs, where the master or the job's script chose them."""

_DEVICE_FILES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/dxg")
"""Prefixes of the files that a process on a GPU has open: NVIDIA, AMD, any graphics card, WSL."""


class Gpus:
    """The GPUs that this process may use; one object serves all attempts of a worker.

    GPUs are given by their names, as `names` has them. What a vendor does not tell is None or 0.
    """

    def __init__(self) -> None:
        self._vendors = tuple(vendor() for vendor in VENDORS)

    @property
    def vendor(self) -> Vendor:
        """The vendor of this machine's GPUs: whose devices are found, or else whose variable is."""
        found = [each for each in self._vendors if any(not d.is_integrated for d in each.devices)]
        found += [each for each in self._vendors if each.applied(os.environ)]
        return found[0] if found else self._vendors[0]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the GPUs. May set CUDA_DEVICE_ORDER, without which numbers are unclear."""
        given = os.environ.get(GIVEN)
        if given is not None:
            return tuple(filter(None, given.split(",")))
        vendor = self.vendor
        return tuple(vendor.prefix + each for each in vendor.visible(os.environ))

    @property
    def way(self) -> str:
        """The way by which they are found, in words."""
        applied = " and ".join(name for name, _ in self.vendor.applied(os.environ))
        return f"{self.vendor.title}, by {applied or self.vendor.source}"

    @property
    def notes(self) -> tuple[Note, ...]:
        """What is wrong with the variables, or unknown of the devices."""
        return tuple(self.vendor.notes(os.environ))

    def total_bytes(self, gpus: Sequence[str]) -> int:
        """Return the memory of the smallest of these GPUs; 0 if one of them is unknown."""
        return min((found.memory_bytes if (found := vendor.gpu(name)) else 0
                    for vendor, name in map(self._of, gpus)), default=0)  # fmt: skip

    def memory_bytes(self, gpus: Sequence[str], pids: Collection[int] | None) -> int | None:
        """Return the memory that these processes, or all (None), hold on the fullest GPU."""
        held = [vendor.used_bytes(name, pids) for vendor, name in map(self._of, gpus)]
        return max((each for each in held if each is not None), default=None)

    def joules(self, gpus: Sequence[str]) -> float | None:
        """Return what the energy counters of these GPUs show, in sum; None if one is unknown."""
        shown = [vendor.joules(name) for vendor, name in map(self._of, gpus)]
        known = [each for each in shown if each is not None]
        return sum(known) if 0 < len(known) == len(shown) else None

    def is_busy(self, gpus: Sequence[str]) -> bool:
        """Return whether one of the GPUs computes; False if unknown."""
        return any(vendor.is_busy(name) for vendor, name in map(self._of, gpus))

    def is_open(self, pids: Collection[int]) -> bool:
        """Return whether one of these processes has any GPU open."""
        for pid in pids:
            with contextlib.suppress(OSError), os.scandir(f"/proc/{pid}/fd") as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if os.readlink(entry.path).startswith(_DEVICE_FILES):  # noqa: PTH115 - many
                            return True
        return False

    def identity(self, gpu: str) -> str:
        """Return the name of a GPU among all processes of this machine; empty if unknown."""
        vendor, name = self._of(gpu)
        found = vendor.gpu(name)
        return found.identity if found else ""

    def cores_near(self, gpu: str) -> str:
        """Return the cores near a GPU, as a list of the kernel's; empty if unknown."""
        vendor, name = self._of(gpu)
        found = vendor.gpu(name)
        if found is None or not found.address:
            return ""
        return read(path("sys/bus/pci/devices", found.address, "local_cpulist"))

    def _of(self, gpu: str) -> tuple[Vendor, str]:
        prefix = _prefix(gpu)
        vendor = next(each for each in self._vendors if each.prefix == prefix)
        return vendor, gpu.removeprefix(prefix)


def confine(gpus: Sequence[str], environment: MutableMapping[str, str]) -> None:
    """Change variables so that a framework which reads them sees these GPUs alone, or none."""
    environment.pop(GIVEN, None)
    for vendor in VENDORS:
        own = [gpu.removeprefix(vendor.prefix) for gpu in gpus if _prefix(gpu) == vendor.prefix]
        if own:
            vendor.confine(own, environment)
        elif not gpus:
            environment.update(vendor.hidden)


def _prefix(gpu: str) -> str:
    return gpu[: gpu.find(":") + 1]
