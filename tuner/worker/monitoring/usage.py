"""What an attempt uses: memory and processor time of all its processes, read from /proc.

Where other processes take a core, an attempt that waits for it is not idle; so that time is
measured too, of each thread (the second number of `schedstat`).

An attempt is forked from a parent that has imported a framework. What it still shares with that
parent costs nothing and is not counted: for an attempt of one process, the memory is what the
process alone has written (`Private_Dirty`), which is what its end would set free. An attempt with
processes of its own (data loaders) shares much among these, so there each page counts by the share
that the process has in it (`Pss`), which is too much by a part of what the parent has, never too
little. File pages, such as memory-mapped data, are not counted: the kernel takes them back.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ...core.trial import Usage
from .gpu import GpuUsage

NEWS = 1.05
"""A peak that has grown by this factor since it was told is told again."""

PACE_SECONDS = 1.0
"""So long after its first report an attempt's pace is told, if it has reported again."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """What the processes of an attempt use at an instant.

    Attributes:
        pids: Its processes.
        memory_bytes: What they hold now.
        peak_memory_bytes: At least so much was held at a time until now.
        cpu_seconds: Processor time of all that live, and of all whose end their parents have seen.
        delays: How long each of their threads was ready and waited for a core, in nanoseconds.
    """

    pids: tuple[int, ...]
    memory_bytes: int
    peak_memory_bytes: int
    cpu_seconds: float
    delays: Mapping[int, int]


def sample(pid: int) -> Sample | None:
    """Look at a process and all that descend from it; None if it is gone."""
    pids = tuple(_tree(pid))
    memory, seconds = 0, 0.0
    delays = dict[int, int]()
    try:
        for each in pids:
            try:
                memory += _memory_bytes(each, is_alone=len(pids) == 1)
                seconds += _cpu_seconds(each)
                delays.update(_delays(each))
            except (OSError, ValueError):
                if each == pid:
                    raise
        status = _fields(Path(f"/proc/{pid}/status"))
        # The kernel has seen the peaks between two looks.
        above = max(0, status.get("VmHWM", 0) - status.get("VmRSS", 0))
    except (OSError, ValueError):
        return None
    return Sample(pids, memory, memory + above, seconds, delays)


class Starvation:
    """Adds up how long the threads of an attempt waited for a core, those that ended too."""

    def __init__(self) -> None:
        self._latest: Mapping[int, int] = {}
        self._of_ended = 0

    def seconds(self, delays: Mapping[int, int]) -> float:
        """What it comes to, by `Sample.delays` of now."""
        # Where less than before is told of a thread, it is another one with the same number.
        self._of_ended += sum(
            delay for thread, delay in self._latest.items() if delays.get(thread, -1) < delay
        )
        self._latest = delays
        return (self._of_ended + sum(delays.values())) / 1e9


class Meter:
    """Measures one attempt.

    Args:
        pid: Its process.
        gpus: Its GPUs, by name.
        is_alone: Whether nobody else is given these GPUs for as long as it runs. Then it is taken
            to hold all that is held there, where the driver does not say who holds what.
        gpu_usage: Looks at GPUs; None where there are none.
    """

    def __init__(
        self,
        pid: int,
        gpus: tuple[str, ...] = (),
        *,
        is_alone: bool = False,
        gpu_usage: GpuUsage | None = None,
    ) -> None:
        self.pid = pid
        self._gpus = gpus
        self._is_alone = is_alone
        self._gpu_usage = gpu_usage
        self._began = time.monotonic()
        self._first_report: tuple[int, float] | None = None
        self._seconds_per_step: float | None = None
        self._peak = 0
        self._gpu_peak: int | None = None
        self._device_peak: int | None = None
        self._has_opened_gpu: bool | None = None  # nobody has looked
        self._told: tuple[int, int] | None = None
        self._pace_is_told = False
        self.memory_bytes = 0
        self.cpu_seconds = 0.0
        self._starved = Starvation()
        self._starved_seconds = 0.0
        self._seconds = 0.0

    def take(self) -> None:
        """Look at the attempt now; one that is gone leaves what was seen before."""
        found = sample(self.pid)
        if found is None:
            return
        self.memory_bytes = found.memory_bytes
        self._peak = max(self._peak, found.peak_memory_bytes)
        self.cpu_seconds = max(self.cpu_seconds, found.cpu_seconds)
        self._starved_seconds = max(self._starved_seconds, self._starved.seconds(found.delays))
        self._seconds = time.monotonic() - self._began
        if self._gpu_usage is not None and self._gpus:
            self._look_at_gpus(self._gpu_usage, found.pids)

    def _look_at_gpus(self, gpu_usage: GpuUsage, pids: tuple[int, ...]) -> None:
        held = gpu_usage.memory_bytes(self._gpus, pids)
        if held is not None:
            self._gpu_peak = max(self._gpu_peak or 0, held)
        elif self._gpu_peak is None:
            self._has_opened_gpu = self._has_opened_gpu or gpu_usage.is_open(pids)
            if self._is_alone and self._has_opened_gpu:
                held = gpu_usage.memory_bytes(self._gpus, None)
                self._device_peak = max(self._device_peak or 0, held or 0) or None

    def add(self, usage: Usage) -> None:
        """Take in what the attempt measured of itself."""
        self._peak = max(self._peak, usage.peak_memory_bytes)
        self.cpu_seconds = max(self.cpu_seconds, usage.cpu_seconds)
        self._starved_seconds = max(self._starved_seconds, usage.starved_seconds)
        self._seconds = time.monotonic() - self._began

    def reported(self, step: int) -> None:
        """The attempt has reported a step."""
        now = time.monotonic()
        if self._first_report is None:
            self._first_report = (step, now)
        elif step > self._first_report[0]:
            first, then = self._first_report
            self._seconds_per_step = (now - then) / (step - first)

    @property
    def usage(self) -> Usage | None:
        """What was used so far; None before anything was seen."""
        if not self._peak:
            return None
        return Usage(
            peak_memory_bytes=self._peak,
            peak_gpu_memory_bytes=self._peak_gpu_memory_bytes,
            cpu_seconds=self.cpu_seconds,
            seconds=self._seconds,  # of one that was killed, all is as it was seen last
            seconds_per_step=self._seconds_per_step,
            starved_seconds=self._starved_seconds,
        )

    @property
    def _peak_gpu_memory_bytes(self) -> int | None:
        if self._gpu_peak is not None:
            return self._gpu_peak
        if self._gpu_usage is None or not self._gpus:
            return None
        return 0 if self._has_opened_gpu is False else self._device_peak

    @property
    def is_pace_news(self) -> bool:
        """Whether it is known how fast the attempt trains, and was not told yet."""
        if self._pace_is_told or self._first_report is None or self._seconds_per_step is None:
            return False
        return time.monotonic() - self._first_report[1] >= PACE_SECONDS

    def news(self) -> Usage | None:
        """What is worth telling: after the first report, the pace, and when a peak has grown."""
        if self._first_report is None or (usage := self.usage) is None:
            return None
        peaks = (usage.peak_memory_bytes, usage.peak_gpu_memory_bytes or 0)
        has_grown = self._told is None or any(
            now > NEWS * told for now, told in zip(peaks, self._told, strict=True)
        )
        if not has_grown and not self.is_pace_news:
            return None
        self._pace_is_told = self._pace_is_told or self.is_pace_news
        self._told = peaks
        return usage


def own_usage() -> Usage | None:
    """What this process and all that descend from it use, as far as they can see it."""
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


def _delays(pid: int) -> Iterator[tuple[int, int]]:
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - a path is built for each
        # Not every kernel tells; nor does a thread that has just ended.
        with contextlib.suppress(OSError, ValueError, IndexError):
            schedstat = Path(f"/proc/{pid}/task/{thread}/schedstat").read_bytes()
            yield int(thread), int(schedstat.split()[1])


def _memory_bytes(pid: int, *, is_alone: bool) -> int:
    fields = _fields(Path(f"/proc/{pid}/smaps_rollup"))
    if is_alone:
        return fields["Private_Dirty"] + fields.get("Swap", 0)
    return fields.get("Pss_Anon", fields["Pss"]) + fields.get("Pss_Shmem", 0)


def _fields(path: Path) -> dict[str, int]:
    """The fields of a file of /proc that are sizes, in bytes."""
    found = {}
    for line in path.read_bytes().splitlines():
        name, _, value = line.partition(b":")
        if value.endswith(b" kB"):
            found[name.decode()] = int(value[:-3]) * 1024
    if not found:
        raise ValueError(f"{path} tells nothing")  # a zombie's
    return found


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    # utime, stime, and of the children whose end it has seen: cutime, cstime
    return sum(map(int, fields[11:15])) / _TICKS
