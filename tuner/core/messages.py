"""The engine's events (what happened) and commands (what is to be done), all frozen.

Events are the ledger's contents: every one of them is plain data, is stamped with the time at
which the master learned of it, and is written down before its commands are carried out.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from .packing_plan import PackingEvidence, PackingPlan
from .resources import Capacity, Placement
from .study_config import StudyConfig
from .trial import AttemptId, Ending, Halt, Params, Report, Score, Suggestion, Trial, Usage

# --- events ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StudyOpened:
    """A master took the study up: the first one, or after a stop or a death.

    Attempts that ran for an earlier master are lost.

    Attributes:
        config: The configuration from now on.
        space: The search space, in its JSON form. Parameters that trials declare are added later.
        go_on: Complete trials that train on from their last checkpoint, as the full training has
            become longer.
        added: Configurations that the user wants tried next, without asking the sampler.
    """

    at: float
    config: StudyConfig
    space: tuple[Mapping[str, object], ...] = ()
    go_on: tuple[int, ...] = ()
    added: tuple[Suggestion, ...] = ()


@dataclass(frozen=True, slots=True)
class StudyClosed:
    """The study has no master: nothing starts before another `StudyOpened`.

    A new master says so before it tells what attempts did in the meantime.
    """

    at: float


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker can take attempts from now on.

    `ends_at` says when it must leave (its job's walltime), in seconds since the epoch; None where
    nobody knows of an end. `gang` names the workers that were granted together, as those of one
    Slurm job of several nodes are; empty for a worker by itself.
    """

    at: float
    worker: str
    node: str
    capacity: Capacity
    ends_at: float | None = None
    gang: str = ""


@dataclass(frozen=True, slots=True)
class WorkerRefused:
    """A worker that wanted to join cannot take this study's attempts; says why."""

    at: float
    worker: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerLeaving:
    """A worker is about to go: it takes no more attempts.

    Those that it has it releases, or lets come to their ends.
    """

    at: float
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker is gone, and every attempt on it with it."""

    at: float
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class Suggested:
    """The sampler's answer to `Ask`; fewer than asked for means that the space is exhausted."""

    at: float
    first_number: int
    suggestions: tuple[Suggestion, ...]
    exhausted: bool


@dataclass(frozen=True, slots=True)
class AttemptWaits:
    """The attempt waits at its worker until what it is to hold is free there; says for what."""

    at: float
    attempt: AttemptId
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """The attempt's process is running."""

    at: float
    attempt: AttemptId
    pid: int


@dataclass(frozen=True, slots=True)
class ParametersUsed:
    """What the objective really drew: it declared hyperparameters that the suggestion lacks.

    `declared` holds their declarations in the space's JSON form, `values` the values drawn.
    """

    at: float
    attempt: AttemptId
    declared: tuple[Mapping[str, object], ...]
    values: Params


@dataclass(frozen=True, slots=True)
class Reported:
    """An attempt measured something."""

    at: float
    attempt: AttemptId
    report: Report


@dataclass(frozen=True, slots=True)
class Measured:
    """What an attempt has used so far.

    Comes after the attempt's first report, once more some seconds later (when its pace is known),
    when a peak has grown by more than a twentieth, and right before `AttemptEnded`.

    Attributes:
        free_share: What share of the memory there was free then, whoever holds the rest; None
            where nobody knows.
    """

    at: float
    attempt: AttemptId
    usage: Usage
    free_share: float | None = None


@dataclass(frozen=True, slots=True)
class PackingDecided:
    """The answer to `DecidePacking`: trials are given what this plan says from now on."""

    at: float
    plan: PackingPlan


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt's process is gone."""

    at: float
    attempt: AttemptId
    ending: Ending


class FinishReason(enum.StrEnum):
    """How a study's run ended."""

    DONE = "done"
    EXHAUSTED = "exhausted"
    TIME_UP = "time up"
    BUDGET_SPENT = "budget spent"
    INTERRUPTED = "interrupted"
    TOO_MANY_FAILURES = "too many failures"
    SAME_FAILURE = "same failure"
    UNKNOWN_METRIC = "unknown metric"
    NO_ROOM = "no room"
    """The disk takes no more checkpoints or models."""


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The study is to let go: Ctrl-C and `hptune stop` (INTERRUPTED), or the time is up."""

    at: float
    finish_reason: FinishReason
    reason: str


Event = (
    StudyOpened
    | StudyClosed
    | WorkerJoined
    | WorkerRefused
    | WorkerLeaving
    | WorkerLeft
    | Suggested
    | AttemptWaits
    | AttemptStarted
    | ParametersUsed
    | Reported
    | Measured
    | PackingDecided
    | AttemptEnded
    | StopRequested
)

# --- commands -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the sampler for one suggestion for each of these trial numbers, in order."""

    numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DecidePacking:
    """Decide how trials are packed; the answer is recorded with the event that led to this."""

    evidence: PackingEvidence


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the sampler where a trial stands."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class GrowSpace:
    """Add newly found parameters (in the space's JSON form) to the search space."""

    declared: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Start an attempt on a placement.

    `incumbents` is what counts of the best trials so far: an attempt that is none of the best
    beside them need not keep its model.
    `resume_from` is the last step that the trial has reported; None if it has reported none.
    `keep_last` says whether the checkpoint of its last epoch may be wanted.
    """

    attempt: AttemptId
    params: Params
    placement: Placement
    seed: int
    incumbents: tuple[Score, ...]
    resume_from: int | None
    keep_last: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Tell a running attempt to stop; it will end with `halt.cause`, or with its result."""

    attempt: AttemptId
    halt: Halt


@dataclass(frozen=True, slots=True)
class KeepBest:
    """These trials are the best so far, the first goal's best first: keep their models.

    There is one, but for studies with several goals.
    """

    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """What the trial's attempts left (a model, working files) is not needed.

    Its last checkpoint perhaps is. What `KeepBest` has put away of it stays.
    """

    trial: int
    keep_checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do, and nothing is running."""

    finish_reason: FinishReason
    reason: str
    detail: str = ""


Command = Ask | DecidePacking | Tell | GrowSpace | Start | Stop | KeepBest | Discard | Finish
