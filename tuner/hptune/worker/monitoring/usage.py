"""The use of an attempt: memory and CPU time of all its processes, from /proc.

An attempt that waits for a core that others use is not idle. So the time that each thread waits
is measured too (the second number of `schedstat`).

An attempt is forked from a server that has imported a framework. Pages still shared with the server
cost nothing and are not counted. For an attempt of one process, memory is what the process alone
has written (`Private_Dirty`), which its end would free. An attempt with child processes (data
loaders) shares pages among these. Each of its pages counts by the process's share (`Pss`), which
overestimates by a part of the server's pages and never underestimates. File pages, such as
memory-mapped data, are not counted, because the kernel can drop them.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...core.attempt import Usage
from ..gpus.machine import Gpus
from ..process_ids import children_of, parent_of, stat_of, trial_of
from .energy import EnergyMeter

_GROWTHS = (1.05, 1.05, 1.5)
"""Factors by which the peaks of memory, and the energy, must grow to be reported again."""

STEP_TIME_SECONDS = 1.0
"""Seconds from an attempt's first report until its time per step is reported."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """The use of an attempt's processes at an instant.

    Attributes:
        pids: The processes.
        memory_bytes: The memory that they hold.
        peak_memory_bytes: A lower bound of the most memory held at one time.
        cpu_seconds: CPU time of those that run, and of those whose parents have waited for them.
        delays: Nanoseconds that each thread was ready and waited for a core.
    """

    pids: tuple[int, ...]
    memory_bytes: int
    peak_memory_bytes: int
    cpu_seconds: float
    delays: Mapping[int, int]


def sample(pid: int) -> Sample | None:
    """Measure a trial's process and all that it started; None if it has ended."""
    pids = (*_tree(pid), *_orphans(pid))
    memory, seconds = 0, 0.0
    delays = dict[int, int]()
    try:
        for each in pids:
            try:
                memory += _memory_bytes(each, is_alone=len(pids) == 1)
                # utime and stime, and cutime and cstime of the children that it has waited for
                seconds += sum(map(int, stat_of(each)[11:15])) / _TICKS
                delays.update(_delays(each))
            except (OSError, ValueError):
                if each == pid:
                    raise
        status = _fields(Path(f"/proc/{pid}/status"))
        # The kernel also records the peaks between two samples.
        above = max(0, status.get("VmHWM", 0) - status.get("VmRSS", 0))
    except (OSError, ValueError):
        return None
    return Sample(pids, memory, memory + above, seconds, delays)


class Starvation:
    """Sum of the times that the threads of an attempt waited for a core, also of ended threads."""

    def __init__(self) -> None:
        self._latest: Mapping[int, int] = {}
        self._of_ended = 0

    def seconds(self, delays: Mapping[int, int]) -> float:
        """Return the sum, given the present `Sample.delays`."""
        # A smaller number than before belongs to a new thread with the same id.
        self._of_ended += sum(
            delay for thread, delay in self._latest.items() if delays.get(thread, -1) < delay
        )
        self._latest = delays
        return (self._of_ended + sum(delays.values())) / 1e9


