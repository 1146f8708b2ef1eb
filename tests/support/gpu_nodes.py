"""The kernel's files of nodes with GPUs of AMD and Intel, and runtimes that see those GPUs.

The values are those of the real machines; nothing here has run on them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GIB = 2**30

LUMI = ((0xC1, 3), (0xC6, 3), (0xC9, 1), (0xCE, 1), (0xD1, 0), (0xD6, 0), (0xD9, 2), (0xDE, 2))
"""The PCI bus of each die of LUMI's node, and the NUMA node that it is near."""

AURORA = (0x18, 0x2A, 0x42, 0x78, 0x8B, 0x93)
"""The PCI bus of each card of Aurora's node."""


@dataclass(frozen=True, slots=True)
class Sysfs:
    """The root of a tree of the kernel's files."""

    root: Path

    def write(self, path: str, text: object) -> None:
        """Write a file."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")

    def pci(self, address: str, cores: str, **files: object) -> None:
        """Add a PCI device with these files, and the cores near it."""
        for name, text in {"local_cpulist": cores, **files}.items():
            self.write(f"sys/bus/pci/devices/{address}/{name}", text)

    def numa(self, *cores: str) -> None:
        """Add NUMA nodes with these cores; for KFD they are the nodes without a GPU."""
        for place, each in enumerate(cores):
            self.write(f"sys/devices/system/node/node{place}/cpulist", each)
            self._kfd(place, simd_count=0, cpu_cores_count=16)

    def amd(self, node: int, location: int, memory_bytes: int, *, domain: int = 0) -> None:
        """Add a GPU as one of KFD's nodes."""
        self.write("dev/kfd", "")
        self._kfd(
            node, simd_count=440, location_id=location, domain=domain, unique_id=0xABC0 + node
        )
        where = f"sys/class/kfd/kfd/topology/nodes/{node}"
        self.write(f"{where}/gpu_id", 5000 + node)
        self.write(
            f"{where}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {memory_bytes}\nflags 0"
        )

    def _kfd(self, node: int, **properties: int) -> None:
        lines = "\n".join(f"{name} {value}" for name, value in properties.items())
        self.write(f"sys/class/kfd/kfd/topology/nodes/{node}/properties", lines)
        self.write(f"sys/class/kfd/kfd/topology/nodes/{node}/gpu_id", 0)

    def intel(self, card: int, address: str, cores: str, files: Mapping[str, object]) -> None:
        """Add a GPU as a card of DRM, with files below the card or its device."""
        self.pci(address, cores, vendor="0x8086")
        folder = self.root / f"sys/class/drm/card{card}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "device").symlink_to(self.root / "sys/bus/pci/devices" / address)
        self.write(f"sys/class/drm/card{card}-DP-1/status", "disconnected")
        for name, text in files.items():
            self.write(f"sys/class/drm/card{card}/{name}", text)


def mi250x(root: Path) -> Sysfs:
    """Make LUMI's node: four cards of two dies each, four NUMA nodes."""
    tree = Sysfs(root)
    cores = [f"{16 * each}-{16 * each + 15}" for each in range(4)]
    tree.numa(*cores)
    for place, (bus, numa) in enumerate(LUMI):
        tree.amd(4 + place, bus << 8, 64 * GIB)
        files = {"mem_info_vram_total": 64 * GIB, "mem_info_vram_used": place * GIB}
        tree.pci(f"0000:{bus:02x}:00.0", cores[numa], gpu_busy_percent=9 * place, **files)
    return tree


def mi300a(root: Path, partitions: int = 1) -> Sysfs:
    """Make a node of four APUs, each in a PCI domain of its own, or in partitions."""
    tree = Sysfs(root)
    tree.numa(*(f"{24 * each}-{24 * each + 23}" for each in range(4)))
    for each in range(4 * partitions):
        domain, partition = divmod(each, partitions)
        tree.amd(4 + each, partition << 28 | 0x100, 128 * GIB // partitions, domain=domain)
    for domain in range(4):
        cores = f"{24 * domain}-{24 * domain + 23}"
        tree.pci(f"{domain:04x}:01:00.0", cores, mem_info_vram_total=0, gpu_busy_percent=50)
    return tree


def max_1550(root: Path, driver: str = "i915") -> Sysfs:
    """Make Aurora's node: six cards of two tiles each, two sockets."""
    tree = Sysfs(root)
    for each, bus in enumerate(AURORA):
        if driver == "xe":
            files: dict[str, object] = {
                f"device/tile{tile}/physical_vram_size_bytes": 64 * GIB for tile in range(2)
            }
        else:
            files = {"lmem_total_bytes": 128 * GIB, "gt/gt0/id": 0, "gt/gt1/id": 1}
        cores = "0-51,104-155" if each < 3 else "52-103,156-207"
        tree.intel(each + 1, f"0000:{bus:02x}:00.0", cores, files)
    return tree


# --- runtimes: the devices that a framework sees, by their places on the machine


def cuda(uuids: Sequence[str], environment: Mapping[str, str]) -> list[int]:
    """What CUDA shows of devices with these UUIDs, of equal GPUs."""
    text = environment.get("CUDA_VISIBLE_DEVICES")
    if text is None:
        return list(range(len(uuids)))
    return _up_to_a_wrong_one(text, range(len(uuids)), uuids)


def hip(uuids: Sequence[str], environment: Mapping[str, str]) -> list[int]:
    """What HIP shows: ROCr leaves some, of which HIP leaves some, counted from 0 again."""
    left = list(range(len(uuids)))
    if (text := environment.get("ROCR_VISIBLE_DEVICES")) is not None:
        left = _up_to_a_wrong_one(text, left, uuids)
    given = environment.get("HIP_VISIBLE_DEVICES") or environment.get("CUDA_VISIBLE_DEVICES")
    return _up_to_a_wrong_one(given, left, uuids) if given else left


def sycl(cards: int, environment: Mapping[str, str]) -> list[tuple[int, ...]]:
    """What SYCL shows of cards of two tiles: the tiles of each device."""
    is_flat = environment.get("ZE_FLAT_DEVICE_HIERARCHY", "FLAT") == "FLAT"
    tiles = range(2 * cards)
    width = 1 if is_flat else 2
    shown = [tuple(range(each, each + width)) for each in tiles[::width]]
    if mask := environment.get("ZE_AFFINITY_MASK"):
        wanted = set[int]()
        for part in mask.split(","):
            device, _, tile = part.partition(".")
            if int(device) < len(shown) and (not tile or not is_flat):
                wanted.update([shown[int(device)][int(tile)]] if tile else shown[int(device)])
        shown = [kept for each in shown if (kept := tuple(t for t in each if t in wanted))]
    selector = environment.get("ONEAPI_DEVICE_SELECTOR") or "*:*"
    if found := re.fullmatch(r"level_zero:([\d,]+)", selector):
        return [shown[int(each)] for each in found[1].split(",") if int(each) < len(shown)]
    return shown if "gpu" in selector or "*" in selector else []


def _up_to_a_wrong_one(text: str, left: Sequence[int], uuids: Sequence[str]) -> list[int]:
    chosen = list[int]()
    for token in map(str.strip, text.split(",")):
        if token.isdecimal():
            named = list(left[int(token) : int(token) + 1])
        else:
            named = [each for each in left if uuids[each].startswith(token)]
        if len(named) != 1 or named[0] in chosen:
            break
        chosen += named
    return chosen
