"""Attempts of several processes as a pure state machine: events in, instructions out.

An executor runs each rank as an attempt of its own, named by `AttemptId.rank`. Here the events of
the ranks become those of one attempt, which has rank 0's name::

    start -> starting -- all ranks ready --> met -- all ranks ended --> removed (`AttemptEnded`)
                 |
                 +-- a rank ends, or is not ready in time --> the others are aborted

So each attempt ends once, when no process of it is left. Which ending counts, in this order:

1. Rank 0's, if it returned or stopped when told. What happens to other ranks then is no failure;
   rank 0 has not returned if another rank had ended before (`Ranks.finish`).
2. The first of all, if that rank stopped when told: its worker leaves, in a long step of rank 0.
3. The first that the infrastructure caused on any rank: a lost worker, a killed process, no memory
   or no room on the disk. The frameworks of the other ranks raise then; so an exception waits a
   moment for such news.
4. The first failure of the user's code on any rank.
5. That a rank lost its connection to another one, which nothing explains.

Here are no threads, no processes and no clock. Times are in seconds of a monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from ..core.attempt import AttemptId, Cause, Ending, Halt, Usage, known_sum
from ..core.meeting import Member, RankReady
from ..core.messages import (
    AttemptEnded,
    AttemptStarted,
    AttemptWaits,
    Event,
    Measured,
    ParametersUsed,
    Reported,
    WorkerLeft,
)
from ..core.resources import Placement
from ..core.workers import Phase, RosterEvent, Workers
from ..worker.orders import AttemptOrder, MeetOrder, RankOrder, StopOrder
from ..worker.runner_state import GRACE_SECONDS

READY_SECONDS = 300.0
"""Seconds from the first rank that is ready until all must be: a framework's import may be slow."""

GIVE_WAY_SECONDS = (30.0, 60.0)
"""As `READY_SECONDS`, if a rank waits for devices that another process holds.

Two studies may each hold what the other one waits for. The time differs from attempt to attempt, so
that both do not give way, and start again, at once.
"""

NEWS_SECONDS = 3.0
"""Seconds for which an exception of one rank waits for the news that another one was killed."""

LINGER_SECONDS = 30.0
"""Seconds for the other ranks to end after rank 0 has returned."""

HALTED_SECONDS = 3.0
"""Seconds for the other ranks to end after rank 0 has stopped, if the grace time is over then."""

_HALTED = (Cause.STOPPED, Cause.PRUNED, Cause.PAUSED, Cause.RELEASED)
_TOO_LITTLE = (Cause.OUT_OF_MEMORY, Cause.DEVICE_OUT_OF_MEMORY, Cause.NO_ROOM)
_BY_INFRASTRUCTURE = (Cause.WORKER_LOST, Cause.MASTER_LOST, Cause.KILLED, *_TOO_LITTLE)
_OF_ATTEMPTS = (AttemptWaits, AttemptStarted, Reported, ParametersUsed, Measured, AttemptEnded)


# --- instructions -----------------------------------------------------------------------------


Instruction = Event | AttemptOrder | StopOrder | MeetOrder
"""An event is delivered; its time is 0 if it follows from no event of a rank.

An order goes to a rank, or to an attempt of one process.
"""

Instructions = list[Instruction]


# --- states -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rank:
    """The state of one rank.

    Attributes:
        placement: What it holds.
        pid: Its process; None before it is ready.
        member: Where the others reach it; None before it is ready.
        waits: Whether it waits for devices that another process holds.
        measured: Its last measurement.
        ending: How it ended; None while its process may run.
    """

    placement: Placement
    pid: int | None = None
    member: Member | None = None
    waits: bool = False
    measured: Measured | None = None
    ending: Ending | None = None


