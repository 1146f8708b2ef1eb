"""Watchdogs: when to measure an attempt, and when to end it for its memory or because it hangs."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ...core.attempt import Cause, Ending, Usage
from ...core.resources import Placement, size
from ..gpus.machine import Gpus
from ..process_ids import stat_of
from . import memory
from .usage import Meter

SHARE_OF_TIME = 0.003
"""Share of one core's time for measuring all attempts of a worker."""

SHORT_SHARE = 0.1
"""Share of free memory below which memory is short."""

_LAST_SHARE = 0.03
"""Share of free memory below which the kernel is likely to have killed for lack of it."""

_IDLE_SHARE = 0.005
"""Share of one core that an idle attempt may use."""

_BETWEEN_SECONDS = 2.0
"""Longest time between two looks that counts as a hang. The rest does not: this process was held
up, such as suspended with its job, and what it watches may have been, too."""

_GROWTH = 1.1
"""Factor by which an attempt must grow to be measured at once."""

STOPPED_SECONDS = 10.0
"""Seconds after which a rank of several processes is killed while it is stopped (by SIGSTOP)."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryWatchdog:
    """The memory of this worker: how much is free, and whether the kernel killed for lack of it.

    The values of two looks are kept, because a killed process takes some time to end.

    Args:
        of_bytes: The memory that it may use, beside that of other programs; 0 for its part of all.
    """

    def __init__(self, of_bytes: int = 0) -> None:
        self._of_bytes = of_bytes
        self._kills = (memory.kills(),) * 2
        self._free = (memory.free_bytes(),) * 2

    def look(self) -> None:
        """Measure; called about every second."""
        self._kills = (self._kills[1], memory.kills())
        self._free = (self._free[1], memory.free_bytes())

    @property
    def is_short(self) -> bool:
        """Whether the kernel may soon kill a process for lack of memory."""
        free, total = self._free[1]
        return free < SHORT_SHARE * total

    @property
    def free_share(self) -> float | None:
        """Share of its memory that is free; None if unknown."""
        free, total = self._free[1]
        return min(1.0, round(free / (self._of_bytes or total), 3)) if total else None

    def evidence(self, held_bytes: int) -> str:
        """Return why a process may have been killed just now for lack of memory.

        Args:
            held_bytes: The memory that it held when it was last measured.

        Returns:
            The evidence in words; empty if there is none.
        """
        free, total = min(self._free)
        held = f"it held {size(held_bytes)} of {size(total)}"
        if kills := memory.new_kills(self._kills[0]):
            return f"out of memory ({kills}; {held})"
        if free < _LAST_SHARE * total:
            return f"out of memory ({size(free)} were free; {held})"
        return ""


class Watchdog:
    """A watchdog of one attempt. All methods but `reported` and `ends` are called by one thread.

    Args:
        meter: The attempt's meter.
        placement: Its cores, GPUs and memory.
        hang_timeout_seconds: How long it may neither report nor compute; None for no limit.
        gpu_usage: Tells whether its GPUs compute.
    """

    def __init__(
        self,
        meter: Meter,
        placement: Placement,
        hang_timeout_seconds: float | None,
        gpu_usage: Gpus,
    ) -> None:
        self.meter = meter
        self._placement = placement
        self._hang_timeout = hang_timeout_seconds
        self._gpu_usage = gpu_usage
        self._look_from = 0.0
        self._resident = 0
        self._has_reported = False
        # The last time at which it did something, and its CPU time by then.
        self._alive_at = self._looked_at = time.monotonic()
        self._cpu_seconds = 0.0

    def reported(self, step: int) -> bool:
        """Note that the attempt has reported; return whether for the first time."""
        self.meter.reported(step)
        self._alive_at = time.monotonic()
        is_first, self._has_reported = not self._has_reported, True
        if is_first:
            self._look_from = 0.0
        return is_first

    def ends(self, usage: Usage) -> None:
        """Merge what the attempt measured of itself at its end, and look once more."""
        self.meter.add(usage)
        self._look_from = 0.0

    def look(self, attempts: int = 1) -> bool:
        """Measure the attempt if it is time, or if it has grown; return whether it was measured.

        Call this about every second.

        Args:
            attempts: The number of attempts that share the time for measuring.
        """
        now = time.monotonic()
        held_up = max(0.0, now - self._looked_at - _BETWEEN_SECONDS)
        self._alive_at = min(now, self._alive_at + held_up)
        self._looked_at = now
        resident = _resident_bytes(self.meter.pid)
        has_grown = resident >= _GROWTH * self._resident
        is_time = time.monotonic() >= self._look_from or self.meter.is_step_time_new
        if not has_grown and not is_time:
            return False
        began = time.thread_time()
        self.meter.take()
        self._resident = resident
        cost = time.thread_time() - began
        self._look_from = time.monotonic() + attempts * cost / SHARE_OF_TIME
        return True

    def broken_limit(self, worker: MemoryWatchdog) -> Ending | None:
        """Return the ending of an attempt that broke a limit; None if it may continue."""
        return self._too_large(worker) or self._hung()

    def _too_large(self, worker: MemoryWatchdog) -> Ending | None:
        granted, held = self._placement.memory_bytes, self.meter.memory_bytes
        # While there is enough for all, an attempt may hold more than it was granted.
        if not granted or held <= granted or not worker.is_short:
            return None
        reason = (
            f"out of memory (it held {size(held)}, was granted {size(granted)}, "
            "and its worker has hardly any left)"
        )
        return Ending(Cause.OUT_OF_MEMORY, reason=reason)

    def _hung(self) -> Ending | None:
        now, used = time.monotonic(), self.meter.cpu_seconds
        timeout = self._hang_timeout
        if timeout is None:
            return None
        if used - self._cpu_seconds > _IDLE_SHARE * timeout:
            self._alive_at, self._cpu_seconds = now, used
        if now - self._alive_at < timeout:
            return None
        if self._placement.gpus and self._gpu_usage.is_busy(self._placement.gpus):
            self._alive_at = now
            return None
        reason = (
            f"it hung: no report and no work for {timeout:g} s; its stacks are at the end of its "
            "log"
        )
        return Ending(Cause.HUNG, reason=reason)


class StopWatch:
    """Measures how long a process has been stopped, as by SIGSTOP or a debugger.

    The other ranks of its attempt wait for it, and hold their devices.

    Args:
        pid: The process.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._since: float | None = None

    def ending(self, now: float) -> Ending | None:
        """Return the ending of a process that was stopped for too long; None if it may continue.

        Args:
            now: Seconds of a monotonic clock.
        """
        if stat_of(self._pid)[:1] not in (["T"], ["t"]):
            self._since = None
            return None
        self._since = now if self._since is None else self._since
        if now - self._since < STOPPED_SECONDS:
            return None
        reason = f"its process was stopped (SIGSTOP) for {STOPPED_SECONDS:g} s"
        return Ending(Cause.KILLED, reason=reason)


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
