"""Attempts, what they report and use, and how they end.

An *attempt* is one execution of a trial on a placement. A trial whose worker was lost gets another
attempt; the sampler does not see that.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ..errors import without_passwords
from .resources import Placement


class Outcome(enum.StrEnum):
    """Outcome of an attempt."""

    FINISHED = "FINISHED"
    PRUNED = "PRUNED"
    RELEASED = "RELEASED"
    """Given up on purpose (the study stopped, a pause, the walltime); not counted as a loss."""
    ERRORED = "ERRORED"
    """The objective's fault; the sampler is told."""
    LOST = "LOST"
    """The infrastructure's fault; retried, and hidden from the sampler."""


class Cause(enum.StrEnum):
    """Cause of the end of an attempt; the engine maps it to an outcome."""

    RETURNED = "returned"
    STOPPED = "stopped"
    """The study stops (`Halt.STOP`), or the program that trained it gave the trial back."""
    PRUNED = "pruned"
    PAUSED = "paused"
    EXCEPTION = "exception"
    GIVEN_UP = "given up"
    """The user's code gave the trial up: `FailedTrialError` of KerasTuner's."""
    FATAL = "fatal error"
    """The user's code ends the study: `FatalError` of KerasTuner's."""
    NON_FINITE = "non-finite metric"
    UNKNOWN_METRIC = "unknown metric"
    EXITED = "process exited"
    """`os._exit` or a crash such as a segmentation fault: the process ended itself."""
    KILLED = "process killed"
    """SIGKILL or SIGTERM from outside."""
    OUT_OF_MEMORY = "out of memory"
    """Of the host: the attempt exceeded its grant, or the kernel's OOM killer ended it."""
    DEVICE_OUT_OF_MEMORY = "out of device memory"
    """The framework reported that its device has no memory left."""
    TIMED_OUT = "timed out"
    HUNG = "hung"
    """It reported nothing and computed nothing for longer than allowed."""
    RELEASED = "released"
    """Its worker had to leave: the end of its walltime, a preemption, SIGTERM."""
    WORKER_LOST = "worker lost"
    MASTER_LOST = "master lost"
    RANK_LOST = "rank lost"
    """Another process of the attempt is gone, or cannot be reached. An executor tells why."""
    NO_ROOM = "no room"
    """No room for a checkpoint or model on the study's disk; the trial continues once there is."""


NON_FINITE_REMEDY = (
    "lower the largest learning rate, limit the gradients (clipnorm=1), or check the data for NaN"
)
"""What to do against `Cause.NON_FINITE`, as an order."""


class Halt(enum.StrEnum):
    """Reason for an order to stop a running attempt; it ends with the cause of the same meaning."""

    STOP = "stop"
    """The study stops; the trial runs again when the study is resumed."""
    PRUNE = "prune"
    """The trial is poor: it never runs again."""
    PAUSE = "pause"
    """The trial gives up its placement, and may continue from its checkpoint later."""
    RELEASE = "release"
    """The worker has to leave: the trial continues elsewhere, from its checkpoint."""
    ABORT = "abort"
    """Another rank of the attempt is gone: this one is killed at once. Only executors say it."""

    @property
    def reason(self) -> str:
        """What the user is told of an attempt that stops on this request."""
        return _HALT_REASONS[self]

    @property
    def cause(self) -> Cause:
        """The cause of an attempt that stops on this request.

        >>> Halt.PAUSE.cause
        <Cause.PAUSED: 'paused'>
        """
        return _CAUSES[self]

    @property
    def ending(self) -> Ending:
        """How an attempt ends that stops on this request without a result."""
        return Ending(self.cause, reason=self.reason)


class CameBack(enum.StrEnum):
    """What the user's code came back with while an order to stop was pending."""

    NOTHING = "nothing"
    """It returned None, or ended its process."""
    RESULT = "a result"
    """Every goal has a finite value, reported or returned."""
    OTHER = "no result"

    def counts(self, *, was_told: bool, all_reported: bool) -> bool:
        """Return whether this counts, as the order came too late; else it was obeyed.

        >>> CameBack.RESULT.counts(was_told=True, all_reported=False)
        False

        Args:
            was_told: Whether the code has seen the order, as `should_stop` returned True.
            all_reported: Whether its last report is of the last epoch.
        """
        if self is CameBack.NOTHING:
            return False
        return not was_told or (self is CameBack.RESULT and all_reported)


class StopAt(enum.StrEnum):
    """Point at which a Keras training stops on request."""

    BATCH = "batch"
    """At the end of the batch; the training since the last epoch is lost."""
    EPOCH = "epoch"
    """At the end of the epoch, however long it takes."""

    def may_end_epoch(self, halt: Halt | None) -> bool:
        """Return whether the epoch may end; there is no time for it if the worker leaves.

        >>> StopAt.EPOCH.may_end_epoch(Halt.PRUNE), StopAt.EPOCH.may_end_epoch(Halt.RELEASE)
        (True, False)
        """
        return self is StopAt.EPOCH and halt is not Halt.RELEASE