@dataclass(slots=True)
class _Attempt:
    """The state of one attempt of several processes.

    Attributes:
        name: Rank 0's name, which is the attempt's.
        ranks: Its ranks.
        has_met: Whether the ranks were told where the others are.
        has_waited: Whether it was reported that a rank waits for devices.
        halt: Why it was told to stop.
        halted_at: When it was told.
        give_way_seconds: As `READY_SECONDS`, if a rank waits for devices.
        ready_since: When the first rank was ready; None before, and after the meeting.
        end_at: When the ranks that still run are aborted; None if they may continue.
        is_aborted: Whether they were.
        endings: The endings that count, in their order; not those by an order to abort.
        is_measured: Whether the last measurements were reported.
    """

    name: AttemptId
    ranks: list[_Rank]
    give_way_seconds: float
    has_met: bool = False
    has_waited: bool = False
    halt: Halt | None = None
    halted_at: float = 0.0
    ready_since: float | None = None
    end_at: float | None = None
    is_aborted: bool = False
    endings: list[Ending] = field(default_factory=list)
    is_measured: bool = True

    def rank_name(self, rank: int) -> AttemptId:
        return self.name._replace(rank=rank)

    @property
    def ready_until(self) -> float | None:
        """When all ranks must be ready; None if there is no such time."""
        if self.ready_since is None:
            return None
        waits = any(rank.waits for rank in self.ranks)
        return self.ready_since + (self.give_way_seconds if waits else READY_SECONDS)

    @property
    def running(self) -> Iterator[int]:
        return (i for i, rank in enumerate(self.ranks) if rank.ending is None)

    @property
    def is_over(self) -> bool:
        return all(rank.ending is not None for rank in self.ranks)

    def abort(self) -> Instructions:
        """Kill the ranks that run."""
        self.end_at = self.ready_since = None
        self.is_aborted = True
        return [StopOrder(self.rank_name(i), Halt.ABORT) for i in self.running]

    def end_by(self, at: float) -> None:
        """Abort the ranks that run at this time, or earlier if that was decided before."""
        self.end_at = at if self.end_at is None else min(self.end_at, at)

    @property
    def result(self) -> Ending | None:
        """Rank 0's ending, if it returned or stopped in good order."""
        first = self.ranks[0].ending
        return first if first and first.cause in (Cause.RETURNED, *_HALTED) else None

    @property
    def ending(self) -> Ending:
        """The ending that counts, when all ranks have ended."""
        if self.result is not None:
            return self.result
        told = [each for each in self.endings[:1] if each.cause in _HALTED]
        ranked = told or sorted(self.endings, key=lambda each: _weight(each.cause))
        found = ranked[0] if ranked else Ending(Cause.RANK_LOST, reason="its ranks were aborted")
        if found.cause in (Cause.RANK_LOST, Cause.RETURNED):
            # Rank 0 ended without a word.
            return replace(found, cause=Cause.WORKER_LOST, metrics={})
        return found


def _weight(cause: Cause) -> int:
    if cause in _BY_INFRASTRUCTURE:
        return 0
    return {Cause.RANK_LOST: 2, Cause.RETURNED: 3}.get(cause, 1)