class Meter:
    """A meter of one attempt's use.

    Args:
        pid: The attempt's process.
        gpus: The names of its GPUs.
        is_alone: Whether no other attempt gets these GPUs while it runs. Then all memory in use
            there counts as its own if the driver does not tell it by process.
        gpu_usage: The GPUs' use; None if there are none.
        energy: Its energy; None if no counter can be read.
    """

    def __init__(
        self,
        pid: int,
        gpus: tuple[str, ...] = (),
        *,
        is_alone: bool = False,
        gpu_usage: Gpus | None = None,
        energy: EnergyMeter | None = None,
    ) -> None:
        self.pid = pid
        self.energy = energy
        self._gpus = gpus
        self._is_alone = is_alone
        self._gpu_usage = gpu_usage
        self._began = time.monotonic()
        self._first_report: tuple[int, float] | None = None
        self._seconds_per_step: float | None = None
        self._peak = 0
        self._gpu_peak: int | None = None
        self._device_peak: int | None = None
        self._has_opened_gpu: bool | None = None  # None: unknown
        self._reported: tuple[float, ...] | None = None
        self._is_step_time_reported = False
        self.memory_bytes = 0
        self.cpu_seconds = 0.0
        self._starved = Starvation()
        self._starved_seconds = 0.0
        self._seconds = 0.0

    def take(self) -> None:
        """Measure the attempt now; if it has ended, all but the energy stays."""
        if (found := sample(self.pid)) is not None:
            self._take(found)
        if self.energy is not None:
            self.energy.take_processors(self.cpu_seconds)
            self.energy.take_gpus()

    def _take(self, found: Sample) -> None:
        self.memory_bytes = found.memory_bytes
        self._peak = max(self._peak, found.peak_memory_bytes)
        self.cpu_seconds = max(self.cpu_seconds, found.cpu_seconds)
        self._starved_seconds = max(self._starved_seconds, self._starved.seconds(found.delays))
        self._seconds = time.monotonic() - self._began
        if self._gpu_usage is not None and self._gpus:
            self._look_at_gpus(self._gpu_usage, found.pids)

    def _look_at_gpus(self, gpu_usage: Gpus, pids: tuple[int, ...]) -> None:
        held = gpu_usage.memory_bytes(self._gpus, pids)
        if held is not None:
            self._gpu_peak = max(self._gpu_peak or 0, held)
        elif self._gpu_peak is None:
            self._has_opened_gpu = self._has_opened_gpu or gpu_usage.is_open(pids)
            if self._is_alone and self._has_opened_gpu:
                held = gpu_usage.memory_bytes(self._gpus, None)
                self._device_peak = max(self._device_peak or 0, held or 0) or None

    def add(self, usage: Usage) -> None:
        """Merge what the attempt measured of itself."""
        self._peak = max(self._peak, usage.peak_memory_bytes)
        self.cpu_seconds = max(self.cpu_seconds, usage.cpu_seconds)
        self._starved_seconds = max(self._starved_seconds, usage.starved_seconds)
        self._seconds = time.monotonic() - self._began

    def reported(self, step: int) -> None:
        """Note that the attempt has reported a step."""
        now = time.monotonic()
        if self._first_report is None:
            self._first_report = (step, now)
        elif step > self._first_report[0]:
            first, then = self._first_report
            self._seconds_per_step = (now - then) / (step - first)

    @property
    def usage(self) -> Usage | None:
        """The use so far; None before the first measurement."""
        if not self._peak:
            return None
        return Usage(
            peak_memory_bytes=self._peak,
            peak_gpu_memory_bytes=self._peak_gpu_memory_bytes,
            cpu_seconds=self.cpu_seconds,
            seconds=self._seconds,  # of the last measurement, if it was killed
            seconds_per_step=self._seconds_per_step,
            starved_seconds=self._starved_seconds,
            gpu_joules=None if self.energy is None else self.energy.gpu_joules,
            processor_joules=None if self.energy is None else self.energy.processor_joules,
        )

    @property
    def _peak_gpu_memory_bytes(self) -> int | None:
        if self._gpu_peak is not None:
            return self._gpu_peak
        if self._gpu_usage is None or not self._gpus:
            return None
        return 0 if self._has_opened_gpu is False else self._device_peak

    @property
    def is_step_time_new(self) -> bool:
        """Whether the time per step is known and was not reported yet."""
        if (
            self._is_step_time_reported
            or self._first_report is None
            or self._seconds_per_step is None
        ):
            return False
        return time.monotonic() - self._first_report[1] >= STEP_TIME_SECONDS

    def new_usage(self) -> Usage | None:
        """Return the use if the time per step is new or it has grown; None before a report."""
        if self._first_report is None or (usage := self.usage) is None:
            return None
        now = (usage.peak_memory_bytes, usage.peak_gpu_memory_bytes or 0, usage.joules or 0.0)
        has_grown = self._reported is None or any(
            amount > growth * before
            for amount, before, growth in zip(now, self._reported, _GROWTHS, strict=True)
        )
        if not has_grown and not self.is_step_time_new:
            return None
        self._is_step_time_reported = self._is_step_time_reported or self.is_step_time_new
        self._reported = now
        return usage


def own_usage() -> Usage | None:
    """Return the use of this process and all that it started; None if it cannot be measured."""
    meter = Meter(os.getpid())
    meter.take()
    return meter.usage


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a path is built for each
            with contextlib.suppress(OSError):
                children = Path(f"/proc/{pid}/task/{thread}/children").read_bytes()
                for child in children.split():
                    yield from _tree(int(child))


def _orphans(trial: int) -> Iterator[int]:
    """Yield what a trial started and the fork server has adopted."""
    parent = parent_of(trial)
    for pid in children_of(parent) if parent else ():
        if pid != trial and trial_of(pid) == trial:
            yield from _tree(pid)


def _delays(pid: int) -> Iterator[tuple[int, int]]:
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a path is built for each
        # Some kernels have no schedstat, and the thread may have ended.
        with contextlib.suppress(OSError, ValueError, IndexError):
            schedstat = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes()
            yield int(thread), int(schedstat.split()[1])


def _memory_bytes(pid: int, *, is_alone: bool) -> int:
    fields = _fields(Path(f"/proc/{pid}/smaps_rollup"))
    if is_alone:
        return fields["Private_Dirty"] + fields.get("Swap", 0)
    return fields.get("Pss_Anon", fields["Pss"]) + fields.get("Pss_Shmem", 0)


def _fields(path: Path) -> dict[str, int]:
    """Return the sizes in a file of /proc, in bytes."""
    found = {}
    for line in path.read_bytes().splitlines():
        name, _, value = line.partition(b":")
        if value.endswith(b" kB"):
            found[name.decode()] = int(value[:-3]) * 1024
    if not found:
        raise ValueError(f"{path} has no sizes")  # of a zombie
    return found
