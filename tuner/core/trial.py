"""What is tried: suggestions, trials, their attempts, and what an attempt reports.

A *trial* is one configuration. An *attempt* is one execution of it on a placement: a trial whose
worker was lost gets another attempt, and the sampler never hears of the first.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from .resources import Placement, Resources

ParamValue = bool | int | float | str | None
Params = Mapping[str, ParamValue]


class TrialState(enum.StrEnum):
    """Where a trial stands; the last three are final."""

    WAITING = "WAITING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMPLETE = "COMPLETE"
    PRUNED = "PRUNED"
    FAILED = "FAILED"

    @property
    def is_final(self) -> bool:
        """Whether the trial will never run again."""
        return self in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED)


class Outcome(enum.StrEnum):
    """How an attempt ended."""

    FINISHED = "FINISHED"
    PRUNED = "PRUNED"
    RELEASED = "RELEASED"
    """Given up on purpose (the study was let go, a pause, the walltime); not charged."""
    ERRORED = "ERRORED"
    """The objective's fault; the sampler is told."""
    LOST = "LOST"
    """The infrastructure's fault; retried, and hidden from the sampler."""


class Cause(enum.StrEnum):
    """Why an attempt ended, as far as could be seen; the engine maps it to an outcome."""

    RETURNED = "returned"
    STOPPED = "stopped"
    """Told to let go (`Halt.LET_GO`)."""
    PRUNED = "pruned"
    PAUSED = "paused"
    EXCEPTION = "exception"
    NON_FINITE = "non-finite metric"
    UNKNOWN_METRIC = "unknown metric"
    EXITED = "process exited"
    """`os._exit` or a crash such as a segmentation fault: the process ended by its own doing."""
    KILLED = "process killed"
    """SIGKILL or SIGTERM from outside."""
    OUT_OF_MEMORY = "out of memory"
    """Of the host: the attempt took more than it was granted, or the kernel ended it for that."""
    DEVICE_OUT_OF_MEMORY = "out of device memory"
    """The framework says that its device has no memory left."""
    TIMED_OUT = "timed out"
    HUNG = "hung"
    """It reported nothing and computed nothing for longer than is allowed."""
    RELEASED = "released"
    """Its worker had to go: the end of its walltime, a preemption, SIGTERM."""
    WORKER_LOST = "worker lost"
    MASTER_LOST = "master lost"
    NO_ROOM = "no room"
    """The study's disk took no checkpoint or model; the trial goes on once there is room."""


class Halt(enum.StrEnum):
    """Why a running attempt is told to stop; it ends with the cause of the same meaning."""

    LET_GO = "let go"
    """The study lets go; the trial runs again when the study is resumed."""
    PRUNE = "prune"
    """The trial is poor: it never runs again."""
    PAUSE = "pause"
    """The trial gives up its place, and may go on from its checkpoint later."""
    RELEASE = "release"
    """The worker has to go: the trial goes on elsewhere, from its checkpoint."""

    @property
    def cause(self) -> Cause:
        """How an attempt ends that obeys.

        >>> Halt.PAUSE.cause
        <Cause.PAUSED: 'paused'>
        """
        return _CAUSES[self]


class StopAt(enum.StrEnum):
    """When a Keras training that is told to stop does so."""

    BATCH = "batch"
    """At the end of the batch; what was trained since the last epoch is lost."""
    EPOCH = "epoch"
    """At the end of the epoch, however long it takes."""

    def may_end_epoch(self, halt: Halt | None) -> bool:
        """Whether the epoch is trained to its end; there is no time for it where the worker goes.

        >>> StopAt.EPOCH.may_end_epoch(Halt.PRUNE), StopAt.EPOCH.may_end_epoch(Halt.RELEASE)
        (True, False)
        """
        return self is StopAt.EPOCH and halt is not Halt.RELEASE


_CAUSES = {
    Halt.LET_GO: Cause.STOPPED,
    Halt.PRUNE: Cause.PRUNED,
    Halt.PAUSE: Cause.PAUSED,
    Halt.RELEASE: Cause.RELEASED,
}


