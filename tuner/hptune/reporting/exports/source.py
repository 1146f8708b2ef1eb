"""What is exported: a study's trials with their curves and times."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from ...core.attempt import Attempt, ReportedValue
from ...core.goals import Comparison, Constraint
from ...core.space.space import SearchSpace
from ...core.trial import Trial, TrialState
from ...storage.output_files import check_unnamed
from ..results.rows import by_trial
from ..results.view import StudyView

RESULT = "result/"
"""Start of the names of a trial's final metrics, next to the curves of the same metrics."""


class Step(NamedTuple):
    """What a trial reported at one step.

    Attributes:
        time: When, in seconds since the epoch.
        metrics: The metrics by name.
    """

    time: float
    metrics: dict[str, float]


@dataclass(frozen=True, slots=True)
class Written:
    """What an export wrote.

    Attributes:
        place: Where, as a path or URL.
        command: The command that shows it; empty if there is none.
        name: What the study is called there; empty if it has no name.
        count: How many trials; None for all.
    """

    place: str
    command: str = ""
    name: str = ""
    count: int | None = None


@dataclass(frozen=True)
class ExportedStudy:
    """A study as the exports need it.

    Attributes:
        view: The study.
        space: Its search space.
        reports: The reports of all attempts.
        identity: A text that no other study has. An export is recognised by it.
        facts: Version, search, seed and the like, by name.
    """

    view: StudyView
    space: SearchSpace
    reports: Sequence[ReportedValue]
    identity: str
    facts: Mapping[str, str]

    def of_ended(self) -> ExportedStudy:
        """Return the study with the trials that are over, which an export need not write again."""
        ended = [trial for trial in self.view.trials if trial.state.is_final]
        return replace(self, view=replace(self.view, trials=ended))

    @property
    def name(self) -> str:
        """The name of the study's directory."""
        return self.view.name

    def default_place(self, name: str) -> str:
        """Return a place in the study's directory, for an export whose place was not named.

        Raises:
            UsageError: The directory belongs to another user, or the place is a link.
        """
        path = Path(self.view.directory) / name
        check_unnamed(path)
        return str(path)

    @cached_property
    def trials(self) -> list[Trial]:
        """The trials, by number."""
        return sorted(self.view.trials, key=lambda trial: trial.number)

    @cached_property
    def _steps(self) -> dict[int, dict[int, Step]]:
        found: dict[int, dict[int, Step]] = {}
        for row in sorted(self.reports, key=lambda row: (row.trial, row.attempt)):
            steps = found.setdefault(row.trial, {})
            step = steps.get(row.step, Step(row.time, {}))
            steps[row.step] = Step(row.time, {**step.metrics, row.metric: row.value})
        return found

    @cached_property
    def _attempts(self) -> dict[int, list[Attempt]]:
        return by_trial(self.view.attempts)

    def steps(self, trial: Trial) -> list[tuple[int, Step]]:
        """Return what a trial reported, by step; of a step that was repeated, the last report."""
        return sorted(self._steps.get(trial.number, {}).items())

    def times(self, trial: Trial) -> tuple[float, float]:
        """Return when a trial started and when it last ended, in seconds since the epoch.

        A time that is not known is replaced by one that is: the placement of an attempt, a report,
        or the study's beginning.
        """
        attempts = self._attempts.get(trial.number, [])
        begun = [attempt.started_at or attempt.placed_at for attempt in attempts]
        ended = [attempt.ended_at for attempt in attempts if attempt.ended_at is not None]
        reported = [step.time for _, step in self.steps(trial)]
        started = min([*begun, *reported], default=self.view.created_at)
        return started, max([*ended, *reported, started])

    def state(self, trial: Trial) -> TrialState:
        """Return a trial's state, as tools know them that have no pauses.

        A paused trial counts as pruned: it has the value of its last step. A trial that was
        interrupted is waiting.
        """
        state = self.view.trial_state(trial)
        return TrialState.PRUNED if state is TrialState.PAUSED else state

    def results(self, trial: Trial) -> dict[str, float]:
        """Return a trial's objectives and its other metrics at the step of its value."""
        pairs = zip(self.view.goals.objectives, trial.values, strict=False)
        return {goal.metric: value for goal, value in pairs} | dict(trial.metrics)

    def digest(self, trial: Trial, *others: object) -> str:
        """Return a text that changes with a trial, its reports, and what else goes with them."""
        own = (self.state(trial), trial.params, trial.attempts, trial.reason, self.results(trial))
        known = (*own, self.times(trial), self.steps(trial), *others)
        return hashlib.sha256(repr(known).encode()).hexdigest()[:16]

    def violations(self, trial: Trial) -> dict[str, float]:
        """Return by how much a trial breaks each constraint; 0 or less if it keeps it.

        Empty if it did not measure all of them.
        """
        constraints = self.view.goals.constraints
        if not {constraint.metric for constraint in constraints} <= trial.metrics.keys():
            return {}
        return {
            str(constraint): _signed(constraint, trial.metrics[constraint.metric])
            for constraint in constraints
        }


def _signed(constraint: Constraint, value: float) -> float:
    """Return a constraint's violation; the distance to the bound below 0 if it is kept."""
    if broken := constraint.violation(value):
        return broken
    is_upper = constraint.comparison in (Comparison.LESS, Comparison.AT_MOST)
    distance = value - constraint.bound if is_upper else constraint.bound - value
    return distance / (abs(constraint.bound) or 1.0)
