"""The configuration of a study, as one master runs it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .budget import DeviceBudget
from .failure_policy import FailureRule
from .goals import Goals
from .pruner import PrunerSettings
from .resources import Amount, Resources


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyConfig:
    """Everything that the engine's decisions depend on, apart from the events.

    Attributes:
        trials: Total number of trials to suggest; None until the space is exhausted.
        goals: Objectives and constraints.
        seed: Seed of the study.
        resources: What a trial asks for.
        measured: The amounts in `resources` that the user left open. The use that trials are seen
            to make decides them.
        learns: Whether the search proposes by the results of trials.
        splits: Whether the number of devices of each trial is chosen by what was measured, whenever
            workers come or go.
        ask_ahead: How many suggestions are kept ready for the next free places, as a share of the
            running attempts, rounded up; none while at most one attempt runs.
        pruner: The pruner, and how it is set.
        max_failures: Number of trials that may fail; None for any number.
        first: How many trials run before all others; 0 for none.
        same_failure_limit: Stop the study if this many first trials fail in the same way; 0 for
            never.
        failure_rules: What the user wants done about attempts that end badly, where that is not
            the default.
        budget: How long cores or GPUs may be held by all attempts together; None for no limit.
        confirm: How many of the best configurations are trained again at the end.
        confirm_repeats: How often each of them is trained again.
        keep_checkpoints: How many of the best complete trials keep their last checkpoint.
    """

    trials: int | None
    goals: Goals
    seed: int
    resources: Resources = field(default_factory=Resources)
    measured: tuple[Amount, ...] = ()
    learns: bool = False
    splits: bool = False
    ask_ahead: float = 0.0
    pruner: PrunerSettings = field(default_factory=PrunerSettings)
    max_failures: int | None = None
    first: int = 0
    same_failure_limit: int = 0
    failure_rules: tuple[FailureRule, ...] = ()
    budget: DeviceBudget | None = None
    confirm: int = 0
    confirm_repeats: int = 2
    keep_checkpoints: int = 0
