"""A study at one instant, for those who show it: the progress display, the status page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .goals import Goals
from .resources import Resources
from .trial import Attempt, Goal, Report, Trial, TrialState


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that holds a placement now.

    Attributes:
        trial: Its trial.
        attempt: What is known of it.
        latest: The last that it reported.
        earlier_seconds: How long earlier attempts of the trial ran, in sum.
    """

    trial: Trial
    attempt: Attempt
    latest: Report | None
    earlier_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StudySnapshot:
    """A study at one instant.

    Attributes:
        goals: What is optimised, and what is to be kept to.
        budget_trials: The total number of trials to run, those that confirm included; None means
            the whole (finite) space.
        counts: How many trials there are in each state; states without any are left out.
        front: The best trials so far, the first goal's best first; one at most for one goal.
        running: The attempts that hold a placement.
        usual: What the study's trials ask for where nothing else is said.
        sizes: How many trials wait or run, by what they ask for.
        workers: How many workers there are.
        cpus: How many CPU cores they have.
        cpus_held: How many of these cores are held by attempts.
        gpus: How many GPUs they have.
        gpus_held: How many of these GPUs are held by attempts.
        notice: Why nothing can be started although trials wait; empty otherwise.
        packing: What was decided last of how many trials share a core or a GPU, and why; empty if
            they are given what was asked for.
        stopping: Why the study is letting go; empty while it goes on.
    """

    goals: Goals
    budget_trials: int | None
    counts: Mapping[TrialState, int]
    front: tuple[Trial, ...]
    running: tuple[RunningAttempt, ...]
    workers: int
    cpus: int
    cpus_held: float
    gpus: int
    gpus_held: float
    stall_reason: str
    stopping: str
    packing: str = ""
    usual: Resources = field(default_factory=Resources)
    sizes: Mapping[Resources, int] = field(default_factory=dict)

    @property
    def goal(self) -> Goal:
        """The first goal."""
        return self.goals.goal

    @property
    def best(self) -> Trial | None:
        """The best trial so far, by the first goal."""
        return self.front[0] if self.front else None

    @property
    def may_begin_more(self) -> bool:
        """Whether a trial may begin or go on that does not run now."""
        budget = self.budget_trials
        return budget is None or self.ended + len(self.running) < budget

    @property
    def ended(self) -> int:
        """How many trials are over, whichever way."""
        return sum(count for state, count in self.counts.items() if state.is_final)