_HALT_REASONS = {
    Halt.STOP: "the study stopped",
    Halt.PRUNE: "worse than other trials where they were compared",
    Halt.PAUSE: "better trials go first",
    Halt.RELEASE: "its worker had to leave",
    Halt.ABORT: "another rank of its attempt is gone",
}
_CAUSES = {
    Halt.STOP: Cause.STOPPED,
    Halt.PRUNE: Cause.PRUNED,
    Halt.PAUSE: Cause.PAUSED,
    Halt.RELEASE: Cause.RELEASED,
    Halt.ABORT: Cause.RANK_LOST,
}


class AttemptId(NamedTuple):
    """Name of an attempt: the trial's number and the attempt's number within it, both from 0.

    The ranks of an attempt of several processes have names of their own in executors and workers.
    The engine and the ledger know rank 0's, which is the attempt's.

    >>> str(AttemptId(3, 0)), str(AttemptId(3, 0, rank=1))
    ('3.0', '3.0r1')
    """

    trial: int
    number: int
    rank: int = 0

    def __str__(self) -> str:
        rank = f"r{self.rank}" if self.rank else ""
        return f"{self.trial}.{self.number}{rank}"


MOST_COUNT = 2**63 - 1
"""Largest count that the ledger can hold."""


def _check_counts(**counts: int | None) -> None:
    """Check that the ledger can hold numbers, which may come from other programs.

    Raises:
        ValueError: It cannot.
    """
    for name, count in counts.items():
        if count is not None and not 0 <= count <= MOST_COUNT:
            raise ValueError(f"the {name} is {count}; allowed are 0 to 2**63 - 1")


@dataclass(frozen=True, slots=True)
class Report:
    """Metrics that an attempt measured up to a step.

    Attributes:
        step: Number of epochs done (or of what the objective counts), from 1.
        metrics: Metric name to value.

    Raises:
        ValueError: The step is negative, or has more than 63 bits.
    """

    step: int
    metrics: Mapping[str, float]

    def __post_init__(self) -> None:
        _check_counts(step=self.step)


@dataclass(frozen=True, slots=True)
class ReportedValue:
    """One metric of one report, as the ledger has it.

    Attributes:
        trial: The trial's number.
        attempt: The attempt's number within the trial.
        step: As in `Report`.
        metric: The metric's name.
        value: Its value; NaN if it is not a number.
        time: When the master received it, in seconds since the epoch.
    """

    trial: int
    attempt: int
    step: int
    metric: str
    value: float
    time: float


