"""The workers and attempts of a Dask executor as a pure state machine: events in, instructions out.

A worker goes through these phases; each arrow is a method::

    new, GONE -- added --> INVITED -- announced --> JOINED, or REFUSED
    JOINED -- drain, `WorkerLeaving` --> DRAINING
    JOINED, DRAINING -- removed, plugin_missing --> LEFT -- told --> KNOWN -- orders_given --> GONE
    INVITED, REFUSED -- removed --> GONE

The dangers are all in time. The caller learns later than this state that a worker has left, and
gives orders meanwhile; it has counted those as lost and runs the trials elsewhere. So a worker that
is back at once waits in LEFT and KNOWN, and is invited again only when no such order can come. What
Dask holds for a worker that left is cancelled, as it would run it on a worker at that address.

`DaskExecutor` delivers the events and carries out the instructions; here are no locks, no threads
and no clock.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ..core.attempt import AttemptId, Cause, Ending, Halt
from ..core.messages import (
    AttemptEnded,
    AttemptWaits,
    Event,
    WorkerLeaving,
    WorkerLeft,
    WorkerRefused,
)
from ..worker.dask import versions
from ..worker.dask.announcement import Announcement
from ..worker.orders import AttemptOrder, ProcessOrder, StopOrder
from ..worker.runner_state import AttemptEvent

_AWAY = "it left the study while the master was suspended, and is asked to join again"
_RELEASED = Ending(Cause.RELEASED, reason="its worker left while the master was suspended")

FromWorker = AttemptWaits | AttemptEvent | WorkerLeaving
"""What a worker that joined tells."""

# --- instructions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask workers to join; `announced` follows for each, and `asked_long_ago` after a while."""

    workers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refuse:
    """Tell a worker that it was refused."""

    announcement: Announcement


@dataclass(frozen=True, slots=True)
class Tell:
    """Give a worker an order; if it does not arrive, `tell` it again after a while."""

    worker: str
    order: StopOrder | ProcessOrder


@dataclass(frozen=True, slots=True)
class Cancel:
    """Have Dask forget attempts, whether or not they run."""

    attempts: tuple[AttemptId, ...]


Instruction = Event | Ask | Refuse | AttemptOrder | Tell | Cancel
"""An event is told to the caller; an order to run an attempt is submitted to Dask."""

Instructions = tuple[Instruction, ...]


# --- state ----------------------------------------------------------------------------------------


class Phase(enum.Enum):
    """The phase of a worker; see the module."""

    INVITED = "asked to join"
    JOINED = "takes attempts"
    DRAINING = "takes no more attempts"
    REFUSED = "cannot be used"
    LEFT = "left the study; the caller does not know"
    KNOWN = "left the study; the caller knows, and may still give orders"
    GONE = "left Dask; its late messages are ignored"


_USED = (Phase.JOINED, Phase.DRAINING)


@dataclass(slots=True)
class _Worker:
    """A worker.

    Attributes:
        phase: Its phase.
        is_in_dask: Whether Dask has it.
        announcement: What it has announced, or why the master refused it; None before that.
    """

    phase: Phase = Phase.GONE
    is_in_dask: bool = False
    announcement: Announcement | None = None


@dataclass(slots=True)
class _Attempt:
    """An attempt that has not ended.

    Attributes:
        worker: Its worker.
        halt: Why it was told to stop; None if it was not.
    """

    worker: str
    halt: Halt | None = None


