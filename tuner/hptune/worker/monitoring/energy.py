"""The energy of attempts: of processors and memory from RAPL, of GPUs from their drivers.

All that use a device divide its energy, with that of its idle time: a node's processors and memory
by the processor time of each process, a GPU by what each attempt holds of it. What cannot be read
is None, never 0, and what an attempt has used is 0 at its first measurement.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from ..gpus.machine import Gpus
from ..gpus.vendor import number, path, read

_TICKS = os.sysconf("SC_CLK_TCK")


class Processors:
    """The energy counters of a node's processors and memory; one object serves all attempts.

    A counter begins again at 0 after its range, under load every few minutes. May be called from
    any thread.

    Attributes:
        can_be_read: Whether this process could read them at its beginning.
    """

    def __init__(self) -> None:
        zones = sorted(path("sys/class/powercap").glob("intel-rapl:*"))
        # The other zones are parts of a package, or the whole machine.
        self._zones = [
            each for each in zones if read(each / "name").startswith(("package", "dram"))
        ]
        self._ranges = self._counts("max_energy_range_uj") or ()
        self._lock = threading.Lock()
        self._microjoules = 0
        self._before = self._counts("energy_uj") or ()
        are_counted = bool(self._ranges and self._before)
        self.can_be_read = are_counted and _is_time_of_the_node() and _busy_seconds() > 0.0

    def _counts(self, file: str) -> Sequence[int] | None:
        counts = [number(read(zone / file)) for zone in self._zones]
        known = [each for each in counts if each is not None]
        return known if 0 < len(known) == len(counts) else None

    def take(self) -> tuple[float, float] | None:
        """Return the joules so far, and the processor time of all processes; None if unknown."""
        with self._lock:
            if not self.can_be_read or (counts := self._counts("energy_uj")) is None:
                return None
            for now, before, most in zip(counts, self._before, self._ranges, strict=True):
                self._microjoules += (now - before) % (most + 1)
            self._before = counts
            return self._microjoules / 1e6, _busy_seconds()


class EnergyMeter:
    """A meter of one attempt's energy.

    Args:
        processors: Those of its node.
        gpus: The names of its GPUs.
        gpu_usage: Reads the counters of GPUs.
        gpu_part: Returns the attempt's part of its GPUs' energy at present.
    """

    def __init__(
        self,
        processors: Processors,
        gpus: Sequence[str],
        gpu_usage: Gpus,
        gpu_part: Callable[[], float],
    ) -> None:
        self._processors = processors
        self._gpus = gpus
        self._gpu_usage = gpu_usage
        self._gpu_part = gpu_part
        self._lock = threading.Lock()
        self._before: tuple[float, float, float] | None = None
        self._gpus_before: float | None = None
        self.processor_joules: float | None = None
        self.gpu_joules: float | None = None

    def take_processors(self, cpu_seconds: float) -> None:
        """Add what the attempt's processes have used; may be called from any thread.

        Args:
            cpu_seconds: Their processor time so far.
        """
        with self._lock:
            if (now := self._processors.take()) is None:
                return
            joules, busy_seconds = now
            if self._before is None:
                self.processor_joules = 0.0
            else:
                before, busy_before, own_before = self._before
                if busy_seconds <= busy_before:
                    return  # the next one that computes has the energy since then
                part = (cpu_seconds - own_before) / (busy_seconds - busy_before)
                used = min(max(0.0, part), 1.0) * (joules - before)
                self.processor_joules = (self.processor_joules or 0.0) + used
            self._before = joules, busy_seconds, cpu_seconds

    def take_gpus(self) -> None:
        """Add what its GPUs have used; a driver may not answer for long."""
        if not self._gpus or (joules := self._gpu_usage.joules(self._gpus)) is None:
            return
        if self._gpus_before is None:
            self.gpu_joules = 0.0
        else:
            # A driver that was loaded again counts from 0.
            used = self._gpu_part() * max(0.0, joules - self._gpus_before)
            self.gpu_joules = (self.gpu_joules or 0.0) + used
        self._gpus_before = joules


def can_be_read(gpus: Sequence[str]) -> bool:
    """Return whether this process can read the energy of processors or of these GPUs."""
    return Processors().can_be_read or Gpus().joules(gpus) is not None


def _is_time_of_the_node() -> bool:
    """Return whether the processor time is of the whole node, as the energy is.

    LXC mounts a file in place of /proc/stat that has the container's own time.
    """
    try:
        return path("proc/stat").stat().st_dev == path("proc").stat().st_dev
    except OSError:
        return False


def _busy_seconds() -> float:
    """Return the processor time of all processes of the node; 0 if unknown."""
    words = read(path("proc/stat")).partition("\n")[0].split()
    # In user, system and interrupts; not idle, and not of other virtual machines.
    return sum(map(int, (*words[1:4], *words[6:8]))) / _TICKS
