"""A study as its ledger tells it: what every text and export about one is made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from ...core.budget import DeviceBudget
from ...core.goals import Aims
from ...core.messages import Finish
from ...core.ranking import Confirmation, Ranking
from ...core.trial import Attempt, AttemptId, Cause, Goal, Outcome, Report, Trial, TrialState
from .. import text


class MasterStatus(Protocol):
    """The living process that runs a study."""

    @property
    def host(self) -> str:
        """Its machine."""

    @property
    def pid(self) -> int:
        """Its process id there; 0 if unknown."""

    @property
    def since(self) -> float:
        """When it took the study up, in seconds since the epoch; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class StudyView:
    """A study as its ledger tells it.

    Attributes:
        directory: The study's directory.
        search: The sampler's name, such as "tpe".
        aims: What is optimised, and what is to be kept to.
        budget_trials: The number of trials to suggest; None means the whole (finite) space.
        trials: All trials.
        attempts: All attempts, those of a trial in order.
        latest: The last report of running attempts, where there is one.
        master: Who runs the study now; None if nobody does.
        epochs: How many epochs a trial has; None if unknown or if its steps are not epochs.
        models: Where the models of the best trials lie, by the trial's number; those that have
            none are left out.
        possible_trials: How many configurations the search can try; None if there is no end.
        device_budget: How long devices may be held; None for as long as it takes.
        timeout_seconds: How long masters may work on it in all; None for as long as it takes.
        last_finish: How the last run ended; None while one goes on, and where it was killed.
    """

    directory: str
    search: str
    aims: Aims
    budget_trials: int | None
    trials: Sequence[Trial]
    attempts: Sequence[Attempt] = ()
    latest: Mapping[AttemptId, Report] = field(default_factory=dict)
    master: MasterStatus | None = None
    epochs: int | None = None
    models: Mapping[int, str] = field(default_factory=dict)
    possible_trials: int | None = None
    device_budget: DeviceBudget | None = None
    timeout_seconds: float | None = None
    last_finish: Finish | None = None
    ranking: Ranking = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        ranking = Ranking.of(self.aims, self.trials, self.attempts)
        object.__setattr__(self, "ranking", ranking)

    @property
    def goal(self) -> Goal:
        """The (first) objective."""
        return self.aims.goal

    @property
    def counts(self) -> Mapping[TrialState, int]:
        """How many trials there are in each state."""
        return Counter(trial.state for trial in self.trials)

    @property
    def ended(self) -> int:
        """How many trials are over, whichever way."""
        return sum(trial.state.is_final for trial in self.trials)

    @property
    def confirmations(self) -> int:
        """How many trials train a configuration again."""
        return sum(trial.confirms is not None for trial in self.trials)

    @property
    def progress(self) -> str:
        """How many trials are over, of how many, and how many that confirm."""
        again = [trial for trial in self.trials if trial.confirms is not None]
        over = sum(trial.state.is_final for trial in again)
        searched = text.progress(self.ended - over, self.budget_trials)
        return f"{searched} and {over}/{len(again)} to confirm" if again else searched

    @property
    def infeasible(self) -> int:
        """How many complete trials break a constraint."""
        return sum(bool(t.violation) for t in self.trials if t.state is TrialState.COMPLETE)

    @property
    def broken(self) -> Counter[str]:
        """How many complete trials break each constraint, by the constraint in words."""
        complete = [trial for trial in self.trials if trial.state is TrialState.COMPLETE]
        return Counter(
            str(each)
            for each in self.aims.constraints
            for trial in complete
            if each.metric in trial.metrics and each.violation(trial.metrics[each.metric])
        )

    @property
    def open_attempts(self) -> list[Attempt]:
        """The attempts of which no end is known: running, unless the master is gone."""
        return [attempt for attempt in self.attempts if attempt.outcome is None]

    @property
    def all_trials(self) -> int | None:
        """How many trials there are to be, those that confirm included, if that is known."""
        known = self.budget_trials
        return None if known is None else known + self.confirmations

    @property
    def retried(self) -> Counter[str]:
        """How many attempts were not held against their trials, by how they ended."""
        lost = (attempt for attempt in self.attempts if attempt.outcome is Outcome.LOST)
        return Counter("lost" if each.cause is None else str(each.cause) for each in lost)

    @property
    def written_off(self) -> Counter[str]:
        """How many trials are PRUNED for a bad end, as the user wanted it, by how they ended."""
        pruned = (each for each in self.attempts if each.outcome is Outcome.PRUNED)
        return Counter(str(e.cause) for e in pruned if e.cause not in (None, Cause.PRUNED))

    @property
    def front(self) -> tuple[Trial, ...]:
        """The best trials, the first objective's best first; one at most for one objective."""
        return self.ranking.best

    @property
    def best(self) -> Trial | None:
        """The best trial by the first objective; of equally good ones the first to end."""
        return self.front[0] if self.front else None

    @property
    def model(self) -> str:
        """Where the best trial's model lies; empty if there is none."""
        return "" if self.best is None else self.models.get(self.best.number, "")

    def confirmation(self, trial: Trial) -> Confirmation | None:
        """What is known of the trial's configuration from training it again."""
        return self.ranking.confirmation(trial)
