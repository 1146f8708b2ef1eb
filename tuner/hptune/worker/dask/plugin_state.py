"""A study on one Dask worker as a pure state machine: events in, instructions out.

The worker goes through these phases, and each attempt from `EnterQueue` to `Free`; each arrow is a
method::

    JOINING -- announced --> ACCEPTED, or REFUSED;  ACCEPTED -- refused --> REFUSED
    JOINING, ACCEPTED, REFUSED -- leave, leave_if_idle, study_ends --> LEAVING

    order -> waiting -- granted --> begun -- from_runner --> (`SendFiles`, files_sent) --> `Free`
                |                     +-- not_brought --> `Free`
                +-- stop, orphaned, leave, cut_off --> `Free`

So each attempt ends exactly once, unless the runner is closed before, and none begins on a worker
that leaves. `StudyAttempts` delivers the events and carries out the instructions; here are no
locks, no threads and no clock.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ...core.attempt import AttemptId, Cause, Ending, Halt
from ...core.messages import AttemptEnded, WorkerJoined, WorkerLeaving
from ..orders import AttemptOrder, StopOrder
from ..runner_state import AttemptEvent, EarlyStops
from ..transport.endings import ending_of_remote
from ..transport.remote_study import NotSent
from .announcement import Announcement

_FULL = "its local disk is full"

# --- instructions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnterQueue:
    """Have an attempt wait for its devices; `granted` follows."""

    order: AttemptOrder


@dataclass(frozen=True, slots=True)
class Begin:
    """Bring an attempt's files, and start it; or `not_brought` follows."""

    order: AttemptOrder


@dataclass(frozen=True, slots=True)
class Abandon:
    """Send no more files of an attempt."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class SendFiles:
    """Send the last files of an attempt that is over; `files_sent` follows."""

    ended: AttemptEnded


@dataclass(frozen=True, slots=True)
class Free:
    """Give back an attempt's devices and end its task."""

    attempt: AttemptId


Message = Announcement | AttemptEvent | WorkerLeaving
Instruction = Message | EnterQueue | Begin | StopOrder | Abandon | SendFiles | Free
"""A message is sent to the master; an order to stop goes to the runner and to what brings files."""

Instructions = tuple[Instruction, ...]

# --- state ----------------------------------------------------------------------------------------


class Phase(enum.Enum):
    """The phase of a worker in a study; see the module."""

    JOINING = "not ready"
    ACCEPTED = "takes attempts"
    REFUSED = "cannot be used"
    LEAVING = "takes no more attempts"


@dataclass(slots=True)
class _Attempt:
    """An attempt.

    Attributes:
        order: What it carries out.
        is_waiting: Whether it waits for its devices, so that nothing of it runs.
        halt: Why it was told to stop after that; None if it was not.
        ended: How it ended, while its last files are sent; None before that.
    """

    order: AttemptOrder
    is_waiting: bool = True
    halt: Halt | None = None
    ended: AttemptEnded | None = None


