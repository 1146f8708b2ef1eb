"""GPUs of AMD and Intel, as the kernel shows them in sysfs.

Devices are those that the runtimes show: of AMD's cards with two dies (MI250X), each die is one; of
Intel's cards with tiles, each tile, unless ZE_FLAT_DEVICE_HIERARCHY is COMPOSITE.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from .vendor import Filter, Gpu, Note, Vendor, number, path, read

_MASK, _SELECTOR = "ZE_AFFINITY_MASK", "ONEAPI_DEVICE_SELECTOR"
_HIERARCHY = "ZE_FLAT_DEVICE_HIERARCHY"

_SMALL_BYTES = 4 * 2**30
"""A desktop processor lends its GPU less of the main memory than this."""

_VRAM = ("1", "2")
"""Types of KFD's memory banks that are the device's own."""


class Amd(Vendor):
    """AMD's GPUs, by KFD: ROCr numbers its nodes; HIP numbers what ROCr leaves from 0 again."""

    title, prefix = "AMD", "amd:"
    filters = (
        Filter(("ROCR_VISIBLE_DEVICES",), empty_hides_all=True),
        Filter(("HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")),
    )
    hidden: ClassVar[Mapping[str, str]] = {"ROCR_VISIBLE_DEVICES": ""}
    source, tool = "KFD in sysfs", "rocm-smi"
    build = "its ROCm build (tensorflow-rocm, jax[rocm7-local], or PyTorch for ROCm)"

    def __init__(self) -> None:
        self._uuids: dict[str, str] = {}

    def _find(self) -> Iterator[Gpu]:
        nodes = path("sys/class/kfd/kfd/topology/nodes")
        if not os.access(path("dev/kfd"), os.R_OK | os.W_OK):
            return
        place = 0
        for node in sorted(nodes.glob("[0-9]*"), key=lambda each: int(each.name)):
            # Nodes of other jobs cannot be read, and ROCr does not number them.
            facts = _facts(node / "properties")
            if not int(facts.get("simd_count", 0)):
                continue
            identity, name = read(node / "gpu_id"), str(place)
            place += 1
            self._uuids[name] = f"GPU-{int(facts.get('unique_id', 0)):016X}"
            address = _address(int(facts.get("domain", 0)), int(facts.get("location_id", 0)))
            lent = number(read(_pci(address) / "mem_info_vram_total")) or 0
            banks = (_facts(each) for each in node.glob("mem_banks/*/properties"))
            memory = sum(int(b["size_in_bytes"]) for b in banks if b.get("heap_type") in _VRAM)
            yield Gpu(name, identity, address, memory, is_integrated=0 < lent < _SMALL_BYTES)

    def _match(self, left: Sequence[str], name: str) -> str | None:
        if not name.upper().startswith("GPU-"):
            return super()._match(left, name)
        found = [each for each in left if self._uuids.get(each, name).startswith(name.upper())]
        return found[0] if len(found) == 1 else None

    def used_bytes(self, name: str, pids: Collection[int] | None) -> int | None:
        """Return the memory that these processes, or all (None), hold on a device."""
        gpu = self.gpu(name)
        if gpu is None:
            return None
        if pids is None:
            return number(read(_pci(gpu.address) / "mem_info_vram_used"))
        kfd = path("sys/class/kfd/kfd/proc")
        held = [number(read(kfd / str(pid) / f"vram_{gpu.identity}")) for pid in pids]
        known = [each for each in held if each is not None]
        return sum(known) if known else None

    def is_busy(self, name: str) -> bool | None:
        """Return whether a device computes."""
        gpu = self.gpu(name)
        busy = number(read(_pci(gpu.address) / "gpu_busy_percent")) if gpu else None
        return None if busy is None else busy > 0