def known_sum(amounts: Iterable[float | None]) -> float | None:
    """Return the sum of the amounts that are known; None if none is.

    >>> known_sum([None, 0.5, 1.0]), known_sum([None])
    (1.5, None)
    """
    known = [each for each in amounts if each is not None]
    return sum(known) if known else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Resources that an attempt has used so far, measured by its runner from outside.

    Attributes:
        peak_memory_bytes: Most host memory that its processes held at a time, without what they
            share with the process that they were forked from.
        peak_gpu_memory_bytes: Most memory that they held on one GPU at a time; 0 if they opened
            none, None if unknown.
        cpu_seconds: Processor time of all its processes.
        seconds: Time since its process was requested.
        seconds_per_step: Time between two reports, per step; None before the second report.
        starved_seconds: Time in which its threads were ready to run while no core was free, summed
            over the threads; 0 if unknown. The attempt was not idle then.
        gpu_joules: Its part of the energy of its GPUs; None if their counters cannot be read.
        processor_joules: Its part of the energy of its node's processors and memory; None likewise.
    """

    peak_memory_bytes: int
    peak_gpu_memory_bytes: int | None = None
    cpu_seconds: float
    seconds: float
    seconds_per_step: float | None = None
    starved_seconds: float = 0.0
    gpu_joules: float | None = None
    processor_joules: float | None = None

    def __post_init__(self) -> None:
        _check_counts(memory=self.peak_memory_bytes, gpu_memory=self.peak_gpu_memory_bytes)

    @property
    def joules(self) -> float | None:
        """All energy that was measured; None if none was."""
        return known_sum((self.gpu_joules, self.processor_joules))

    @property
    def busy(self) -> float:
        """The share of a core of its own that it would keep busy, at most 1.

        >>> Usage(peak_memory_bytes=1, cpu_seconds=2.7, seconds=10.0, starved_seconds=7.3).busy
        1.0
        >>> Usage(peak_memory_bytes=1, cpu_seconds=2.5, seconds=10.0).busy
        0.25
        """
        had_one = max(self.cpu_seconds, self.seconds - self.starved_seconds)
        return min(1.0, self.cpu_seconds / had_one) if had_one > 0.0 else 0.0

    def since(self, before: Usage) -> Usage:
        """Return the use since an earlier measurement; peaks and energy are of all time."""
        return replace(
            self,
            cpu_seconds=max(0.0, self.cpu_seconds - before.cpu_seconds),
            seconds=self.seconds - before.seconds,
            starved_seconds=max(0.0, self.starved_seconds - before.starved_seconds),
        )


@dataclass(frozen=True, slots=True)
class Ending:
    """End of an attempt's process, by itself or by its runner.

    Attributes:
        cause: The kind of end.
        metrics: Metrics of the result, for `Cause.RETURNED`.
        step: The step of the metrics (the best epoch), if there is one.
        reason: One line for people.
        detail: The traceback, trimmed to the user's files, or the error output of a program.
        ended_early: Whether the training ended by itself before its last epoch; None if unknown.
    """

    cause: Cause
    metrics: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None
    reason: str = ""
    detail: str = ""
    ended_early: bool | None = None

    def __post_init__(self) -> None:
        _check_counts(step=self.step)
        # The ledger, reports and messages have these texts, which user code may have written.
        for name in ("reason", "detail"):
            object.__setattr__(self, name, without_passwords(getattr(self, name)))

    @property
    def fingerprint(self) -> str:
        r"""A text that is equal for two failures of the same kind at the same place.

        >>> where = 'Traceback…\n  File "model.py", line 3, in build\nValueError: '
        >>> one = Ending(Cause.EXCEPTION, reason="ValueError: got 3", detail=where + "got 3")
        >>> two = Ending(Cause.EXCEPTION, reason="ValueError: got 4", detail=where + "got 4")
        >>> one.fingerprint == two.fingerprint
        True
        """
        places = [line.strip() for line in self.detail.splitlines() if line.startswith('  File "')]
        kind = self.reason.partition(":")[0] if self.detail else self.reason
        return "; ".join((str(self.cause), kind, *places[-1:]))


FROM_OUTSIDE = (Cause.KILLED, Cause.WORKER_LOST)
"""Ends that may be the fault of the node, and not of the trial."""

MISNAMED = "objective() returned"
"""Begin of the reason of an attempt whose result seems to have a misspelt name."""

NEVER_ASKED = "it never called trial.should_stop()"
"""Part of the reason of an attempt that a pruner has judged, and could not stop."""

USED_UP = "a generator is used up after one epoch"
"""Part of the reason of an attempt whose later epochs trained on less data than the first one."""

BEGINS_AGAIN = "attempts in a row began at step"
"""Part of the reason of an attempt that was released as others before, with nothing to continue."""

FULL_HOME = "set KERAS_HOME, TORCH_HOME and HF_HOME to a folder that has some"
"""The end of the reason of an attempt that had no room outside of the study's directory."""

NO_BETTER = "trained on without a better result"
"""The reason of an attempt that leaves a complete trial's result as it was; its begin, if the
attempt failed."""


@dataclass(frozen=True, slots=True)
class HeldBefore:
    """What an attempt had held until its placement was last resized.

    Attributes:
        until: Time of the resize, in seconds since the epoch.
        core_seconds: Core seconds held by then; a part of a core counts as a part.
        gpu_seconds: GPU seconds held by then.
    """

    until: float
    core_seconds: float
    gpu_seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt as others see it: a frozen snapshot, made by the engine.

    Attributes:
        id: The trial's and the attempt's numbers.
        placement: What it holds or held.
        node: The machine it runs on; that of rank 0 if it has several processes.
        placed_at: When it got its placement, in seconds since the epoch.
        started_at: When its process was seen running; None before.
        ended_at: When it ended; None while it runs.
        outcome: How it ended; None while it runs.
        reason: Why it ended, or what it waits for, in one line.
        usage: What it used, as last measured; None before that.
        cause: The kind of its end; None while it runs.
        why: Why it was granted this much, if the use of other trials decided that.
        before: What it had held until its placement was last resized; None if it never was.
        peer_nodes: The machine of each rank from 1 on, as `placement.peers`.
    """

    id: AttemptId
    placement: Placement
    node: str
    placed_at: float
    started_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    reason: str = ""
    usage: Usage | None = None
    cause: Cause | None = None
    why: str = ""
    before: HeldBefore | None = None
    peer_nodes: tuple[str, ...] = ()

    @property
    def ranks(self) -> list[tuple[str, Placement]]:
        """The machine and the placement of each of its ranks, by rank."""
        return list(zip((self.node, *self.peer_nodes), self.placement.ranks, strict=True))

    @property
    def nodes(self) -> tuple[str, ...]:
        """The machines of its ranks, each once, in the order of the ranks."""
        return tuple(dict.fromkeys((self.node, *self.peer_nodes)))

    @property
    def has_result(self) -> bool:
        """Whether its trial was complete with its result."""
        return self.outcome is Outcome.FINISHED and self.reason != NO_BETTER

    def seconds(self, now: float) -> float | None:
        """Return how long its process has run, until now or its end; None if it never ran."""
        if self.started_at is None:
            return None
        return max(0.0, (now if self.ended_at is None else self.ended_at) - self.started_at)
