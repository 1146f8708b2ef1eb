"""The records of a study: its trials, the state of each, and the running attempts.

Nothing is decided here, but an illegal change is refused.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter

from ...errors import InvalidTransition
from ..attempt import FROM_OUTSIDE, Attempt, AttemptId, Cause, Ending, Halt, Outcome, Report
from ..goals import Goals
from ..resources import Placement, Resources
from ..trial import Suggestion, Trial, TrialState


class TrialEvent(enum.StrEnum):
    """Event that moves a trial to another state."""

    START = "start"
    RETRY = "retry"
    """Its attempt, or the trial as a whole, ended without a result: the trial runs again."""
    PAUSE = "pause"
    PROMOTE = "promote"
    """It was paused and continues."""
    COMPLETE = "complete"
    FAIL = "fail"
    PRUNE = "prune"
    REOPEN = "reopen"
    """It was complete and trains on."""
    RESTORE = "restore"
    """It trained on without a better result, and keeps the one that it had."""


TRANSITIONS: Mapping[tuple[TrialState, TrialEvent], TrialState] = {
    (TrialState.WAITING, TrialEvent.START): TrialState.RUNNING,
    (TrialState.WAITING, TrialEvent.PRUNE): TrialState.PRUNED,
    (TrialState.WAITING, TrialEvent.RESTORE): TrialState.COMPLETE,
    (TrialState.RUNNING, TrialEvent.RETRY): TrialState.WAITING,
    (TrialState.RUNNING, TrialEvent.PAUSE): TrialState.PAUSED,
    (TrialState.RUNNING, TrialEvent.COMPLETE): TrialState.COMPLETE,
    (TrialState.RUNNING, TrialEvent.FAIL): TrialState.FAILED,
    (TrialState.RUNNING, TrialEvent.PRUNE): TrialState.PRUNED,
    (TrialState.RUNNING, TrialEvent.RESTORE): TrialState.COMPLETE,
    (TrialState.PAUSED, TrialEvent.PROMOTE): TrialState.WAITING,
    (TrialState.PAUSED, TrialEvent.PRUNE): TrialState.PRUNED,
    (TrialState.PAUSED, TrialEvent.RESTORE): TrialState.COMPLETE,
    (TrialState.COMPLETE, TrialEvent.REOPEN): TrialState.WAITING,
    (TrialState.FAILED, TrialEvent.RETRY): TrialState.WAITING,
}
"""The next state, by the present state and what happens; all else is illegal."""


_WITHOUT_RESULT = Trial(0, {}, "", TrialState.WAITING)


@dataclass(slots=True)
class TrialRecord:
    """A trial, and what else the engine knows of it.

    Attributes:
        trial: The trial as others see it.
        losses: How often its attempts ended by each cause; by a cause from outside, since the trial
            last reported a later step than ever before.
        running: The running attempt, if there is one.
        last_step: The highest step of the reports that have the first goal's metric.
        other_step: The same of those that lack it, which may count something else.
        compared_steps: The steps of the reports that trials are compared by: those that have the
            metrics of all goals. Ascending, in as few ranges as they allow.
        best: The goals' values in the best of those reports that break no constraint.
        improvements: Each such report that was better than those before it: step and values. The
            first of those reports is one in any case, with the worst values if it breaks any.
        last: The last of those reports, until the trial is over.
        best_report: The report of `best`, until the trial is over.
        before: The complete trial, while it trains on.
        resources: What its configuration needs, if the user said so of it alone.
        memory_bytes: Host memory to grant at least, as the trial ran out of it before; else 0.
        first_step: The step of its first report ever; None before it.
        releases_without_progress: How often in a row its worker had to leave an attempt that began
            there, or that had reported nothing.
        lost_on: The node where its last attempt was killed or lost although the worker stayed;
            empty if it was not.
        ran_out_on_gpu: Whether it ran out of memory on a GPU, and needs a whole one.
        seconds: How long the processes of its ended attempts ran, in sum.
        joules: The energy of its ended attempts, in sum; None if none was measured.
        history: What happened to the trial, each with its time.
    """

    trial: Trial
    losses: dict[Cause, int] = field(default_factory=dict)
    running: AttemptId | None = None
    last_step: int = 0
    other_step: int = 0
    compared_steps: list[range] = field(default_factory=list)
    best: tuple[float, ...] | None = None
    improvements: list[tuple[int, tuple[float, ...]]] = field(default_factory=list)
    last: Report | None = None
    best_report: Report | None = None
    before: Trial | None = None
    resources: Resources | None = None
    memory_bytes: int = 0
    first_step: int | None = None
    releases_without_progress: int = 0
    lost_on: str = ""
    ran_out_on_gpu: bool = False
    seconds: float = 0.0
    joules: float | None = None
    history: list[tuple[float, str]] = field(default_factory=list)

    @property
    def result(self) -> Trial:
        """The trial as samplers know it: while it trains on, it has the result that it had."""
        return replace(self.trial, state=TrialState.COMPLETE) if self.before else self.trial

    @property
    def story(self) -> tuple[str, ...]:
        """The trial's history, one line for each thing, with the seconds since the first."""
        return tuple(f"{at - self.history[0][0]:.1f} s: {what}" for at, what in self.history)

    def raise_memory(self, attempt: Attempt, cause: Cause) -> None:
        """Ask for twice the memory, or for a whole GPU, if an attempt ran out of memory.

        A trial that needs several nodes asks for the same again: whether they have more is unknown.
        """
        used = 0 if attempt.usage is None else attempt.usage.peak_memory_bytes
        if cause is Cause.OUT_OF_MEMORY:
            had = sum(rank.memory_bytes for rank in attempt.placement.ranks)
            self.memory_bytes = max(self.memory_bytes, 2 * max(had, used))
        elif cause is Cause.DEVICE_OUT_OF_MEMORY:
            self.ran_out_on_gpu = True

    def wants(self, sized: Resources, *, most_memory_bytes: int) -> Resources:
        """Return what the next attempt asks for.

        Args:
            sized: What it would ask for if it had not run before.
            most_memory_bytes: Memory of the largest worker, the most that is granted; 0 if there is
                none: then one as usual must come, as there may be no larger one.
        """
        wanted = sized
        if self.ran_out_on_gpu:
            is_part = wanted.gpus is not None and 0 < wanted.gpus < 1
            gpus = 1 if is_part else wanted.gpus
            wanted = replace(wanted, gpus=gpus, gpu_memory_bytes=0)
        if self.memory_bytes and wanted.nodes == 1:
            needed = min(self.memory_bytes, most_memory_bytes)
            wanted = replace(wanted, memory_bytes=max(wanted.memory_bytes, needed))
        return wanted

    def forgive(self, cause: Cause) -> None:
        """Count one end by this cause less, as it was not the trial's fault."""
        if self.losses.get(cause):
            self.losses[cause] -= 1

    def observe(self, report: Report, goals: Goals) -> bool:
        """Record a report; return whether the trial can be compared with others by it.

        It cannot by a report that lacks a goal's metric, nor by one of a step that the trial has
        reported before (an attempt that had to start over).
        """
        first = report.metrics.get(goals.goal.metric)
        before = self.other_step if first is None else self.last_step
        if not math.isfinite(first or 0.0) or report.step <= before:
            return False
        # They say nothing of a trial that advanced: a long one may be preempted many times.
        for cause in FROM_OUTSIDE:
            self.losses.pop(cause, None)
        if first is None:
            self.other_step = report.step
            return False
        self.last_step, self.last = report.step, report
        values = tuple(report.metrics.get(goal.metric, math.nan) for goal in goals.objectives)
        if not all(map(math.isfinite, values)):
            return False
        self._add_compared(report.step)
        is_better = self.best is None or goals.is_better_epoch(values, self.best)
        if is_better and not goals.broken(report.metrics):
            self.best, self.best_report = values, report
            self.improvements.append((report.step, values))
        elif not self.improvements:
            worst = tuple(goal.direction.worst for goal in goals.objectives)
            self.improvements.append((report.step, worst))
        return True

    def _add_compared(self, step: int) -> None:
        ranges, apart = self.compared_steps, step - self.compared_step
        if ranges and (len(ranges[-1]) == 1 or ranges[-1].step == apart):
            ranges[-1] = range(ranges[-1].start, step + 1, apart)
        else:
            ranges.append(range(step, step + 1))

    @property
    def reached(self) -> int:
        """The last step that it has reported, with the first goal if ever; 0 before that."""
        return self.last_step or self.other_step

    @property
    def compared_step(self) -> int:
        """The highest of the compared steps; 0 if there is none."""
        return self.compared_steps[-1][-1] if self.compared_steps else 0

    def best_by(self, step: int) -> tuple[float, ...]:
        """Return what `best` was after a step, not before the first of the improvements."""
        return self.improvements[bisect_right(self.improvements, step, key=itemgetter(0)) - 1][1]


