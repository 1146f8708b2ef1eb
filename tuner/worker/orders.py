"""What a worker is told: the study in brief, and one attempt's order. Plain, picklable values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..config.model_file import ObjectiveSource
from ..core.goals import Goals
from ..core.resources import Placement
from ..core.trial import AttemptId, Halt, Params, Score, StopAt


@dataclass(frozen=True, slots=True)
class StudyBrief:
    """What every attempt of a study has in common.

    Attributes:
        name: Tells this study's messages from another's on the same workers.
        directory: The study directory, as the workers see it.
        working_directory: Where the user gave the command; the user's relative paths start here.
        source: Where the user's code is.
        goals: What to optimise, and what to keep to.
        epochs: How many epochs to train at most; None leaves it to the user's code.
        trial_timeout_seconds: An attempt that runs longer is told to stop, and then killed; None
            for no limit.
        deterministic: Whether TensorFlow is to use deterministic operations only.
        checkpoint_every: After how many epochs each a trial keeps a checkpoint; None for as often
            as costs little, 0 for never.
        hang_timeout_seconds: An attempt that reports nothing and computes nothing for longer is
            ended, once it has written down where it stood; None for no limit.
        cache_bytes: Limit of the data cache on each node; None for half of the free space, 0 for
            no cache.
        master: Names the master, in the study's lease.
        master_grace_seconds: How long attempts go on when the master is lost; 0 where they end
            with it.
        stop_at: When a Keras training that is told to stop does so.
        packs_gpus: Whether others may be given an attempt's GPU while it runs, by what it uses.
    """

    name: str
    directory: str
    working_directory: str
    source: ObjectiveSource
    goals: Goals
    epochs: int | None
    trial_timeout_seconds: float | None
    deterministic: bool
    checkpoint_every: int | None = None
    hang_timeout_seconds: float | None = None
    cache_bytes: int | None = None
    master: str = ""
    master_grace_seconds: float = 0.0
    stop_at: StopAt = StopAt.BATCH
    packs_gpus: bool = False


@dataclass(frozen=True, slots=True)
class AttemptOrder:
    """One attempt, as the worker is asked to run it.

    Attributes:
        brief: The study's part.
        attempt: Which attempt.
        params: The configuration.
        space: The search space in its JSON form.
        placement: The cores and devices that the attempt holds.
        seed: For every random number generator of the training.
        incumbents: What counts of the best trials so far; a model that is none of the best beside
            them need not be kept.
        resume_from: The last step that the trial has reported; it goes on from its newest
            checkpoint up to there, if it has one. None for a trial that has reported nothing.
        keep_last: Whether the checkpoint of its last epoch may be wanted, to train on later.
    """

    brief: StudyBrief
    attempt: AttemptId
    params: Params
    space: tuple[Mapping[str, object], ...]
    placement: Placement
    seed: int
    incumbents: tuple[Score, ...]
    resume_from: int | None = None
    keep_last: bool = False

    @property
    def directory(self) -> Path:
        """The trial's own directory."""
        return Path(self.brief.directory) / "trials" / str(self.attempt.trial)


@dataclass(frozen=True, slots=True)
class StopOrder:
    """An attempt is to stop, and why."""

    attempt: AttemptId
    halt: Halt


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """Read the user's code in a child process and find its search space."""

    source: ObjectiveSource
    working_directory: str
    directory: str
    """The study's directory, which need not exist yet."""
    quiet_seconds: float = 20.0
    """Code that may be training, and has declared nothing new for so long, is not waited for."""
    cache_bytes: int | None = None
    """As in the study's brief: the first trials find in the cache what the probe has loaded."""


@dataclass(frozen=True, slots=True)
class SizeOrder:
    """Tell what each configuration asks for, by the RESOURCES of the user's code.

    Attributes:
        source: Where the user's code is.
        working_directory: The user's relative paths start here.
        space: The search space in its JSON form.
        configurations: The values of the hyperparameters.
    """

    source: ObjectiveSource
    working_directory: str
    space: tuple[Mapping[str, object], ...]
    configurations: tuple[Params, ...]


@dataclass(frozen=True, slots=True)
class NotFound:
    """Why the user's code could not be used; `usage` is false where the machine is to blame."""

    message: str
    detail: str = ""
