"""Orders to a worker, as plain picklable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ..core.attempt import AttemptId, Halt, StopAt
from ..core.data_parallel import DATA_PARALLEL, DataParallel
from ..core.goals import Goals
from ..core.meeting import Member, log_name
from ..core.messages import Continue, Start
from ..core.resources import Placement
from ..core.step_request import StepRequest
from ..core.trial import Params
from ..user_code.source import ObjectiveSource


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptLimits:
    """Limits of an attempt's epochs, time and files.

    Attributes:
        epochs: The most epochs to train; None leaves it to the user's code.
        trial_timeout_seconds: The time after which an attempt is told to stop, and then killed;
            None for no limit.
        hang_timeout_seconds: The time without a report and without computing after which an
            attempt writes its stacks and is killed; None for no limit.
        checkpoint_every: The number of epochs between checkpoints; None for as often as costs
            little, 0 for never.
        cache_bytes: Limit of the data cache on each node; None for half of the free space, 0 for
            no cache.
        wants_cache: Whether the user asked for the cache, so that CACHE_DATA = False of the file
            does not turn it off.
        stop_at: When a Keras training stops on request.
        data_parallel: How trials train on several devices.
        master_grace_seconds: How long attempts continue when the master is lost; 0 if they end
            with it.
    """

    epochs: int | None = None
    trial_timeout_seconds: float | None = None
    hang_timeout_seconds: float | None = None
    checkpoint_every: int | None = None
    cache_bytes: int | None = None
    wants_cache: bool = False
    stop_at: StopAt = StopAt.BATCH
    data_parallel: DataParallel = DATA_PARALLEL
    master_grace_seconds: float = 0.0


NO_LIMITS = AttemptLimits()
"""The limits where the user set none."""


@dataclass(frozen=True, slots=True)
class StudyBrief:
    """The part of an order that all attempts of a study share.

    Attributes:
        name: The study's name in messages on workers that serve several studies.
        directory: The study's directory, as the workers see it.
        working_directory: The directory of the user's command, for relative paths.
        source: The user's code.
        goals: Objectives and constraints.
        limits: The limits of each attempt.
        deterministic: Whether TensorFlow uses deterministic operations only.
        packs_gpus: Whether other attempts may get an attempt's GPU while it runs.
        master: The master's token in the study's lease.
    """

    name: str
    directory: str
    working_directory: str
    source: ObjectiveSource
    goals: Goals
    limits: AttemptLimits = NO_LIMITS
    deterministic: bool = False
    packs_gpus: bool = False
    master: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankOrder:
    """The part of an order that makes its process one of several, the ranks of the attempt.

    Attributes:
        world_size: Number of ranks.
        secret: Known to the ranks of this attempt alone.
        is_on_one_node: Whether all ranks are on one node, so that they use its loopback interface.
        host: The address at which other nodes reach this worker's; filled in by the worker.
    """

    world_size: int
    secret: bytes = field(repr=False)
    is_on_one_node: bool
    host: str = ""


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """The order to run one attempt.

    Attributes:
        brief: The part that all attempts of the study share.
        start: The engine's command, or that of one of several ranks.
        space: The search space in its JSON form.
        parallel: What the ranks of an attempt of several processes share; None for one process.
        measure: The steps to time instead of a whole training; None for a training.
    """

    brief: StudyBrief
    start: Start
    space: tuple[Mapping[str, object], ...]
    parallel: RankOrder | None = None
    measure: StepRequest | None = None

    @property
    def attempt(self) -> AttemptId:
        """The attempt's name."""
        return self.start.attempt

    @property
    def placement(self) -> Placement:
        """What the attempt holds."""
        return self.start.placement

    @property
    def directory(self) -> Path:
        """The trial's directory."""
        return Path(self.brief.directory) / "trials" / str(self.attempt.trial)

    @property
    def log(self) -> Path:
        """The file of the process's output."""
        return self.directory / log_name(self.attempt.rank)


@dataclass(frozen=True, slots=True)
class StopOrder:
    """The order to stop an attempt.

    Attributes:
        attempt: The attempt's name.
        halt: Why it stops.
    """

    attempt: AttemptId
    halt: Halt


@dataclass(frozen=True, slots=True)
class MeetOrder:
    """The order to a rank to connect to the others.

    Attributes:
        attempt: The rank's name.
        members: All ranks, rank 0 first.
    """

    attempt: AttemptId
    members: tuple[Member, ...]


ProcessOrder = MeetOrder | Continue
"""What the process of a running attempt is told, besides to stop."""


@dataclass(frozen=True, slots=True)
class Question:
    """The order to answer a question with the user's code, in a child process.

    Attributes:
        source: The user's code.
        working_directory: The directory of the user's command, for relative paths.
    """

    source: ObjectiveSource
    working_directory: str


@dataclass(frozen=True, slots=True)
class ProbeOrder(Question):
    """The order to read the user's code and find its search space.

    Attributes:
        directory: The study's directory, which need not exist yet.
        quiet_seconds: How long to wait for new declarations of code that may be training.
        cache_bytes: As in `AttemptLimits`: the first trials find in the cache what the probe loads.
        wants_cache: As in `AttemptLimits`.
    """

    directory: str
    quiet_seconds: float = 20.0
    cache_bytes: int | None = None
    wants_cache: bool = False


@dataclass(frozen=True, slots=True)
class SizeOrder(Question):
    """The order to find the resources of configurations, by the user's RESOURCES function.

    Attributes:
        space: The search space in its JSON form.
        configurations: The values of the hyperparameters.
    """

    space: tuple[Mapping[str, object], ...]
    configurations: tuple[Params, ...]


@dataclass(frozen=True, slots=True)
class ModelOrder(Question):
    """The order to load a kept model once, to learn how it can be loaded.

    Attributes:
        path: The model's file.
        space: The search space in its JSON form.
        params: The configuration of the model's trial.
    """

    path: Path
    space: tuple[Mapping[str, object], ...]
    params: Params


@dataclass(frozen=True, slots=True)
class NotFound:
    """The reason why the user's code could not be used."""

    message: str
    detail: str = ""


Order = AttemptOrder | Question
"""What a child of the fork server carries out."""