@dataclass(slots=True)
class AttemptRecord:
    """A running attempt.

    Attributes:
        attempt: The attempt as others see it.
        latest: Its last report.
        halt: Why it was told to stop; None if it was not.
        next_halt: Why it was to stop while it was told so already; None if it was not. It counts
            once the order to prune is taken back.
        is_told: Whether its last report was answered by `halt`; only programs that ask for their
            trials learn of an order in this way alone.
        stopped_by: The user who stopped the trial; empty for nobody.
        first_step: The step of its first report.
        last_sign_at: When it was placed or reported last, or the study has got or lost a master
            since, in seconds since the epoch.
    """

    attempt: Attempt
    latest: Report | None = None
    halt: Halt | None = None
    next_halt: Halt | None = None
    is_told: bool = False
    stopped_by: str = ""
    first_step: int | None = None
    last_sign_at: float = 0.0


@dataclass(frozen=True, slots=True)
class LeasedAttempt:
    """The running attempt of a program that asked for it.

    Attributes:
        attempt: The attempt.
        halt: Why the program is to stop; None if it is not.
        is_told: Whether its last report was answered by `halt`.
        lease_seconds: How long it may report nothing.
        last_sign_at: When it asked or reported last, or the study has got or lost a master since,
            in seconds since the epoch.
    """

    attempt: Attempt
    halt: Halt | None
    is_told: bool
    lease_seconds: float
    last_sign_at: float

    def is_past_lease(self, at: float) -> bool:
        """Return whether it has reported nothing for longer than its lease."""
        return at > self.last_sign_at + self.lease_seconds


