"""A study on one Dask worker as a pure state machine: events in, instructions out.

The worker goes through these phases, and each attempt from `EnterQueue` to `Free`; each arrow is an
event::

    JOINING -- Announcement --> ACCEPTED, or REFUSED;  ACCEPTED -- Refused --> REFUSED
    JOINING, ACCEPTED, REFUSED -- Leave, MasterGone, StudyEnds --> LEAVING

    order -> waiting -- Granted --> begun -- AttemptEnded --> (`SendFiles`, FilesSent) --> `Free`
                |                     +-- NotBrought --> `Free`
                +-- StopOrder, Orphaned, Leave, CutOff --> `Free`

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

# --- events, with the orders of the master and what the runner tells ------------------------------


@dataclass(frozen=True, slots=True)
class Refused:
    """The master refused this worker, because it differs from its other ones."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class Granted:
    """An attempt holds its devices."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class NotBrought:
    """The files of an attempt could not be brought to this worker."""

    attempt: AttemptId
    reason: str
    is_full: bool = False


@dataclass(frozen=True, slots=True)
class FilesSent:
    """The study has the files of an attempt that is over, or cannot have them."""

    ended: AttemptEnded
    not_sent: NotSent | None


@dataclass(frozen=True, slots=True)
class Orphaned:
    """Dask gave up the task of an attempt, as it does when the master is gone."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class CutOff:
    """The connection to the scheduler is lost."""


@dataclass(frozen=True, slots=True)
class MasterGone:
    """The master is gone; the study may leave this worker if nothing runs here."""


@dataclass(frozen=True, slots=True)
class Leave:
    """The worker must leave the study, for the given reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class StudyEnds:
    """The plugin is being removed; the runner is closed next."""


@dataclass(frozen=True, slots=True)
class RunnerClosed:
    """No attempt runs here any more, and none of them sends an event."""


PluginEvent = (
    Announcement
    | Refused
    | AttemptOrder
    | StopOrder
    | Granted
    | NotBrought
    | AttemptEvent
    | FilesSent
    | Orphaned
    | CutOff
    | MasterGone
    | Leave
    | StudyEnds
    | RunnerClosed
)

# --- instructions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to the master."""

    message: Announcement | AttemptEvent | WorkerLeaving


@dataclass(frozen=True, slots=True)
class EnterQueue:
    """Have an attempt wait for its devices; `Granted` follows."""

    order: AttemptOrder


@dataclass(frozen=True, slots=True)
class Begin:
    """Bring an attempt's files, or tell `NotBrought`, and start it."""

    order: AttemptOrder


@dataclass(frozen=True, slots=True)
class Halted:
    """Have the runner stop an attempt, or not start it."""

    attempt: AttemptId
    halt: Halt


@dataclass(frozen=True, slots=True)
class Abandon:
    """Send no more files of an attempt."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class SendFiles:
    """Send the last files of an attempt that is over; `FilesSent` follows."""

    ended: AttemptEnded


@dataclass(frozen=True, slots=True)
class Free:
    """Give back an attempt's devices and end its task."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class RemovePlugin:
    """Remove the plugin, which nobody needs."""


