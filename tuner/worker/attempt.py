"""An attempt that a runner carries out, and what its process died of."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from ..core.trial import AttemptId, Cause, Ending, Halt
from ..storage.attempt_journal import AttemptJournal
from .forkserver.client import Client, signal_name
from .monitoring.watchdog import MemoryWatchdog, Watchdog
from .orders import AttemptOrder

_REMEMBERED = 1000

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class EarlyStops:
    """Orders to stop an attempt that does not run: it is over, or the order overtook its start.

    The latest are remembered, since those of attempts that are over are never asked for.
    """

    def __init__(self) -> None:
        self._halts: dict[AttemptId, Halt] = {}

    def add(self, attempt: AttemptId, halt: Halt) -> None:
        """Remember an order; the first one counts."""
        self._halts.setdefault(attempt, halt)
        if len(self._halts) > _REMEMBERED:
            del self._halts[next(iter(self._halts))]

    def take(self, attempt: AttemptId) -> Halt | None:
        """Why the attempt is not to begin; None if it may."""
        return self._halts.pop(attempt, None)


@dataclass(slots=True)
class AttemptProcess:
    """What the runner knows of an attempt.

    Attributes:
        order: What is carried out.
        channel: To its process.
        client: The warm parent that its process was forked from.
        timeout_at: When its time is up, by the monotonic clock.
        kill_at: When it is killed.
        halt: Why it was told to stop.
        watch: Measures it, once its process is known.
        spool: Writes down what it tells, where it may outlive its master.
        ends_as: Why the runner ends it, of its own accord.
        ending: How it ended, by its own words.
        channel_closed: Whether it can tell nothing more.
        exit_status: Its process's; negative for a signal. None while it runs.
        parent_lost: Whether the process that it was forked from failed.
    """

    order: AttemptOrder
    channel: Connection[Any, Any]
    client: Client
    timeout_at: float | None
    kill_at: float | None = None
    halt: Halt | None = None
    watch: Watchdog | None = None
    spool: AttemptJournal | None = None
    ends_as: Ending | None = None
    ending: Ending | None = None
    channel_closed: bool = False
    exit_status: int | None = None
    parent_lost: bool = False

    def how_it_ended(self, memory: MemoryWatchdog) -> Ending:
        """How the attempt ended, now that its process is gone.

        Args:
            memory: Knows whether the kernel has killed for lack of memory.
        """
        if self.ending is not None and (
            self.ends_as is None or self.ending.cause is not Halt.LET_GO.cause
        ):
            return self.ending
        if self.ends_as is not None:
            return self.ends_as
        ending = self._ending_of_process()
        if self.exit_status == -signal.SIGKILL and ending.cause is Cause.KILLED:
            held = 0 if self.watch is None else self.watch.meter.memory_bytes
            if evidence := memory.evidence(held):
                return Ending(Cause.OUT_OF_MEMORY, reason=f"{ending.reason}: {evidence}")
        return ending

    def _ending_of_process(self) -> Ending:
        """What a process that ended without a word died of."""
        status = self.exit_status or 0
        if self.halt is not None:
            reason = f"told to {self.halt}; killed after the grace time"
            return Ending(self.halt.cause, reason=reason)
        if self.parent_lost:
            return Ending(Cause.WORKER_LOST, reason="the process that it was forked from failed")
        if status >= 0:
            reason = f"its process exited with status {status} and gave no result"
            return Ending(Cause.EXITED, reason=reason)
        name = signal_name(-status)
        if -status in _FROM_OUTSIDE:
            return Ending(Cause.KILLED, reason=f"its process was killed by {name}")
        return Ending(Cause.EXITED, reason=f"its process crashed with {name}")