class TrialRecords:
    """All trials of a study and the running attempts.

    Attributes:
        at: Time of the present event, in seconds since the epoch; for the trials' histories.
        running: The attempts that hold a placement.
    """

    def __init__(self) -> None:
        self.at = 0.0
        self._trials: list[TrialRecord] = []
        self._counts = dict.fromkeys(TrialState, 0)
        self._unbegun = 0
        self._newly_waiting: list[tuple[bool, int]] = []
        self.running: dict[AttemptId, AttemptRecord] = {}
        self._running_on: dict[str, dict[AttemptId, None]] = {}
        self._changed_trials: set[int] = set()
        self._changed_attempts: dict[AttemptId, Attempt] = {}

    # --- what there is ----------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[TrialRecord]:
        return iter(self._trials)

    def __getitem__(self, number: int) -> TrialRecord:
        return self._trials[number]

    def count(self, state: TrialState) -> int:
        """Return how many trials are in a state."""
        return self._counts[state]

    @property
    def counts(self) -> Mapping[TrialState, int]:
        """The number of trials in each state that has any."""
        return {state: count for state, count in self._counts.items() if count}

    @property
    def waiting(self) -> int:
        """The number of trials that wait for a placement."""
        return self._counts[TrialState.WAITING]

    @property
    def interrupted(self) -> int:
        """The number of trials that have begun and wait to continue."""
        return self.waiting - self._unbegun

    def take_newly_waiting(self) -> list[tuple[bool, int]]:
        """Return the trials that wait since the last call: whether each is new, and its number."""
        newly, self._newly_waiting = self._newly_waiting, []
        return newly

    def worker_left(self, worker: str) -> None:
        """Forget which attempts have processes on a worker: it may be back before they end."""
        self._running_on.pop(worker, None)

    def count_on(self, worker: str) -> int:
        """Return the number of attempts of which any process runs on a worker."""
        return len(self._running_on.get(worker, ()))

    def running_on(self, worker: str) -> list[AttemptId]:
        """Return the attempts of which any process runs on a worker."""
        return list(self._running_on.get(worker, ()))

    def all_waiting(self) -> list[tuple[bool, int]]:
        """Return all waiting trials: whether each is new, and its number."""
        self._newly_waiting = []
        return [
            (not record.trial.attempts, record.trial.number)
            for record in self._trials
            if record.trial.state is TrialState.WAITING
        ]

    # --- trials -----------------------------------------------------------------------------

    def add(self, suggestion: Suggestion) -> Trial:
        """Create a trial that waits for a placement."""
        number = len(self._trials)
        trial = Trial(number, suggestion.params, suggestion.origin, TrialState.WAITING)
        self._trials.append(TrialRecord(trial, resources=suggestion.resources))
        self._counts[TrialState.WAITING] += 1
        self._unbegun += 1
        self._changed_trials.add(number)
        self._newly_waiting.append((True, number))
        self.note(number, f"suggested by {suggestion.origin}")
        return trial

    def put(self, record: TrialRecord, trial: Trial) -> None:
        """Replace what is known of a trial; its state stays."""
        record.trial = trial
        self._changed_trials.add(trial.number)

    def note(self, number: int, what: str) -> None:
        """Add a line to a trial's history."""
        self._trials[number].history.append((self.at, what))

    def move(self, record: TrialRecord, event: TrialEvent) -> None:
        """Move a trial to the state that follows from an event.

        Raises:
            InvalidTransition: The event is illegal in the trial's state.
        """
        before = record.trial.state
        state = TRANSITIONS.get((before, event))
        if state is None:
            number = record.trial.number
            raise InvalidTransition(f"trial {number} is {before}: illegal {event}", record.story)
        self._counts[before] -= 1
        self._counts[state] += 1
        self._unbegun -= state.is_final and not record.trial.attempts
        self.put(record, replace(record.trial, state=state))
        self.note(record.trial.number, f"{event}: {before} -> {state}")
        if state.is_final:
            record.last = record.best_report = None

    def wait(self, record: TrialRecord, event: TrialEvent) -> None:
        """Let a trial wait for another attempt; meanwhile it has no result, or its old one."""
        result = record.before or _WITHOUT_RESULT
        names = ("value", "step", "metrics", "extra_values", "violation")
        had = {name: getattr(result, name) for name in names}
        self.put(record, replace(record.trial, **had))
        self.move(record, event)
        self._newly_waiting.append((False, record.trial.number))

    def reopen(self, record: TrialRecord) -> None:
        """Let a complete trial train on."""
        record.before = record.trial
        self.wait(record, TrialEvent.REOPEN)

    def begin_again(self, record: TrialRecord) -> None:
        """Let a failed trial run as if it never had; only its attempts are remembered."""
        record.losses.clear()
        record.improvements.clear()
        record.compared_steps.clear()
        record.last_step = record.other_step = 0
        record.best = record.best_report = None
        record.releases_without_progress = 0
        self.put(record, replace(record.trial, rungs={}, reason="", detail=""))
        self.wait(record, TrialEvent.RETRY)

    def restore(self, record: TrialRecord) -> None:
        """Give a trial that trained on its old result back; it keeps its parameters and rungs.

        Raises:
            InvalidTransition: The trial did not train on.
        """
        before, record.before, now = record.before, None, record.trial
        if before is None:
            raise InvalidTransition(f"trial {now.number} was not complete before", record.story)
        record.releases_without_progress = 0
        result = replace(before, state=now.state, attempts=now.attempts)
        self.put(record, replace(result, params=now.params, rungs=now.rungs))
        self.move(record, TrialEvent.RESTORE)

    # --- attempts ---------------------------------------------------------------------------

    def start(
        self,
        number: int,
        placement: Placement,
        *,
        nodes: tuple[str, ...],
        at: float,
        why: str,
        epochs: int | None,
    ) -> AttemptRecord:
        """Begin the next attempt of a waiting trial; `nodes` are the machines of its ranks."""
        trial = self._trials[number]
        name = AttemptId(number, trial.trial.attempts)
        record = AttemptRecord(
            Attempt(name, placement, nodes[0], placed_at=at, why=why, peer_nodes=nodes[1:]),
            last_sign_at=at,
        )
        self.running[name] = record
        nodes_of = dict(zip((rank.worker for rank in placement.ranks), nodes, strict=True))
        for worker in nodes_of:
            self._running_on.setdefault(worker, {})[name] = None
        self._changed_attempts[name] = record.attempt
        trial.running = name
        self._unbegun -= not trial.trial.attempts
        attempts = trial.trial.attempts + 1
        # What the last attempt never asked for, this one may.
        self.put(trial, replace(trial.trial, attempts=attempts, epochs=epochs, unused=()))
        where = " and ".join(f"{worker} ({node})" for worker, node in nodes_of.items())
        self.note(number, f"attempt {name} is placed on {where}")
        self.move(trial, TrialEvent.START)
        return record

    def put_attempt(self, record: AttemptRecord, attempt: Attempt) -> None:
        """Replace what is known of an attempt."""
        record.attempt = attempt
        self._changed_attempts[attempt.id] = attempt

    def end(self, name: AttemptId, at: float, outcome: Outcome, ending: Ending) -> None:
        """Record the end of an attempt; the caller moves its trial."""
        record = self.running.pop(name)
        for worker in record.attempt.placement.workers:
            self._running_on.get(worker, {}).pop(name, None)
        reason = ending.reason or str(ending.cause)
        ended = replace(
            record.attempt, ended_at=at, outcome=outcome, reason=reason, cause=ending.cause
        )
        trial = self._trials[name.trial]
        trial.running = None
        trial.seconds += ended.seconds(at) or 0.0
        self.put_attempt(record, ended)
        self.note(name.trial, f"attempt {name} ended, {outcome}: {reason}")

    def take_changes(self) -> tuple[list[Trial], list[Attempt]]:
        """Return the trials and attempts that changed since the last call."""
        trials = [self._trials[number].trial for number in sorted(self._changed_trials)]
        attempts = list(self._changed_attempts.values())
        self._changed_trials.clear()
        self._changed_attempts.clear()
        return trials, attempts
