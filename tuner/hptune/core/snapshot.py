"""A study at one instant, for the progress display and the status page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .attempt import Attempt, Report
from .goals import Goals
from .resources import Resources
from .trial import Goal, Trial, TrialState


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that holds a placement now.

    Attributes:
        trial: Its trial.
        attempt: The attempt.
        latest: Its last report; None if it has not reported.
        earlier_seconds: How long the processes of the trial's earlier attempts ran, in sum.
    """

    trial: Trial
    attempt: Attempt
    latest: Report | None
    earlier_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StudySnapshot:
    """A study at one instant.

    Attributes:
        goals: The objectives and constraints.
        budget_trials: The total number of trials to run, repeats that confirm included; None for
            the whole (finite) space.
        counts: The number of trials in each state that has any.
        front: The best trials so far, sorted by the first objective; at most one for one objective.
        running: The attempts that hold a placement.
        workers: The number of workers.
        cpus: Their CPU cores.
        cpus_held: The cores that attempts hold.
        gpus: Their GPUs.
        gpus_held: The GPUs that attempts hold.
        stall_reason: Why nothing can start although trials wait; empty otherwise.
        paused_by: The user who paused the study; empty if it is not paused.
        stopping: Why the study is stopping; empty while it continues.
        interrupted: How many of the waiting trials have begun, such as those of a lost worker.
        packing: How many trials share a core or a GPU by the last plan, and why; empty if trials
            are granted what was asked for.
        packing_advice: How more trials could run at once than the search's limit allows; empty if
            they are not limited by that.
        usual: What a trial asks for by default.
        sizes: The number of trials that run or may start, by what they ask for.
        unfit_nodes: The nodes that jobs are to avoid, and why.
        is_first: Whether only the first trials run, before all others (`--first`).
        jobs: Which jobs bring the workers, and what they wait for, in words; the engine does not
            know, so it is added for displays.
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
    paused_by: str = ""
    interrupted: int = 0
    packing: str = ""
    packing_advice: str = ""
    usual: Resources = field(default_factory=Resources)
    sizes: Mapping[Resources, int] = field(default_factory=dict)
    unfit_nodes: Mapping[str, str] = field(default_factory=dict)
    is_first: bool = False
    jobs: str = ""

    @property
    def goal(self) -> Goal:
        """The first objective."""
        return self.goals.goal

    @property
    def best(self) -> Trial | None:
        """The best trial so far, by the first objective."""
        return self.front[0] if self.front else None

    @property
    def may_begin_more(self) -> bool:
        """Whether another trial may still start or continue."""
        budget = self.budget_trials
        return budget is None or self.ended + len(self.running) < budget

    @property
    def ended(self) -> int:
        """The number of trials in a final state."""
        return sum(count for state, count in self.counts.items() if state.is_final)
