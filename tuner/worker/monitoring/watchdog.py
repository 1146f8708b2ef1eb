"""Watches an attempt from outside: what it uses, and whether it had better be ended."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ...core.resources import Placement
from ...core.trial import Cause, Ending
from . import memory
from .gpu import GpuUsage
from .usage import Meter

SHARE_OF_TIME = 0.003
"""So much of one core's time measuring may take, of all attempts of a worker together."""

SHORT_SHARE = 0.1
"""Memory is short where less than this share of it is free."""

_LAST_SHARE = 0.03
_IDLE_SHARE = 0.005
_DUMP_SECONDS = 2.0
_GROWTH = 1.1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class MemoryWatchdog:
    """The memory of this worker: what is free of it, and whether the kernel has struck.

    Everything is remembered for two looks, since a process that was killed takes a while to end.
    """

    def __init__(self) -> None:
        self._kills = (memory.kills(),) * 2
        self._free = (memory.free_bytes(),) * 2

    def look(self) -> None:
        """Take note of how things are; called every second or so."""
        self._kills = (self._kills[1], memory.kills())
        self._free = (self._free[1], memory.free_bytes())

    @property
    def is_short(self) -> bool:
        """Whether there is so little left that the kernel may soon kill somebody."""
        free, total = self._free[1]
        return free < SHORT_SHARE * total

    @property
    def free_share(self) -> float | None:
        """What share of the memory is free, whoever holds the rest; None if nobody knows."""
        free, total = self._free[1]
        return round(free / total, 3) if total else None

    def evidence(self, held_bytes: int) -> str:
        """Why a process that was killed just now may have been killed for lack of memory.

        Args:
            held_bytes: What it held when it was last looked at.

        Returns:
            The evidence, for people; empty if there is none.
        """
        free, total = min(self._free)
        held = f"it held {in_gb(held_bytes)} of {in_gb(total)}"
        if kills := memory.new_kills(self._kills[0]):
            return f"out of memory ({kills}; {held})"
        if free < _LAST_SHARE * total:
            return f"out of memory ({in_gb(free)} were free; {held})"
        return ""


class Watchdog:
    """Watches one attempt. All but `reported` is called by one thread.

    Args:
        meter: Measures it.
        placement: What it holds.
        hang_timeout_seconds: How long it may report nothing and compute nothing; None for ever.
        gpu_usage: Knows whether its GPUs compute.
    """

    def __init__(
        self,
        meter: Meter,
        placement: Placement,
        hang_timeout_seconds: float | None,
        gpu_usage: GpuUsage,
    ) -> None:
        self.meter = meter
        self._placement = placement
        self._hang_timeout = hang_timeout_seconds
        self._gpu_usage = gpu_usage
        self._look_from = 0.0
        self._resident = 0
        self._has_reported = False
        # When it was last seen to do something, and the processor time that it had used by then.
        self._alive_at = time.monotonic()
        self._cpu_seconds = 0.0

    def reported(self, step: int) -> bool:
        """The attempt has reported; returns whether for the first time."""
        self.meter.reported(step)
        self._alive_at = time.monotonic()
        is_first, self._has_reported = not self._has_reported, True
        if is_first:
            self._look_from = 0.0
        return is_first

    def look(self, beside: int = 1) -> bool:
        """Measure it if it is time to, or if it has grown; returns whether it was measured.

        Args:
            beside: How many attempts are watched here, which share the time for it.
        """
        resident = _resident_bytes(self.meter.pid)
        has_grown = resident >= _GROWTH * self._resident
        is_time = time.monotonic() >= self._look_from or self.meter.is_pace_news
        if not has_grown and not is_time:
            return False
        began = time.thread_time()
        self.meter.take()
        self._resident = resident
        cost = time.thread_time() - began
        self._look_from = time.monotonic() + beside * cost / SHARE_OF_TIME
        return True

    def judgement(self, worker: MemoryWatchdog) -> Ending | None:
        """How the attempt is to be ended; None while it may go on."""
        return self._too_large(worker) or self._hung()

    def _too_large(self, worker: MemoryWatchdog) -> Ending | None:
        granted, held = self._placement.memory_bytes, self.meter.memory_bytes
        # As long as there is enough for all, nobody is the worse for it.
        if not granted or held <= granted or not worker.is_short:
            return None
        reason = (
            f"out of memory (it held {in_gb(held)}, granted were {in_gb(granted)}, "
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
            f"it hung: no report and no work for {timeout:g} s; where it stood is at the end of "
            "its log"
        )
        return Ending(Cause.HUNG, reason=reason)


def ending_grace(ending: Ending) -> float:
    """How long an attempt that is ended this way still has, in seconds."""
    return _DUMP_SECONDS if ending.cause is Cause.HUNG else 0.0


def in_gb(size: int) -> str:
    """A size for people.

    >>> in_gb(3_210_000_000)
    '3.21 GB'
    """
    return f"{size / 1e9:.3g} GB"


def _resident_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