class PluginState:
    """The state of a study on one worker.

    Each event is a method, which returns what is to be done because of it. Whatever is late,
    repeated or of an unknown attempt is ignored.
    """

    def __init__(self) -> None:
        self.phase = Phase.JOINING
        self.announcement: Announcement | None = None
        self._attempts: dict[AttemptId, _Attempt] = {}
        self._stopped_early = EarlyStops()

    @property
    def attempts(self) -> list[AttemptId]:
        """The attempts that have not ended."""
        return [*self._attempts]

    @property
    def _is_remote(self) -> bool:
        """Whether files travel over the connection."""
        return self.announcement is not None and not self.announcement.sees_directory

    # --- the worker ---------------------------------------------------------------------------

    def announced(self, announced: Announcement) -> Instructions:
        """Tell the master that the worker joined, or why not."""
        if self.phase is not Phase.JOINING:
            return ()
        has_joined = isinstance(announced.event, WorkerJoined)
        self.phase = Phase.ACCEPTED if has_joined else Phase.REFUSED
        self.announcement = announced
        return (announced,)

    def refused(self, announcement: Announcement) -> Instructions:
        """Note that the master refused this worker, because it differs from its other ones."""
        if self.phase is not Phase.ACCEPTED:
            return ()
        self.phase, self.announcement = Phase.REFUSED, announcement
        return self._end_waiting()

    def cut_off(self) -> Instructions:
        """Note that the connection to the scheduler is lost, and so the master of all attempts."""
        return tuple(each for name in self.attempts for each in self.orphaned(name))

    def leave(self, reason: str) -> Instructions:
        """Leave the study, as the worker must."""
        before, self.phase = self.phase, Phase.LEAVING
        if before is not Phase.ACCEPTED:
            return ()
        stops = (each for name in self.attempts for each in self._stop(name, Halt.RELEASE))
        return (*self._leaving(reason), *stops)

    def leave_if_idle(self) -> bool:
        """Leave the study, whose master is gone, if nothing runs here; return whether it did."""
        if not self._attempts:
            self.phase = Phase.LEAVING
        return not self._attempts

    def study_ends(self) -> Instructions:
        """Note that the plugin is being removed; the runner is closed next."""
        self.phase = Phase.LEAVING
        return self._end_waiting()

    def runner_closed(self) -> Instructions:
        """Note that no attempt runs here any more, and none of them sends an event."""
        left, self._attempts = self.attempts, {}
        return tuple(Free(each) for each in left)

    # --- attempts -----------------------------------------------------------------------------

    def order(self, order: AttemptOrder) -> Instructions:
        """Take the master's order to run an attempt."""
        name = order.attempt
        accepts = self.phase is Phase.ACCEPTED
        halt = self._stopped_early.take(name) if accepts else Halt.RELEASE
        if halt is not None:
            return (AttemptEnded(0.0, name, halt.ending), Free(name))
        self._attempts[name] = _Attempt(order)
        return (EnterQueue(order),)

    def stop(self, name: AttemptId, halt: Halt) -> Instructions:
        """Take the master's order to stop an attempt."""
        if name in self._attempts:
            return self._stop(name, halt)
        # It is over, or this order has overtaken the order to start.
        self._stopped_early.add(name, halt)
        return ()

    def granted(self, name: AttemptId) -> Instructions:
        """Note that an attempt holds its devices."""
        attempt = self._attempts.get(name)
        if attempt is None or not attempt.is_waiting:
            return ()
        attempt.is_waiting = False
        return (Begin(attempt.order),)

    def orphaned(self, name: AttemptId) -> Instructions:
        """Note that Dask gave up the task of an attempt, as it does when the master is gone."""
        attempt = self._attempts.get(name)
        if attempt is None:
            return ()
        if attempt.is_waiting:
            return self._stop(name, Halt.RELEASE)
        if self._is_remote:
            return (Abandon(name), *self._stop(name, Halt.RELEASE))
        # The runner stops attempts that run and may outlive their master.
        outlives = attempt.order.brief.limits.master_grace_seconds > 0
        return () if outlives else self._stop(name, Halt.RELEASE)

    def not_brought(self, name: AttemptId, reason: str, *, is_full: bool = False) -> Instructions:
        """End an attempt whose files could not be brought, or which stops before they are here."""
        if not self._runs(name):
            return ()
        full = self._leaving(_FULL) if is_full else ()
        halt = self._attempts[name].halt
        ending = halt.ending if halt else Ending(Cause.WORKER_LOST, reason=reason)
        return (*full, *self._end(name, ending))

    def from_runner(self, event: AttemptEvent) -> Instructions:
        """Take an event of the runner; the end of an attempt follows its files."""
        if not self._runs(event.attempt):
            return ()
        if not isinstance(event, AttemptEnded):
            return (event,)
        if self._is_remote:
            self._attempts[event.attempt].ended = event
            return (SendFiles(event),)
        return self._end(event.attempt, event.ending)

    def files_sent(self, ended: AttemptEnded, not_sent: NotSent | None) -> Instructions:
        """End an attempt that is over: the study has its files, or cannot have them."""
        attempt = self._attempts.get(ended.attempt)
        if attempt is None or attempt.ended is None or self.announcement is None:
            return ()
        ending = ending_of_remote(ended.ending, not_sent, node=self.announcement.event.node)
        full = self._leaving(_FULL) if ended.ending.cause is Cause.NO_ROOM else ()
        return (*full, *self._end(ended.attempt, ending))

    def _runs(self, name: AttemptId) -> bool:
        """Return whether the runner has an attempt, and has not told its end."""
        attempt = self._attempts.get(name)
        return attempt is not None and not attempt.is_waiting and attempt.ended is None

    def _stop(self, name: AttemptId, halt: Halt) -> Instructions:
        attempt = self._attempts[name]
        if attempt.is_waiting:
            return self._end(name, halt.ending)
        attempt.halt = attempt.halt or halt
        return (StopOrder(name, halt),)

    def _end(self, name: AttemptId, ending: Ending) -> Instructions:
        del self._attempts[name]
        return (AttemptEnded(0.0, name, ending), Free(name))

    def _leaving(self, reason: str) -> Instructions:
        if self.announcement is None:
            return ()
        return (WorkerLeaving(0.0, self.announcement.event.worker, reason),)

    def _end_waiting(self) -> Instructions:
        """End the attempts that have not begun."""
        waiting = [name for name, each in self._attempts.items() if each.is_waiting]
        return tuple(each for name in waiting for each in self._end(name, Halt.RELEASE.ending))