Instruction = Send | EnterQueue | Begin | Halted | Abandon | SendFiles | Free | RemovePlugin
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
        ended: How it ended, while its last files are sent; None before that.
    """

    order: AttemptOrder
    is_waiting: bool = True
    ended: AttemptEnded | None = None


class PluginState:
    """The state of a study on one worker.

    Whatever is late, repeated or of an unknown attempt is ignored.
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

    def validate(self) -> None:
        """Check what must hold between two events.

        Raises:
            AssertionError: It does not.
        """
        has_joined = self.announcement and isinstance(self.announcement.event, WorkerJoined)
        assert (self.phase is Phase.ACCEPTED) <= bool(has_joined), self.phase
        assert (self.phase is Phase.REFUSED) <= (has_joined is False), self.phase
        assert self.phase is not Phase.JOINING or self.announcement is None, self.phase
        for name, each in self._attempts.items():
            assert self.announcement is not None, name
            assert not each.is_waiting or self.phase is Phase.ACCEPTED, name
            assert each.ended is None or (self._is_remote and not each.is_waiting), name

    def handle(self, event: PluginEvent) -> Instructions:
        """Return what is to be done because of an event."""
        match event:
            case Announcement() if self.phase is Phase.JOINING:
                return self._announced(event)
            case Refused(announcement) if self.phase is Phase.ACCEPTED:
                self.phase, self.announcement = Phase.REFUSED, announcement
                return self._end_waiting()
            case AttemptOrder():
                return self._ordered(event)
            case Leave(reason):
                return self._leave(reason)
            case MasterGone() if not self._attempts:
                self.phase = Phase.LEAVING
                return (RemovePlugin(),)
            case CutOff():
                return self._cut_off()
            case StudyEnds():
                self.phase = Phase.LEAVING
                return self._end_waiting()
            case RunnerClosed():
                left, self._attempts = self.attempts, {}
                return tuple(Free(each) for each in left)
            case StopOrder(attempt, halt):
                if attempt in self._attempts:
                    return self._stop(attempt, halt)
                # It is over, or this order has overtaken the order to start.
                self._stopped_early.add(attempt, halt)
            case Announcement() | Refused() | MasterGone():
                return ()
            case FilesSent(ended, not_sent):
                return self._files_sent(ended, not_sent)
            case _ if event.attempt in self._attempts:
                return self._of_attempt(event, self._attempts[event.attempt])
        return ()

    @property
    def _is_remote(self) -> bool:
        """Whether files travel over the connection."""
        return self.announcement is not None and not self.announcement.sees_directory

    def _announced(self, announced: Announcement) -> Instructions:
        has_joined = isinstance(announced.event, WorkerJoined)
        self.phase = Phase.ACCEPTED if has_joined else Phase.REFUSED
        self.announcement = announced
        return (Send(announced),)

    def _ordered(self, order: AttemptOrder) -> Instructions:
        name = order.attempt
        accepts = self.phase is Phase.ACCEPTED
        halt = self._stopped_early.take(name) if accepts else Halt.RELEASE
        if halt is not None:
            return (Send(AttemptEnded(0.0, name, halt.ending)), Free(name))
        self._attempts[name] = _Attempt(order)
        return (EnterQueue(order),)

    def _of_attempt(
        self, event: Granted | NotBrought | Orphaned | AttemptEvent, attempt: _Attempt
    ) -> Instructions:
        name = event.attempt
        match event:
            case Granted():
                was_waiting, attempt.is_waiting = attempt.is_waiting, False
                return (Begin(attempt.order),) if was_waiting else ()
            case Orphaned():
                # The runner stops attempts that run and may outlive their master.
                outlives = attempt.order.brief.limits.master_grace_seconds > 0
                if outlives and not self._is_remote and not attempt.is_waiting:
                    return ()
                abandoned = (Abandon(name),) if self._is_remote and not attempt.is_waiting else ()
                return (*abandoned, *self._stop(name, Halt.RELEASE))
            case _ if attempt.is_waiting or attempt.ended is not None:
                return ()  # the runner does not know it yet, or has told its end
            case NotBrought(_, reason, is_full):
                full = self._leaving(_FULL) if is_full else ()
                return (*full, *self._end(name, Ending(Cause.WORKER_LOST, reason=reason)))
            case AttemptEnded() if self._is_remote:
                attempt.ended = event
                return (SendFiles(event),)
            case AttemptEnded():
                return self._end(name, event.ending)
        return (Send(event),)

    def _stop(self, name: AttemptId, halt: Halt) -> Instructions:
        if self._attempts[name].is_waiting:
            return self._end(name, halt.ending)
        return (Halted(name, halt),)

    def _end(self, name: AttemptId, ending: Ending) -> Instructions:
        del self._attempts[name]
        return (Send(AttemptEnded(0.0, name, ending)), Free(name))

    def _files_sent(self, ended: AttemptEnded, not_sent: NotSent | None) -> Instructions:
        attempt = self._attempts.get(ended.attempt)
        if attempt is None or attempt.ended is None or self.announcement is None:
            return ()
        ending = ending_of_remote(ended.ending, not_sent, node=self.announcement.event.node)
        full = self._leaving(_FULL) if ended.ending.cause is Cause.NO_ROOM else ()
        return (*full, *self._end(ended.attempt, ending))

    def _leaving(self, reason: str) -> Instructions:
        if self.announcement is None:
            return ()
        return (Send(WorkerLeaving(0.0, self.announcement.event.worker, reason)),)

    def _leave(self, reason: str) -> Instructions:
        before, self.phase = self.phase, Phase.LEAVING
        if before is not Phase.ACCEPTED:
            return ()
        stops = (each for name in self.attempts for each in self._stop(name, Halt.RELEASE))
        return (*self._leaving(reason), *stops)

    def _cut_off(self) -> Instructions:
        released = self._end_waiting()
        return (*released, *(Abandon(name) for name in self.attempts if self._is_remote))

    def _end_waiting(self) -> Instructions:
        """End the attempts that have not begun."""
        waiting = [name for name, each in self._attempts.items() if each.is_waiting]
        return tuple(each for name in waiting for each in self._end(name, Halt.RELEASE.ending))