class DaskState:
    """The state of the workers and attempts of a study on Dask.

    Each event is a method, which returns what is to be done because of it. Whatever is late,
    repeated or of an unknown worker or attempt is ignored.
    """

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._attempts: dict[AttemptId, _Attempt] = {}
        # The versions of the first worker; all others must have the same frameworks.
        self._versions: Mapping[str, str] | None = None

    # --- questions ----------------------------------------------------------------------------

    @property
    def refusals(self) -> Mapping[str, str]:
        """The workers that have answered, and why each was refused; empty for those that joined."""
        return {
            name: getattr(each.announcement.event, "reason", "")
            for name, each in self._workers.items()
            if each.announcement is not None and each.phase in (*_USED, Phase.REFUSED)
        }

    @property
    def joined(self) -> Mapping[str, Announcement]:
        """What the workers of the study have announced."""
        return {
            name: each.announcement
            for name, each in self._workers.items()
            if each.announcement is not None and each.phase in _USED
        }

    def runs(self, worker: str, trial: int) -> bool:
        """Return whether an attempt of a trial was ordered on a worker, and has not ended."""
        return any(
            each.worker == worker and name.trial == trial for name, each in self._attempts.items()
        )

    # --- events -------------------------------------------------------------------------------

    def listed(self, workers: Iterable[str]) -> Instructions:
        """Note the workers of Dask, now or a moment ago; what `removed` has told counts more."""
        return self.added(*(worker for worker in workers if worker not in self._workers))

    def added(self, *names: str) -> Instructions:
        """Note that Dask has new workers."""
        for name in names:
            self._workers.setdefault(name, _Worker()).is_in_dask = True
        return self._invite(*names)

    def _invite(self, *names: str) -> Instructions:
        """Ask the workers to join that are in no other phase."""
        asked = [name for name in names if self._workers[name].phase is Phase.GONE]
        for name in asked:
            self._workers[name].phase = Phase.INVITED
        return (Ask(tuple(asked)),) if asked else ()

    def removed(self, name: str) -> Instructions:
        """Note that Dask has a worker no more."""
        worker = self._workers.setdefault(name, _Worker())
        worker.is_in_dask = False
        if worker.phase in _USED:
            left = WorkerLeft(0.0, name, f"the worker {name} is gone")
            return (*self._lose(name), left)
        if worker.phase in (Phase.INVITED, Phase.REFUSED):
            worker.phase = Phase.GONE
        return ()

    def asked_long_ago(self, name: str) -> Instructions:
        """Ask a worker again that was asked to join some time ago."""
        return (Ask((name,)),) if self._phase(name) is Phase.INVITED else ()

    def announced(self, announced: Announcement) -> Instructions:
        """Take the answer of a worker that was asked to join."""
        event = announced.event
        worker = self._workers.get(event.worker)
        if worker is None or worker.phase is not Phase.INVITED:
            return ()
        worker.phase, worker.announcement = Phase.JOINED, announced
        if isinstance(event, WorkerRefused):
            worker.phase = Phase.REFUSED
        elif different := self._other_frameworks(announced.versions):
            event = WorkerRefused(0.0, event.worker, event.node, different)
            refused = Announcement(event, announced.versions, is_of_versions=True)
            worker.phase, worker.announcement = Phase.REFUSED, refused
            return (Refuse(refused), event)
        return (event,)

    def _other_frameworks(self, found: Mapping[str, str]) -> str:
        if self._versions is None:
            self._versions = found
        different = versions.differences(self._versions, found, versions.OF_FRAMEWORKS)
        return versions.text(different, here="the first worker", there="this one")

    def order(self, order: AttemptOrder) -> Instructions:
        """Take the caller's order to run an attempt."""
        name = order.placement.worker
        if self._phase(name) not in _USED:
            return ()
        self._attempts[order.attempt] = _Attempt(name)
        return (order,)

    def tell(self, order: StopOrder | ProcessOrder) -> Instructions:
        """Take the caller's order to an attempt, or one that did not arrive."""
        if (attempt := self._attempts.get(order.attempt)) is None:
            return ()
        if isinstance(order, StopOrder):
            # The first reason counts, and two orders may arrive in any order.
            if attempt.halt not in (None, order.halt) and order.halt is not Halt.ABORT:
                return ()
            attempt.halt = order.halt
        return (Tell(attempt.worker, order),)

    def drain(self, name: str, reason: str) -> Instructions:
        """Give a worker no more attempts."""
        is_news = self._phase(name) is Phase.JOINED
        return self.from_worker(WorkerLeaving(0.0, name, reason)) if is_news else ()

    def from_worker(self, event: FromWorker) -> Instructions:
        """Take what a worker tells."""
        if isinstance(event, WorkerLeaving):
            if self._phase(event.worker) not in _USED:
                return ()
            self._workers[event.worker].phase = Phase.DRAINING
        elif event.attempt not in self._attempts:
            return ()
        elif isinstance(event, AttemptEnded):
            del self._attempts[event.attempt]
        return (event,)

    def task_failed(self, attempt: AttemptId, reason: str) -> Instructions:
        """End an attempt whose task failed in Dask, so that its worker does not report its end."""
        ending = Ending(Cause.WORKER_LOST, reason=f"the worker could not run it: {reason}")
        return self.from_worker(AttemptEnded(0.0, attempt, ending))

    def plugin_missing(self, attempt: AttemptId) -> Instructions:
        """Note that an attempt's worker has left the study, as it does if the master seems dead."""
        if attempt not in self._attempts:
            return ()  # it was released with another attempt, or lost with its worker
        name = self._attempts[attempt].worker
        # A plugin leaves only when nothing runs, so none of its worker's attempts has begun.
        lost = self._attempts_on(name)
        return (
            # First: the released attempts, which are not charged, must not return there.
            WorkerLeaving(0.0, name, _AWAY),
            *self._lose(name),
            *(AttemptEnded(0.0, each, _RELEASED) for each in lost),
            WorkerLeft(0.0, name, f"the worker {name} is gone: {_AWAY}"),
        )

    def _lose(self, name: str) -> Instructions:
        """Forget the attempts of a worker that has left."""
        self._workers[name].phase = Phase.LEFT
        lost = self._attempts_on(name)
        for each in lost:
            del self._attempts[each]
        return (Cancel(lost),) if lost else ()

    def left_is_known(self, name: str) -> Instructions:
        """Note that the caller has got the `WorkerLeft` of a worker."""
        self._workers[name].phase = Phase.KNOWN
        return ()

    def orders_given(self) -> Instructions:
        """Note that the caller has given all orders that follow from what it was told."""
        known = [name for name, each in self._workers.items() if each.phase is Phase.KNOWN]
        for name in known:
            self._workers[name].phase = Phase.GONE
        return self._invite(*(name for name in known if self._workers[name].is_in_dask))

    def _phase(self, name: str) -> Phase | None:
        worker = self._workers.get(name)
        return None if worker is None else worker.phase

    def _attempts_on(self, name: str) -> tuple[AttemptId, ...]:
        return tuple(each for each, found in self._attempts.items() if found.worker == name)
