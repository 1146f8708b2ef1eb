"""A study at one instant, for those who show it: the progress display, the status page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .trial import Attempt, Goal, Report, Trial, TrialState


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that holds a placement now, and the last that was heard of it."""

    trial: Trial
    attempt: Attempt
    latest: Report | None


@dataclass(frozen=True, slots=True)
class StudyPicture:
    """A study at one instant.

    Attributes:
        goal: What is optimised.
        budget_trials: The total number of trials to run; None means the whole (finite) space.
        counts: How many trials there are in each state; states without any are left out.
        best: The best trial so far.
        running: The attempts that hold a placement.
        workers: How many workers there are.
        cpus: How many CPU cores they have.
        cpus_held: How many of these cores are held by attempts.
        gpus: How many GPUs they have.
        gpus_held: How many of these GPUs are held by attempts.
        notice: Why nothing can be started although trials wait; empty otherwise.
        stopping: Why the study is letting go; empty while it goes on.
    """

    goal: Goal
    budget_trials: int | None
    counts: Mapping[TrialState, int]
    best: Trial | None
    running: tuple[RunningAttempt, ...]
    workers: int
    cpus: int
    cpus_held: int
    gpus: int
    gpus_held: int
    notice: str
    stopping: str

    @property
    def ended(self) -> int:
        """How many trials are over, whichever way."""
        return sum(count for state, count in self.counts.items() if state.is_final)
