"""The attempts of a worker as a pure state machine: events in, instructions out.

An attempt goes through these states; each arrow is an event::

    start -> starting -- forked --> running -- exited and channel_closed --> removed (`EndAttempt`)
                 |
                 +-- stop, fork_failed --> removed (`AttemptEnded`)

So each started attempt ends exactly once, unless the runner closes before. `AttemptRunner` delivers
the events and carries out the instructions; here are no threads, no processes and no clock. Times
are in seconds of a monotonic clock.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..core.attempt import AttemptId, Cause, Ending, Halt
from ..core.messages import AttemptEnded, AttemptStarted, Measured, ParametersUsed, Reported
from ..text import signal_name
from .orders import StopOrder, StudyBrief

GRACE_SECONDS = 10.0
"""Seconds from the order to stop until an attempt is killed: enough to write a checkpoint."""

_GRACES = {Cause.TIMED_OUT: GRACE_SECONDS, Cause.HUNG: 5.0}
"""The same after a broken limit, which is no time for the others: a hang writes its stacks."""

_MOST_EARLY_STOPS = 1000
"""Number of orders to stop that are remembered; most are for attempts that are over."""

_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

AttemptEvent = AttemptStarted | Reported | ParametersUsed | Measured | AttemptEnded
"""What an attempt's process sends."""


# --- instructions -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DumpStacks:
    """Let the attempt's process write its stacks into its log."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the attempt's process."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class Drain:
    """Deliver the messages that are left in the attempt's channel, then `channel_closed`."""

    attempt: AttemptId


@dataclass(frozen=True, slots=True)
class EndAttempt:
    """Forget the attempt and send its `AttemptEnded`.

    Attributes:
        attempt: The attempt.
        ending: How it ended.
        was_sigkilled: Whether SIGKILL from outside ended it, so that the kernel may have killed it
            for lack of memory.
    """

    attempt: AttemptId
    ending: Ending
    was_sigkilled: bool = False


Instruction = AttemptEvent | StopOrder | DumpStacks | Kill | Drain | EndAttempt
"""An event is sent to the master, and an order to stop goes to the attempt's process."""

Instructions = tuple[Instruction, ...]


# --- states -----------------------------------------------------------------------------------


class EarlyStops:
    """Orders to stop attempts that do not run, the latest of them.

    Such an order came late, or it overtook the order to start.
    """

    def __init__(self) -> None:
        self._halts: dict[AttemptId, Halt] = {}

    def add(self, attempt: AttemptId, halt: Halt) -> None:
        """Remember an order; of several for one attempt, the first counts."""
        self._halts.setdefault(attempt, halt)
        if len(self._halts) > _MOST_EARLY_STOPS:
            del self._halts[next(iter(self._halts))]

    def take(self, attempt: AttemptId) -> Halt | None:
        """Return and forget why the attempt must not start; None if it may."""
        return self._halts.pop(attempt, None)


@dataclass(slots=True)
class _Attempt:
    """The state of one attempt.

    Attributes:
        brief: The study's limits for it.
        is_running: Whether it has a process; otherwise the fork server is awaited.
        timeout_at: When its time limit ends; None if it has none.
        kill_at: When it is killed; None if it may continue.
        halt: Why the master told it to stop.
        overran: Why it is killed although it may end its epoch; empty if it is not.
        early_ending: Why the runner ends it.
        own_ending: How it ended, by its own message.
        is_channel_open: Whether more messages may come.
        exit_status: Its process's, negative for a signal; None while it runs.
        is_server_lost: Whether the fork server failed.
    """

    brief: StudyBrief
    is_running: bool = False
    timeout_at: float | None = None
    kill_at: float | None = None
    halt: Halt | None = None
    overran: str = ""
    early_ending: Ending | None = None
    own_ending: Ending | None = None
    is_channel_open: bool = True
    exit_status: int | None = None
    is_server_lost: bool = False

    def ending(self) -> Ending:
        """Return how the attempt ended, after its process has ended."""
        if self.early_ending is not None:
            # An attempt that stops when told to says so; the runner knows why it was told.
            obeyed = self.own_ending is None or self.own_ending.cause is Halt.STOP.cause
            if obeyed:
                return self.early_ending
        if self.own_ending is not None:
            if self.halt is not None and self.own_ending.cause in (Cause.RELEASED, Cause.KILLED):
                return replace(self.own_ending, cause=self.halt.cause)  # the first order counts
            return self.own_ending
        status = self.exit_status or 0
        if self.halt is not None:
            how = f"killed: {self.overran}" if self.overran else "killed after the grace time"
            if status >= 0:
                how = f"its process exited with status {status}"
            return Ending(self.halt.cause, reason=f"{self.halt.reason}; {how}")
        if self.is_server_lost:
            return Ending(Cause.WORKER_LOST, reason="the process that it was forked from failed")
        if status >= 0:
            reason = f"its process exited with status {status} and gave no result"
            return Ending(Cause.EXITED, reason=reason)
        if -status in _FROM_OUTSIDE:
            reason = f"its process was killed by {signal_name(-status)}"
            return Ending(Cause.KILLED, reason=reason)
        return Ending(Cause.EXITED, reason=f"its process crashed with {signal_name(-status)}")