class Intel(Vendor):
    """Intel's GPUs, by DRM, which tells neither who uses their memory nor whether they compute."""

    title, prefix = "Intel", "intel:"
    filters = (Filter((_MASK,)), Filter((_SELECTOR,)))
    hidden: ClassVar[Mapping[str, str]] = {_SELECTOR: "opencl:cpu"}
    source, tool = "DRM in sysfs", "xpu-smi"
    build = "its XPU build (PyTorch for XPU, or intel-extension-for-tensorflow[xpu])"

    def __init__(self) -> None:
        self._tiles: dict[str, list[int]] = {}

    def _find(self) -> Iterator[Gpu]:
        cards = {}
        for card in path("sys/class/drm").glob("card[0-9]*"):
            if card.name[4:].isdecimal() and read(card / "device/vendor") == "0x8086":
                cards[(card / "device").resolve().name] = card
        place = 0
        # Level Zero numbers the one of a desktop processor, which is on the first bus, last.
        for address in sorted(cards, key=lambda each: (_is_on_first_bus(each), each)):
            tiles = _tiles(cards[address])
            self._tiles[str(place)] = tiles
            parts = [sum(tiles)] if _are_cards_whole(os.environ) else tiles
            for tile, memory in enumerate(parts):
                identity = f"{address} {tile if len(parts) > 1 else ''}".strip()
                is_integrated = _is_on_first_bus(address)
                yield Gpu(str(place), identity, address, memory, is_integrated=is_integrated)
                place += 1

    def gpu(self, name: str) -> Gpu | None:
        """Return what is known of a device, which may be a tile of a card."""
        card, _, tile = name.partition(".")
        whole = super().gpu(card)
        if whole is None or not tile:
            return whole
        memory = dict(enumerate(self._tiles[card])).get(int(tile), 0)
        return replace(whole, name=name, identity=f"{whole.identity} {tile}", memory_bytes=memory)

    @classmethod
    def _named(cls, variable: str, text: str, environment: Mapping[str, str]) -> list[str] | None:
        if variable == _SELECTOR:
            return _selected(text)
        form = r"\d+(\.\d+)?" if _are_cards_whole(environment) else r"\d+"
        names = {each.strip() for each in text.split(",") if re.fullmatch(form, each.strip())}
        return sorted(names, key=lambda each: [int(part) for part in each.split(".")])

    def _match(self, left: Sequence[str], name: str) -> str | None:
        card, _, tile = name.partition(".")
        return name if tile and card in left else super()._match(left, name)

    def notes(self, environment: Mapping[str, str]) -> Iterator[Note]:
        """Yield what is wrong with the variables, or unknown of the visible devices."""
        yield from super().notes(environment)
        mask = environment.get(_MASK, "")
        if "." in mask and not _are_cards_whole(environment):
            yield Note(
                f"{_MASK} is {mask}, but {_HIERARCHY} is FLAT (the default), where each tile is a "
                "device with a number of its own",
                f"name the tiles by these numbers, or set {_HIERARCHY}=COMPOSITE",
            )


def _selected(text: str) -> list[str] | None:
    """Return the numbers of Level Zero's devices that a selector of SYCL's has; None for all.

    >>> _selected("level_zero:1,0"), _selected("opencl:gpu;level_zero:gpu"), _selected("opencl:cpu")
    (['1', '0'], None, [])
    """
    terms = [each.strip().partition(":") for each in text.split(";")]
    accepted = [term for term in terms if not term[0].startswith("!")]
    names = [
        name.strip()
        for backend, _, devices in accepted
        if backend.lower() in ("level_zero", "*")
        for name in devices.split(",")
    ]
    leaves_all = not accepted or {"*", "gpu"} & set(names)
    return None if leaves_all else [each for each in names if each.isdecimal()]


def _are_cards_whole(environment: Mapping[str, str]) -> bool:
    return environment.get(_HIERARCHY, "").upper() == "COMPOSITE"


def _is_on_first_bus(address: str) -> bool:
    return address.startswith("0000:00:")


def _tiles(card: Path) -> list[int]:
    """Return the memory of each tile of a card, as the driver xe or else i915 shows them."""
    if tiles := sorted((card / "device").glob("tile[0-9]*")):
        return [number(read(tile / "physical_vram_size_bytes")) or 0 for tile in tiles]
    count = len(list(card.glob("gt/gt[0-9]*"))) or 1
    return [(number(read(card / "lmem_total_bytes")) or 0) // count] * count


def _facts(file: Path) -> dict[str, str]:
    """Return the names and values in a file of KFD's; none if it cannot be read."""
    return dict(line.split(maxsplit=1) for line in read(file).splitlines() if " " in line)


def _address(domain: int, location: int) -> str:
    """Return a PCI address; above its 16 bits, a location has the number of a partition.

    >>> _address(0, 0xC100), _address(1, 0x3000D108)
    ('0000:c1:00.0', '0001:d1:01.0')
    """
    bus, device, function = location >> 8 & 0xFF, location >> 3 & 0x1F, location & 7
    return f"{domain:04x}:{bus:02x}:{device:02x}.{function}"


def _pci(address: str) -> Path:
    return path("sys/bus/pci/devices", address)
