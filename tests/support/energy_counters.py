"""A node whose energy counters a test serves: a folder in place of /sys and /proc."""

from __future__ import annotations

import os
from pathlib import Path

RANGE_UJ = 999_999_999
"""The last value of a package's counter, before it begins again at 0: some 1000 joules."""

_TICKS = os.sysconf("SC_CLK_TCK")
_PACKAGE, _DRAM = "intel-rapl:0", "intel-rapl:0:1"
_ZONES = {
    _PACKAGE: "package-0",
    "intel-rapl:0:0": "core",
    _DRAM: "dram",
    "intel-rapl:1": "psys",
    "intel-rapl-mmio:0": "package-0",
}
"""The zones of a node by folder; only the package and its memory are to count."""


class EnergyCounters:
    """The files of a node with one package and its memory.

    Attributes:
        root: The folder in place of `/`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder, name in _ZONES.items():
            zone = self._zone(folder)
            zone.mkdir(parents=True)
            (zone / "name").write_text(f"{name}\n")
            (zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
            (zone / "energy_uj").write_text("123456\n")
        self.stat = root / "proc/stat"
        self.stat.parent.mkdir()
        self._busy_seconds = 5.0
        self.use()

    @property
    def package(self) -> Path:
        """The package's counter."""
        return self._zone(_PACKAGE) / "energy_uj"

    def use(
        self, *, joules: float = 0.0, dram_joules: float = 0.0, busy_seconds: float = 0.0
    ) -> None:
        """Count energy, and processor time of all processes of the node."""
        of_memory = {_DRAM: dram_joules}
        for folder in _ZONES:  # also those that are parts of others, or have the others as parts
            file = self._zone(folder) / "energy_uj"
            count = int(file.read_text()) + round(of_memory.get(folder, joules) * 1e6)
            file.write_text(f"{count % (RANGE_UJ + 1)}\n")
        self._busy_seconds += busy_seconds
        busy = round(self._busy_seconds * _TICKS)
        idle = 7 * busy
        # user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
        times = f"{busy} 10 20 {idle} {idle} 30 40 {idle} {busy} {busy}"
        self.stat.write_text(f"cpu  {times}\ncpu0 1 2 3\n")

    def forbid(self) -> None:
        """Have the package's counter refuse to be read, also by root."""
        self.package.unlink()
        self.package.mkdir()

    def _zone(self, folder: str) -> Path:
        return self.root / "sys/class/powercap" / folder