class ParallelState:
    """The state of all attempts of several processes; events of others pass."""

    def __init__(self) -> None:
        self._attempts: dict[AttemptId, _Attempt] = {}
        # The engine's roster is behind: its events pass here first.
        self._workers = Workers()

    @property
    def next_deadline(self) -> float | None:
        """When `tick` is needed next; None if it is not."""
        times = (
            at
            for attempt in self._attempts.values()
            for at in (attempt.ready_until, attempt.end_at)
        )
        return min((at for at in times if at is not None), default=None)

    # --- orders -------------------------------------------------------------------------------

    def start(self, order: AttemptOrder, *, secret: bytes) -> Instructions:
        """Handle the order to start an attempt.

        Args:
            order: The order; its placement has peers.
            secret: A secret for the ranks of this attempt alone.
        """
        placements = order.placement.ranks
        ranks = [_Rank(each) for each in placements]
        attempt = _Attempt(order.attempt, ranks, _give_way_seconds(secret))
        workers = {each.worker for each in placements}
        if gone := {worker for worker in workers if self._has_left(worker)}:
            # Nothing starts. The engine ends attempts all of whose workers are gone.
            if gone == workers:
                return []
            reason = f"the worker {min(gone)} is gone"
            ending = Ending(Cause.WORKER_LOST, reason=reason)
            return [AttemptEnded(0.0, order.attempt, ending)]
        self._attempts[order.attempt] = attempt
        parallel = RankOrder(
            world_size=len(placements),
            secret=secret,
            is_on_one_node=len({self._workers.node(worker) for worker in workers}) == 1,
        )
        # The ranks need the master to end together.
        limits = replace(order.brief.limits, master_grace_seconds=0.0)
        order = replace(order, brief=replace(order.brief, limits=limits), parallel=parallel)
        starts = (
            replace(order.start, attempt=attempt.rank_name(i), placement=placement)
            for i, placement in enumerate(placements)
        )
        return [replace(order, start=start) for start in starts]

    def stop(self, name: AttemptId, halt: Halt, *, now: float) -> Instructions:
        """Handle the order to stop an attempt.

        Once the ranks have met, rank 0 tells the others at which step they stop.
        """
        attempt = self._attempts.get(name)
        if attempt is None:
            return [StopOrder(name, halt)]
        if attempt.halt is None:
            attempt.halt, attempt.halted_at = halt, now
        ranks = attempt.running
        return [
            StopOrder(attempt.rank_name(i), halt) for i in ranks if i == 0 or not attempt.has_met
        ]

    # --- events -------------------------------------------------------------------------------

    def event(self, event: Event, *, now: float) -> Instructions:
        """Handle an event of the executor that runs the ranks."""
        if isinstance(event, RosterEvent):
            self._workers.handle(event)
        if isinstance(event, WorkerLeft):
            return self._worker_left(event)
        if not isinstance(event, _OF_ATTEMPTS):
            return [event]
        name = event.attempt._replace(rank=0)
        attempt = self._attempts.get(name)
        if attempt is None:
            return [] if event.attempt.rank else [event]
        rank = attempt.ranks[event.attempt.rank]
        match event:
            case AttemptWaits():
                rank.waits = True
                is_first, attempt.has_waited = not attempt.has_waited, True
                return [replace(event, attempt=name)] if is_first else []
            case AttemptStarted():
                return self._started(attempt, rank, event, now=now)
            case Measured():
                rank.measured, attempt.is_measured = event, False
                is_due = event.attempt.rank == 0 and attempt.has_met
                return self._measured(attempt, event.at) if is_due else []
            case AttemptEnded():
                self._rank_ended(attempt, event.attempt.rank, event.ending, now=now)
                return self._after_end(attempt, event.at)
        return [event] if event.attempt.rank == 0 else []

    def tick(self, *, now: float) -> Instructions:
        """Abort the ranks whose time is over."""
        instructions: Instructions = []
        for attempt in self._attempts.values():
            if attempt.ready_until is not None and attempt.ready_until <= now:
                attempt.endings.append(_not_ready(attempt))
                instructions += attempt.abort()
            if attempt.end_at is not None and attempt.end_at <= now:
                instructions += attempt.abort()
        return instructions

    def _started(
        self, attempt: _Attempt, rank: _Rank, event: AttemptStarted, *, now: float
    ) -> Instructions:
        rank.pid, rank.waits = event.pid, False
        rank.member = event.member if isinstance(event, RankReady) else None
        if attempt.ready_since is None and not attempt.has_met:
            attempt.ready_since = now
        members = tuple(each.member for each in attempt.ranks if each.member is not None)
        if len(members) < len(attempt.ranks) or attempt.halt or attempt.endings:
            return []
        attempt.has_met, attempt.ready_since = True, None
        meets = (MeetOrder(attempt.rank_name(i), members) for i in range(len(members)))
        return [AttemptStarted(event.at, attempt.name, attempt.ranks[0].pid or 0), *meets]

    @staticmethod
    def _rank_ended(attempt: _Attempt, number: int, ending: Ending, *, now: float) -> None:
        """Note the end of a rank, and decide until when the others may run."""
        rank = attempt.ranks[number]
        rank.ending = ending
        if not (attempt.is_aborted and ending.cause is Halt.ABORT.cause):
            # Also of one that had ended before, and whose files took until now.
            attempt.endings.append(replace(ending, reason=_with_rank(ending.reason, number)))
        if attempt.is_aborted:
            return
        attempt.ready_since = None
        if ending.cause in _BY_INFRASTRUCTURE:
            attempt.end_by(now)
        elif ending.cause in _HALTED and number == 0:
            grace_until = attempt.halted_at + GRACE_SECONDS if attempt.halt else now
            attempt.end_by(max(now + HALTED_SECONDS, grace_until))
        elif ending.cause in (Cause.RETURNED, *_HALTED):
            attempt.end_by(now + LINGER_SECONDS)
        else:
            attempt.end_by(now + NEWS_SECONDS)

    def _after_end(self, attempt: _Attempt, at: float) -> Instructions:
        if not attempt.is_over:
            return []
        del self._attempts[attempt.name]
        measured = self._measured(attempt, at) if attempt.has_met else []
        return [*measured, AttemptEnded(at, attempt.name, attempt.ending)]

    def _worker_left(self, event: WorkerLeft) -> Instructions:
        before: Instructions = []
        after: Instructions = []
        for attempt in list(self._attempts.values()):
            ranks = [(i, attempt.ranks[i]) for i in attempt.running]
            on_it = [(i, rank) for i, rank in ranks if rank.placement.worker == event.worker]
            for i, rank in on_it:
                rank.ending = Ending(Cause.WORKER_LOST, reason=event.reason)
                if not attempt.is_aborted:
                    reason = _with_rank(event.reason, i)
                    attempt.endings.append(replace(rank.ending, reason=reason))
            if not on_it:
                continue
            all_left = all(self._has_left(each.placement.worker) for each in attempt.ranks)
            if not attempt.is_over:
                after += attempt.abort()
            elif not all_left:
                after += self._after_end(attempt, event.at)
            elif attempt.result is not None:
                before += self._after_end(attempt, event.at)
            else:
                del self._attempts[attempt.name]  # the engine ends it
        return [*before, event, *after]

    def _has_left(self, name: str) -> bool:
        worker = self._workers.get(name)
        return worker is not None and worker.phase is Phase.LEFT

    @staticmethod
    def _measured(attempt: _Attempt, at: float) -> Instructions:
        first = attempt.ranks[0].measured
        if first is None or attempt.is_measured:
            return []
        attempt.is_measured = True
        usages = [rank.measured.usage for rank in attempt.ranks if rank.measured is not None]
        total = Measured(at, attempt.name, _total(first.usage, usages), first.free_share)
        return [total]


