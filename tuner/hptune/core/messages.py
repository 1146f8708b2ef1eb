"""The engine's events (what happened) and commands (what is to be done), all frozen.

Events are the ledger's contents. Each is plain data, carries the time at which the master learned
of it, and is written to the ledger before its commands are carried out.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass

from .attempt import AttemptId, Ending, Halt, Report, Usage
from .packing_plan import PackingEvidence, PackingPlan
from .resources import Capacity, Placement, Resources
from .spelling import plural
from .study_config import StudyConfig
from .trial import Params, Score, Suggestion, Trial
from .user_requests import Note, UserAction

# --- events ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StudyOpened:
    """A master opened the study: the first one, or one after a stop or a crash.

    Attempts that ran for an earlier master have ended. Those of programs that asked for them
    continue in any case.

    Attributes:
        config: The configuration from now on.
        space: The search space, in its JSON form. Parameters that trials declare are added later.
        go_on: Complete trials that train on from their last checkpoint, as the full training has
            become longer.
        added: Configurations that the user wants tried next, without asking the sampler.
        retried: Failed trials that the user wants to begin again.
        retries_nodes: Whether the user wants failing nodes used again.
        was_handed_over: Whether the last master left on purpose, as its job was requeued: its
            attempts count as released, not as lost.
        without_master: Whether no master runs it from now on: programs ask for its trials, and each
            of their calls holds the study's lock for its moment.
        keeps_pause: Whether it stays paused if it was: no user has resumed it.
    """

    at: float
    config: StudyConfig
    space: tuple[Mapping[str, object], ...] = ()
    go_on: tuple[int, ...] = ()
    added: tuple[Suggestion, ...] = ()
    retried: tuple[int, ...] = ()
    retries_nodes: bool = False
    was_handed_over: bool = False
    without_master: bool = False
    keeps_pause: bool = False


@dataclass(frozen=True, slots=True)
class StudyClosed:
    """The study has no master: nothing starts before the next `StudyOpened`.

    A new master sends this before the events of attempts that ran on without a master.
    """

    at: float


@dataclass(frozen=True, slots=True)
class WorkerJoined:
    """A worker can take attempts from now on.

    Attributes:
        ends_at: When it must leave (its job's walltime), in seconds since the epoch; None if
            unknown.
        gang: Name shared by the workers that were granted together, such as the nodes of one Slurm
            job; empty for a worker by itself.
        lease_seconds: How long it may report nothing before its attempt is lost, if it is a program
            that asked for one trial; None for a worker that others watch.
    """

    at: float
    worker: str
    node: str
    capacity: Capacity
    ends_at: float | None = None
    gang: str = ""
    lease_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkerRefused:
    """A worker that tried to join cannot take this study's attempts, for the given reason."""

    at: float
    worker: str
    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerLeaving:
    """A worker will leave soon: it takes no more attempts.

    It releases those that it has, or lets them end. Those of several workers are stopped by the
    engine (`Halt.RELEASE`).
    """

    at: float
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class WorkerLeft:
    """A worker is gone, with every attempt on it.

    An attempt that has ranks on other workers ends by the executor's `AttemptEnded`, once those
    have ended too. Until then it holds the devices there.
    """

    at: float
    worker: str
    reason: str


@dataclass(frozen=True, slots=True)
class NodeExcluded:
    """The workers on a node take no more attempts: the answer to `ExcludeNode`, or jobs fail there.

    Those that run there may end. It holds, also for the next master, until a worker is started
    there: another one than those that were there.

    Attributes:
        at: When, in seconds since the epoch.
        node: Its name.
        reason: Why jobs cannot run there; empty for the attempts that were lost there.
    """

    at: float
    node: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Suggested:
    """The sampler's answer to `Ask`; fewer than asked for means that the space is exhausted."""

    at: float
    first_number: int
    suggestions: tuple[Suggestion, ...]
    exhausted: bool


@dataclass(frozen=True, slots=True)
class AttemptWaits:
    """The attempt waits on its worker for resources that another process holds."""

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
    """The objective drew more hyperparameters than were suggested, or did not ask for some.

    Attributes:
        declared: Declarations of those that the space lacks, in its JSON form.
        values: The values that were suggested, and those of the others.
        unused: The names of those that were suggested, but never asked for.
    """

    at: float
    attempt: AttemptId
    declared: tuple[Mapping[str, object], ...]
    values: Params
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Reported:
    """An attempt measured something."""

    at: float
    attempt: AttemptId
    report: Report


@dataclass(frozen=True, slots=True)
class Measured:
    """Resources that an attempt has used so far.

    Sent after the attempt's first report, some seconds later (once its step time is known), when a
    peak has grown by more than a twentieth, and right before `AttemptEnded`.

    Attributes:
        free_share: Share of the worker's memory that was free; None if unknown.
    """

    at: float
    attempt: AttemptId
    usage: Usage
    free_share: float | None = None


@dataclass(frozen=True, slots=True)
class PackingDecided:
    """The answer to `DecidePacking`: from now on this plan says what trials are granted."""

    at: float
    plan: PackingPlan


@dataclass(frozen=True, slots=True)
class SplitChosen:
    """The answer to `DecideSplit`: from now on trials ask for this much.

    Those whose configuration says otherwise do not. What running attempts hold does not change.

    Attributes:
        reason: What was chosen and why, in a line for the user; empty if nothing has changed.
    """

    at: float
    resources: Resources
    reason: str


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """An attempt's process is gone."""

    at: float
    attempt: AttemptId
    ending: Ending


class FinishReason(enum.StrEnum):
    """Reason for the end of a study's run."""

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
    FAILED = "failed"
    """An error ended the run, such as jobs that all fail."""
    HANDED_OVER = "handed over"
    """The master's job is requeued, and continues the study when it starts again."""


def all_over(trials: int) -> str:
    """Return why a study is done, with the number of its trials."""
    return f"{plural(trials, 'trial')} {'is' if trials == 1 else 'are'} over"


@dataclass(frozen=True, slots=True)
class StopRequested:
    """The study must stop: Ctrl-C or `hptune stop` (INTERRUPTED), or the time is up."""

    at: float
    finish_reason: FinishReason
    reason: str


@dataclass(frozen=True, slots=True)
class UserRequested:
    """The master's answer to a user's request; a request to stop the study is a `StopRequested`.

    Attributes:
        request: The request's name.
        action: What was asked for.
        by: Who asked, and with what.
        trial: The trial to stop, or the one that a note is about.
        added: The configurations to try next, without asking the sampler.
        refused: Why nothing was done; empty if it was done.
        note: What was written.
    """

    at: float
    request: str
    action: UserAction
    by: str
    trial: int | None = None
    added: tuple[Suggestion, ...] = ()
    refused: str = ""
    note: Note | None = None


Event = (
    StudyOpened
    | StudyClosed
    | WorkerJoined
    | WorkerRefused
    | WorkerLeaving
    | WorkerLeft
    | NodeExcluded
    | Suggested
    | AttemptWaits
    | AttemptStarted
    | ParametersUsed
    | Reported
    | Measured
    | PackingDecided
    | SplitChosen
    | AttemptEnded
    | StopRequested
    | UserRequested
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
class DecideSplit:
    """Decide how many devices each trial gets, as workers have come or gone.

    Nothing starts before the answer, `SplitChosen`; until then every event is answered by this.

    Attributes:
        workers: What each worker has that takes attempts.
        trials_left: How many trials still run or could begin; None for a study without an end.
        usual: What a trial asks for now.
    """

    workers: tuple[Capacity, ...]
    trials_left: int | None
    usual: Resources


@dataclass(frozen=True, slots=True)
class ExcludeNode:
    """Record that a node takes no more attempts; the answer is `NodeExcluded`.

    Nothing starts before the answer.
    """

    node: str


@dataclass(frozen=True, slots=True)
class Tell:
    """Tell the sampler a trial's state."""

    trial: Trial


@dataclass(frozen=True, slots=True)
class GrowSpace:
    """Add newly found parameters (in the space's JSON form) to the search space."""

    declared: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True)
class Start:
    """Start an attempt on a placement.

    Attributes:
        attempt: The attempt's name; that of a rank, in the order to one.
        params: The configuration.
        placement: The cores, GPUs and memory of the attempt, or of a rank.
        seed: The seed of every random number generator of the training.
        incumbents: Scores of the best trials so far. An attempt that is not among the best with
            them need not keep its model.
        resume_from: The last step that the trial has reported; None if it has reported none. The
            attempt continues from the newest checkpoint up to there, if there is one.
        keep_last: Whether the checkpoint of the last epoch may be needed, to train further later.
        rungs: The steps at which the attempt is judged: `Stop` or `Continue` follows its report.
    """

    attempt: AttemptId
    params: Params
    placement: Placement
    seed: int
    incumbents: tuple[Score, ...] = ()
    resume_from: int | None = None
    keep_last: bool = False
    rungs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Stop:
    """Tell a running attempt to stop; it ends with `halt.cause`, or with its result."""

    attempt: AttemptId
    halt: Halt


@dataclass(frozen=True, slots=True)
class Continue:
    """Tell a running attempt that it may train beyond a rung.

    It takes back a `Stop` that has not left.

    The attempt waits for this, or for `Stop`, for a short time; so it need not arrive.

    Attributes:
        step: The step of the report by which the trial has reached the rung.
    """

    attempt: AttemptId
    step: int


@dataclass(frozen=True, slots=True)
class KeepBest:
    """Keep the models of the best trials so far, sorted by the first objective.

    There is one, unless the study has several objectives.
    """

    trials: tuple[Trial, ...]


@dataclass(frozen=True, slots=True)
class Discard:
    """Remove what a trial's attempts left (a model, working files).

    What `KeepBest` has put away stays.
    """

    trial: int
    keep_checkpoint: bool = False


@dataclass(frozen=True, slots=True)
class Finish:
    """Nothing is left to do, and nothing is running."""

    finish_reason: FinishReason
    reason: str
    detail: str = ""


Question = DecidePacking | DecideSplit | ExcludeNode
"""Commands that are answered at once, by an event that is recorded with the one before."""

Command = Ask | Question | Tell | GrowSpace | Start | Stop | Continue | KeepBest | Discard | Finish