class AttemptId(NamedTuple):
    """Names an attempt: the trial's number and the attempt's number within it, both from 0."""

    trial: int
    number: int

    def __str__(self) -> str:
        return f"{self.trial}.{self.number}"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A sampler's immutable answer to one question.

    Attributes:
        params: Value of every active hyperparameter.
        origin: Who proposed it, in the sampler's own words ("random", "grid", "tpe", …).
        resources: What the user says that this configuration needs; None for the study's.
    """

    params: Params
    origin: str
    resources: Resources | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """What an attempt measured up to a step.

    Attributes:
        step: Epochs done (or whatever the objective counts), from 1.
        metrics: Metric name to value.
    """

    step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What an attempt has used so far, measured by its runner from outside.

    Attributes:
        peak_memory_bytes: The most host memory that its processes held at a time; what they
            share with the process that they were forked from is not theirs.
        peak_gpu_memory_bytes: The most memory that they held on one of their GPUs at a time; 0 if
            they never opened any; None where that cannot be seen.
        cpu_seconds: Processor time of all its processes.
        seconds: Since its process was asked for.
        seconds_per_step: Between one report and the next, per step; None before the second.
        starved_seconds: How long its threads were ready to run while no core was free for them,
            all together; 0 where that cannot be seen. It was not idle then.
    """

    peak_memory_bytes: int
    peak_gpu_memory_bytes: int | None = None
    cpu_seconds: float
    seconds: float
    seconds_per_step: float | None = None
    starved_seconds: float = 0.0

    @property
    def busy(self) -> float:
        """How much of a core it would keep busy that it has for itself, 1 at most.

        >>> Usage(peak_memory_bytes=1, cpu_seconds=2.7, seconds=10.0, starved_seconds=7.3).busy
        1.0
        >>> Usage(peak_memory_bytes=1, cpu_seconds=2.5, seconds=10.0).busy
        0.25
        """
        had_one = max(self.cpu_seconds, self.seconds - self.starved_seconds)
        return min(1.0, self.cpu_seconds / had_one) if had_one > 0.0 else 0.0

    def since(self, before: Usage) -> Usage:
        """What was used after a time, with the peaks of all."""
        return replace(
            self,
            cpu_seconds=max(0.0, self.cpu_seconds - before.cpu_seconds),
            seconds=self.seconds - before.seconds,
            starved_seconds=max(0.0, self.starved_seconds - before.starved_seconds),
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt's process ended, told by the process itself or by who watched it.

    Attributes:
        cause: The kind of end.
        metrics: Metrics of the result, for `Cause.RETURNED`.
        step: The step that the metrics were taken at (the best epoch), if there is one.
        reason: One line for people.
        detail: The traceback, trimmed to the user's own files, if there is one.
        ended_early: Whether the training ended by itself before it had all its epochs; None where
            nobody can say.
    """

    cause: Cause
    metrics: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None
    reason: str = ""
    detail: str = ""
    ended_early: bool | None = None

    @property
    def fingerprint(self) -> str:
        r"""Equal for two failures of the same kind at the same place.

        >>> where = 'Traceback…\n  File "model.py", line 3, in build\nValueError: '
        >>> one = Ending(Cause.EXCEPTION, reason="ValueError: got 3", detail=where + "got 3")
        >>> two = Ending(Cause.EXCEPTION, reason="ValueError: got 4", detail=where + "got 4")
        >>> one.fingerprint == two.fingerprint
        True
        """
        places = [line.strip() for line in self.detail.splitlines() if line.startswith('  File "')]
        kind = self.reason.partition(":")[0] if places else self.reason
        return "; ".join((str(self.cause), kind, *places[-1:]))


NO_BETTER = "trained on, and was no better for it"
"""The reason of an attempt that leaves a complete trial's result as it was."""


class Direction(enum.StrEnum):
    """Which values of a metric are better."""

    MIN = "min"
    MAX = "max"

    @property
    def worst(self) -> float:
        """What every number is better than.

        >>> Direction.MAX.worst
        -inf
        """
        return -math.inf if self is Direction.MAX else math.inf

    def better(self, value: float, than: float | None) -> bool:
        """Whether `value` beats `than`; nothing beats a value with NaN, any number beats None.

        >>> Direction.MAX.better(0.9, 0.8), Direction.MIN.better(0.9, 0.8)
        (True, False)
        >>> Direction.MAX.better(float("nan"), None), Direction.MIN.better(1.0, None)
        (False, True)
        """
        if math.isnan(value):
            return False
        if than is None or math.isnan(than):
            return True
        return value > than if self is Direction.MAX else value < than


@dataclass(frozen=True, slots=True)
class Goal:
    """What a study optimises: a metric and a direction."""

    metric: str
    direction: Direction

    def __str__(self) -> str:
        return f"{self.metric} ({self.direction})"


@dataclass(frozen=True, slots=True)
class Score:
    """What counts of a result.

    Attributes:
        values: The objectives' values, in the order of the study's goals.
        violation: By how much it breaks the study's constraints; 0 if it keeps them all.
    """

    values: tuple[float, ...]
    violation: float = 0.0


ADDED = "start point (added)"
"""The origin of a trial that the user asked for when the study was taken up again."""

CONFIRMS = "confirm of "
"""How the origin of a trial begins that trains another trial's configuration once more."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as others see it: a frozen picture, made by the engine.

    Attributes:
        number: From 0, in the order of suggestion.
        params: The configuration.
        origin: Who proposed it.
        state: Where it stands.
        value: The (first) objective's value if the trial is COMPLETE; that of its last report if
            it is PRUNED or PAUSED and reported at all; otherwise None.
        step: The step at which `value` was measured, if steps were reported.
        metrics: All metrics at that step.
        rungs: The steps at which the study's pruner compares trials and that this one has
            reached, with the best value that the trial had by then. Empty without a pruner.
        extra_values: The values of the objectives after the first, in their order.
        violation: By how much it breaks the study's constraints; 0 if it keeps them all.
        attempts: How many attempts there were so far.
        reason: Why it failed, in one line.
        detail: The failure's traceback.
    """

    number: int
    params: Params
    origin: str
    state: TrialState
    value: float | None = None
    step: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    rungs: Mapping[int, float] = field(default_factory=dict)
    extra_values: tuple[float, ...] = ()
    violation: float = 0.0

    @property
    def values(self) -> tuple[float, ...]:
        """The values of all objectives; empty before there are any."""
        return () if self.value is None else (self.value, *self.extra_values)

    @property
    def score(self) -> Score:
        """What counts of its result."""
        return Score(self.values, self.violation)

    @property
    def confirms(self) -> int | None:
        """The trial whose configuration this one trains once more, with another seed.

        >>> Trial(7, {"x": 1}, "confirm of 3", TrialState.WAITING).confirms
        3
        """
        named = self.origin.removeprefix(CONFIRMS)
        return int(named) if named != self.origin and named.isdecimal() else None

    attempts: int = 0
    reason: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class HeldBefore:
    """What an attempt had held until its placement was last made smaller.

    Attributes:
        until: When that was, in seconds since the epoch.
        core_seconds: For how long it had held a core by then; parts of one count as parts.
        gpu_seconds: The same of GPUs.
    """

    until: float
    core_seconds: float
    gpu_seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt as others see it: a frozen picture, made by the engine.

    Attributes:
        id: Which trial, and the how-manieth of its attempts.
        placement: What it holds (or held).
        node: The machine it runs on.
        placed_at: When it was given its placement, in seconds since the epoch.
        started_at: When its process was seen running; None before.
        ended_at: When it was seen to have ended; None while it runs.
        outcome: How it ended; None while it runs.
        reason: One line saying why it ended.
        cause: What kind of end that was; None while it runs, and where an older version of
            hptune wrote it down.
        usage: What it used, as last measured; None before that.
        why: Why it was given so much, where that was decided by what others used.
        before: What it had held until it was found to need less of a device; None if it holds
            what it began with.
    """

    id: AttemptId
    placement: Placement
    node: str
    placed_at: float
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    reason: str = ""

    def seconds(self, now: float) -> float | None:
        """How long its process has run until now, or did; None if it has not been seen running."""
        if self.started_at is None:
            return None
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)

    usage: Usage | None = None
    cause: Cause | None = None
    why: str = ""
    before: HeldBefore | None = None