def _total(first: Usage, usages: Iterable[Usage]) -> Usage:
    """Return what all ranks have used; times are rank 0's."""
    usages = [*usages]
    of_gpu = [usage.peak_gpu_memory_bytes for usage in usages]
    return replace(
        first,
        peak_memory_bytes=sum(usage.peak_memory_bytes for usage in usages),
        peak_gpu_memory_bytes=max((each for each in of_gpu if each is not None), default=None),
        cpu_seconds=sum(usage.cpu_seconds for usage in usages),
        starved_seconds=sum(usage.starved_seconds for usage in usages),
        gpu_joules=known_sum(usage.gpu_joules for usage in usages),
        processor_joules=known_sum(usage.processor_joules for usage in usages),
    )


def _with_rank(reason: str, rank: int) -> str:
    return f"{reason} (rank {rank})"


def _give_way_seconds(secret: bytes) -> float:
    shortest, longest = GIVE_WAY_SECONDS
    return shortest + (longest - shortest) * int.from_bytes(secret[:2], "big") / 0xFFFF


def _not_ready(attempt: _Attempt) -> Ending:
    late = next((i for i, rank in enumerate(attempt.ranks) if rank.member is None), None)
    if late is None:
        # The last rank was ready when the attempt had been told to stop, so they never met.
        halt = attempt.halt or Halt.STOP
        reason = f"{halt.reason}; killed {READY_SECONDS:g} s after its first rank was ready"
        return Ending(halt.cause, reason=reason)
    if attempt.ranks[late].waits:
        reason = f"rank {late} waits for devices that another process holds"
        return Ending(Cause.RELEASED, reason=reason)
    reason = f"rank {late} was not ready {READY_SECONDS:g} s after the first one"
    return Ending(Cause.WORKER_LOST, reason=reason)