class RunnerState:
    """The state of all attempts of a runner.

    Events of an attempt that is unknown, or over, are ignored.
    """

    def __init__(self) -> None:
        self._attempts: dict[AttemptId, _Attempt] = {}
        self._early_stops = EarlyStops()
        self._is_closed = False

    # --- questions ----------------------------------------------------------------------------

    def is_starting(self, attempt: AttemptId) -> bool:
        """Return whether the attempt waits for its process."""
        state = self._attempts.get(attempt)
        return state is not None and not state.is_running

    @property
    def open_channels(self) -> list[AttemptId]:
        """The attempts whose processes may send more messages."""
        return [attempt for attempt, state in self._running() if state.is_channel_open]

    @property
    def may_outlive_master(self) -> bool:
        """Whether an attempt runs that may continue without its master."""
        return any(state.brief.limits.master_grace_seconds for _, state in self._running())

    @property
    def next_deadline(self) -> float | None:
        """When `tick` is needed next; None if it is not."""
        times = (
            at
            for attempt in self._attempts.values()
            for at in (attempt.kill_at, attempt.timeout_at)
        )
        return min((at for at in times if at is not None), default=None)

    # --- orders -------------------------------------------------------------------------------

    def start(self, attempt: AttemptId, brief: StudyBrief) -> Instructions:
        """Handle the order to start; if the attempt `is_starting` then, it needs a process."""
        if self._is_closed:
            # Nothing would watch it, and its devices are given to others.
            return (_ended(attempt, Ending(Cause.RELEASED, reason="its worker has ended")),)
        if halt := self._early_stops.take(attempt):
            return (_ended(attempt, halt.ending),)
        self._attempts[attempt] = _Attempt(brief)
        return ()

    def stop(self, attempt: AttemptId, halt: Halt, *, now: float) -> Instructions:
        """Handle the order to stop; `tick` kills the attempt later, unless it may end its epoch."""
        state = self._attempts.get(attempt)
        if state is None:
            self._early_stops.add(attempt, halt)
            return ()
        if not state.is_running:
            del self._attempts[attempt]
            return (_ended(attempt, halt.ending),)
        if halt is Halt.ABORT:
            return self.kill(attempt, halt.ending)
        # An epoch may take any time; a second Ctrl-C and the time limit end it too.
        may_end_epoch = state.brief.limits.stop_at.may_end_epoch(halt)
        is_told = state.halt is not None and (may_end_epoch or state.kill_at is not None)
        if is_told or state.early_ending is not None:
            return ()
        state.halt = state.halt or halt
        if not may_end_epoch:
            state.kill_at = now + GRACE_SECONDS
        return (StopOrder(attempt, halt),)

    def close(self) -> None:
        """Forget all attempts; no event follows."""
        self._is_closed = True
        self._attempts.clear()

    # --- the process --------------------------------------------------------------------------

    def forked(self, attempt: AttemptId, *, now: float) -> None:
        """Note that a starting attempt has a process."""
        state = self._attempts[attempt]
        state.is_running = True
        if (seconds := state.brief.limits.trial_timeout_seconds) is not None:
            state.timeout_at = now + seconds

    def fork_failed(self, attempt: AttemptId, reason: str) -> Instructions:
        """End a starting attempt for which no process could be started."""
        if not self.is_starting(attempt):
            return ()
        del self._attempts[attempt]
        reason = f"no process could be started for it: {reason}"
        return (_ended(attempt, Ending(Cause.WORKER_LOST, reason=reason)),)

    def message(self, attempt: AttemptId, event: AttemptEvent, *, now: float) -> Instructions:
        """Handle an event that the process sent."""
        state = self._attempts.get(attempt)
        if state is None:
            return ()
        if not isinstance(event, AttemptEnded):
            return (event,)
        # Sent when the process has ended and its devices are free. What it does until then (an
        # upload, say) is limited.
        state.own_ending = event.ending
        state.kill_at, state.timeout_at = now + GRACE_SECONDS, None
        return ()

    def channel_closed(self, attempt: AttemptId) -> Instructions:
        """Note that the process sends no more events."""
        if (state := self._attempts.get(attempt)) is None:
            return ()
        state.is_channel_open = False
        return self._finished(attempt, state)

    def exited(self, attempt: AttemptId, status: int | None) -> Instructions:
        """Note the exit status of the process; None if the fork server failed."""
        state = self._attempts.get(attempt)
        if state is None:
            return ()
        state.is_server_lost = status is None
        state.exit_status = -signal.SIGKILL if status is None else status
        # A process that the attempt started may keep the channel open.
        return (Drain(attempt),) if state.is_channel_open else self._finished(attempt, state)

    def _finished(self, attempt: AttemptId, state: _Attempt) -> Instructions:
        if state.exit_status is None:
            return ()
        del self._attempts[attempt]
        ending = state.ending()
        was_sigkilled = ending.cause is Cause.KILLED and state.exit_status == -signal.SIGKILL
        return (EndAttempt(attempt, ending, was_sigkilled),)

    # --- limits -------------------------------------------------------------------------------

    def tick(self, *, now: float) -> Instructions:
        """Stop or kill the attempts whose time is over."""
        instructions: list[Instruction] = []
        for attempt, state in self._running():
            if state.timeout_at is not None and state.timeout_at <= now:
                state.timeout_at = None
                seconds = state.brief.limits.trial_timeout_seconds or 0.0
                why = f"ran longer than the {seconds:g} s allowed"
                ending = Ending(Cause.TIMED_OUT, reason=why)
                instructions += self.end_early(attempt, ending, now=now)
            if state.kill_at is not None and state.kill_at <= now:
                state.kill_at = None
                instructions.append(Kill(attempt))
        return tuple(instructions)

    def end_early(self, attempt: AttemptId, ending: Ending, *, now: float) -> Instructions:
        """Stop an attempt that broke a limit; `tick` kills it after the grace time.

        One that was told to stop, and may end its epoch, is killed too.
        """
        state = self._attempts.get(attempt)
        if state is None or state.overran or state.early_ending or state.own_ending:
            return ()
        is_told = state.halt is not None
        if not is_told:
            state.early_ending = ending
        elif state.kill_at is None:
            state.overran = ending.reason
        else:
            return ()
        state.kill_at = now + _GRACES.get(ending.cause, 0.0)
        if ending.cause is Cause.HUNG:
            return (DumpStacks(attempt),)
        return () if is_told else (StopOrder(attempt, Halt.STOP),)

    def kill(self, attempt: AttemptId, ending: Ending) -> Instructions:
        """Kill an attempt at once; this is its ending unless it has another by now."""
        if (state := self._attempts.get(attempt)) is None:
            return ()
        if state.halt is None and state.own_ending is None:
            state.early_ending = state.early_ending or ending
        return (Kill(attempt),)

    # --- the master ---------------------------------------------------------------------------

    def stop_survivors(
        self, halt: Halt, *, now: float, lost_seconds: float | None = None
    ) -> Instructions:
        """Stop the attempts that may outlive their master.

        Args:
            halt: STOP, or RELEASE if the master lives and runs them elsewhere.
            now: The time.
            lost_seconds: How long ago the master was lost, which only ends grace times that are
                shorter; None to stop all, as another master has taken over, say.
        """
        found = [
            attempt
            for attempt, state in self._running()
            if (grace := state.brief.limits.master_grace_seconds)
            and (lost_seconds is None or grace < lost_seconds)
        ]
        return tuple(each for attempt in found for each in self.stop(attempt, halt, now=now))

    def _running(self) -> Iterator[tuple[AttemptId, _Attempt]]:
        return (each for each in self._attempts.items() if each[1].is_running)


def _ended(attempt: AttemptId, ending: Ending) -> AttemptEnded:
    return AttemptEnded(0.0, attempt, ending)
