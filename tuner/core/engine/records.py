"""The books of a study: its trials, where each of them stands, and the attempts that run.

Nothing is decided here; but nothing can be entered that would not add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ...errors import InvalidTransition
from ..goals import Goals
from ..resources import Placement, Resources
from ..trial import (
    Attempt,
    AttemptId,
    Cause,
    Ending,
    Halt,
    Outcome,
    Report,
    Suggestion,
    Trial,
    TrialState,
)

_WITHOUT_RESULT = Trial(0, {}, "", TrialState.WAITING)


@dataclass(slots=True)
class TrialRecord:
    """A trial and what is known of it beyond what others see.

    Attributes:
        trial: As others see it.
        losses: How often its attempts ended by each cause.
        running: Its attempt that runs.
        last_step: The highest step of its reports with the goal's metric.
        best_value: The best value of those of them that break no constraint.
        last: The last of these reports, while the trial is not over.
        before: What the trial was when it was complete, while it trains on.
        resources: What its configuration needs, where the user said so of it alone.
        memory_bytes: Host memory that it is to have as it ran out of it before; 0 if it did not.
        fruitless: How many of its last attempts had to leave before they had reported anything.
        ran_out_on_gpu: Whether it ran out of memory on a GPU, so that it is to have a whole one.
        seconds: How long the processes of its attempts ran, of those that are over.
    """

    trial: Trial
    losses: dict[Cause, int] = field(default_factory=dict)
    running: AttemptId | None = None
    last_step: int = 0
    best_value: float | None = None
    last: Report | None = None
    before: Trial | None = None
    resources: Resources | None = None
    memory_bytes: int = 0
    fruitless: int = 0
    ran_out_on_gpu: bool = False
    seconds: float = 0.0

    @property
    def result(self) -> Trial:
        """The trial with the result that it has, though it may be training on."""
        return self.before or self.trial

    def ran_out(self, attempt: Attempt, cause: Cause) -> None:
        """An attempt ran out of memory: the next one is to have twice as much, or a whole GPU."""
        used = 0 if attempt.usage is None else attempt.usage.peak_memory_bytes
        if cause is Cause.OUT_OF_MEMORY:
            had = attempt.placement.memory_bytes
            self.memory_bytes = max(self.memory_bytes, 2 * max(had, used))
        elif cause is Cause.DEVICE_OUT_OF_MEMORY:
            self.ran_out_on_gpu = True

    def wants(self, sized: Resources, *, most_memory_bytes: int) -> Resources:
        """What its next attempt asks for.

        Args:
            sized: What it would ask for had it not run before.
            most_memory_bytes: What the largest worker has; a trial that ran out of memory is not
                given more. 0 if nobody knows.
        """
        wanted = sized
        if self.ran_out_on_gpu:
            is_part = wanted.gpus is not None and 0 < wanted.gpus < 1
            gpus = 1 if is_part else wanted.gpus
            wanted = replace(wanted, gpus=gpus, gpu_memory_bytes=0)
        if self.memory_bytes:
            needed = min(self.memory_bytes, most_memory_bytes or self.memory_bytes)
            wanted = replace(wanted, memory_bytes=max(wanted.memory_bytes, needed))
        return wanted

    def take_note(self, report: Report, goals: Goals) -> bool:
        """Whether a report says anything new.

        It does not without the goal's metric; nor does a trial that had to begin anew until it is
        as far as it was.
        """
        value = report.metrics.get(goals.goal.metric, math.nan)
        if not math.isfinite(value) or report.step <= self.last_step:
            return False
        self.last_step, self.last = report.step, report
        is_better = goals.goal.direction.better(value, self.best_value)
        if is_better and not goals.broken(report.metrics):
            self.best_value = value
        return True


@dataclass(slots=True)
class AttemptRecord:
    """An attempt that runs, the last that it reported, and what it was told."""

    attempt: Attempt
    latest: Report | None = None
    told: Halt | None = None


class TrialRecords:
    """All trials of a study and the attempts that run."""

    def __init__(self) -> None:
        self._trials: list[TrialRecord] = []
        self._counts = dict.fromkeys(TrialState, 0)
        self._newly_waiting: list[tuple[bool, int]] = []
        self._running: dict[AttemptId, AttemptRecord] = {}
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
        """How many trials stand there."""
        return self._counts[state]

    @property
    def counts(self) -> Mapping[TrialState, int]:
        """How many trials there are in each state; states without any are left out."""
        return {state: count for state, count in self._counts.items() if count}

    @property
    def waiting(self) -> int:
        """How many trials wait for a place."""
        return self._counts[TrialState.WAITING]

    def take_newly_waiting(self) -> list[tuple[bool, int]]:
        """The trials that wait since the last call: whether each is new, and its number."""
        newly, self._newly_waiting = self._newly_waiting, []
        return newly

    @property
    def running(self) -> Mapping[AttemptId, AttemptRecord]:
        """The attempts that hold a placement."""
        return self._running

    def running_on(self, worker: str) -> list[AttemptId]:
        """The attempts that run on a worker."""
        return list(self._running_on.get(worker, ()))

    def all_waiting(self) -> list[tuple[bool, int]]:
        """All that wait: whether each is new, and its number."""
        self._newly_waiting = []
        return [
            (not record.trial.attempts, record.trial.number)
            for record in self._trials
            if record.trial.state is TrialState.WAITING
        ]

    # --- trials -----------------------------------------------------------------------------

    def add(self, suggestion: Suggestion) -> Trial:
        """A new trial, which waits for a place."""
        number = len(self._trials)
        trial = Trial(number, suggestion.params, suggestion.origin, TrialState.WAITING)
        self._trials.append(TrialRecord(trial, resources=suggestion.resources))
        self._counts[TrialState.WAITING] += 1
        self._changed_trials.add(number)
        self._newly_waiting.append((True, number))
        return trial

    def put(self, record: TrialRecord, trial: Trial) -> None:
        """The trial is known better; it stands where it stood."""
        record.trial = trial
        self._changed_trials.add(trial.number)

    def move(self, record: TrialRecord, state: TrialState) -> None:
        """The trial stands elsewhere.

        Raises:
            InvalidTransition: It is over.
        """
        before = record.trial.state
        if before.is_final:
            raise InvalidTransition(
                f"trial {record.trial.number}: {before} -> {state}", (repr(record.trial),)
            )
        self._counts[before] -= 1
        self._counts[state] += 1
        self.put(record, replace(record.trial, state=state))
        if state.is_final:
            record.last = None

    def wait(self, record: TrialRecord) -> None:
        """A trial that was not new is to run; it has no result until it has, or its old one."""
        result = record.before or _WITHOUT_RESULT
        names = ("value", "step", "metrics", "extra_values", "violation")
        had = {name: getattr(result, name) for name in names}
        self.put(record, replace(record.trial, **had))
        self.move(record, TrialState.WAITING)
        self._newly_waiting.append((False, record.trial.number))

    def reopen(self, record: TrialRecord) -> None:
        """A complete trial is to train on."""
        record.before = record.trial
        self._counts[TrialState.COMPLETE] -= 1
        self._counts[TrialState.RUNNING] += 1
        self.put(record, replace(record.trial, state=TrialState.RUNNING))

    def restore(self, record: TrialRecord) -> None:
        """A trial is what it was before it trained on, but for what it drew and how far it came.

        Raises:
            InvalidTransition: It did not train on.
        """
        before, record.before, now = record.before, None, record.trial
        if before is None:
            raise InvalidTransition(f"trial {now.number} was not complete before")
        result = replace(before, state=now.state, attempts=now.attempts)
        self.put(record, replace(result, params=now.params, rungs=now.rungs))
        self.move(record, TrialState.COMPLETE)

    # --- attempts ---------------------------------------------------------------------------

    def start(
        self, number: int, placement: Placement, *, node: str, at: float, why: str = ""
    ) -> AttemptRecord:
        """A trial that waited has a place: its next attempt begins."""
        trial = self._trials[number]
        name = AttemptId(number, trial.trial.attempts)
        record = AttemptRecord(Attempt(name, placement, node, placed_at=at, why=why))
        self._running[name] = record
        self._running_on.setdefault(placement.worker, {})[name] = None
        self._changed_attempts[name] = record.attempt
        trial.running = name
        self.put(trial, replace(trial.trial, attempts=trial.trial.attempts + 1))
        self.move(trial, TrialState.RUNNING)
        return record

    def put_attempt(self, record: AttemptRecord, attempt: Attempt) -> None:
        """The attempt is known better."""
        record.attempt = attempt
        self._changed_attempts[attempt.id] = attempt

    def end(self, name: AttemptId, at: float, outcome: Outcome, ending: Ending) -> AttemptRecord:
        """An attempt is over; where its trial stands is to be said."""
        record = self._running.pop(name)
        del self._running_on[record.attempt.placement.worker][name]
        reason = ending.reason or str(ending.cause)
        ended = replace(
            record.attempt, ended_at=at, outcome=outcome, reason=reason, cause=ending.cause
        )
        trial = self._trials[name.trial]
        trial.running = None
        trial.seconds += ended.seconds(at) or 0.0
        self.put_attempt(record, ended)
        return record

    def take_changes(self) -> tuple[list[Trial], list[Attempt]]:
        """The trials and attempts that changed since the last call."""
        trials = [self._trials[number].trial for number in sorted(self._changed_trials)]
        attempts = list(self._changed_attempts.values())
        self._changed_trials.clear()
        self._changed_attempts.clear()
        return trials, attempts

    # --- for the doubtful -------------------------------------------------------------------

    def validate(self) -> None:
        """Check that the books add up.

        Raises:
            AssertionError: They do not.
        """
        states = [record.trial.state for record in self._trials]
        for state in TrialState:
            if self._counts[state] != states.count(state):
                raise AssertionError(f"{state}: counted {self._counts[state]}")
        running = {record.running for record in self._trials if record.running is not None}
        if running != set(self._running):
            raise AssertionError(f"running {set(self._running)}, trials say {running}")
        for name, run in self._running.items():
            if name not in self._running_on[run.attempt.placement.worker]:
                raise AssertionError(f"attempt {name} is not known to run on its worker")
        if sum(map(len, self._running_on.values())) != len(self._running):
            raise AssertionError(f"more runs on workers than runs: {self._running_on}")
        for number, record in enumerate(self._trials):
            trial = record.trial
            if trial.number != number:
                raise AssertionError(f"trial {trial.number} stands at {number}")
            if (trial.state is TrialState.RUNNING) != (record.running is not None):
                raise AssertionError(f"trial {number} is {trial.state}, runs {record.running}")
            rests = trial.state in (TrialState.PRUNED, TrialState.PAUSED) and record.last_step
            has_result = trial.state is TrialState.COMPLETE or record.before is not None
            if (has_result or bool(rests)) != (trial.value is not None):
                raise AssertionError(f"trial {number} is {trial.state} with {trial.value}")
            if any(rung > record.last_step for rung in trial.rungs):
                raise AssertionError(f"trial {number} has reached {trial.rungs}")
