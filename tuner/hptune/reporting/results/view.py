"""A study as its ledger has it: the input of every text and export about a study."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ... import text
from ...core.attempt import Attempt, AttemptId, Cause, Outcome, Report
from ...core.budget import DeviceBudget
from ...core.goals import Goals
from ...core.messages import Finish, FinishReason, UserRequested
from ...core.ranking import Confirmation, Ranking
from ...core.trial import Goal, Trial, TrialState
from .states import INTERRUPTED

if TYPE_CHECKING:  # loads numpy
    from ...core.space.space import SearchSpace


class StudyState(enum.StrEnum):
    """The state of a study."""

    RUNNING = "running"
    OPEN = "open"
    """Programs ask for its trials and tell their results; no master runs it."""
    PAUSED = "paused"
    """It runs, but a user asked that no trial starts."""
    DONE = "done"
    """All its trials are over."""
    STOPPED = "stopped"
    """Its last run ended before all trials were over, for a reason that the ledger has."""
    QUEUED = "queued"
    """Its master's job waits to start, and then continues it."""
    MASTER_GONE = "master gone"
    """Its last run was killed, or failed."""


TO_CONTINUE = frozenset((TrialState.WAITING, TrialState.RUNNING))
"""The states in the ledger of a trial that runs, waits or is interrupted."""


@dataclass(frozen=True, slots=True)
class FailureGroup:
    """Trials that failed for the same reason, apart from numbers (see `text.without_numbers`)."""

    trials: Sequence[Trial]

    @property
    def reason(self) -> str:
        """The reason of the first trial, in one line."""
        return text.failure(self.trials[0])

    @property
    def numbers(self) -> list[int]:
        """The trials' numbers."""
        return [trial.number for trial in self.trials]

    def __str__(self) -> str:
        is_example = any(text.failure(trial) != self.reason for trial in self.trials)
        such_as = "such as " if is_example else ""
        return f"{len(self.trials)} x {such_as}{self.reason} ({text.trials(self.numbers)})"


@dataclass(frozen=True, slots=True)
class WrittenNote:
    """A note on a study or a trial: its text, who wrote it and with what, and when."""

    text: str
    by: str
    at: float


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
        """When it began to run the study, in seconds since the epoch; 0 if unknown."""


@dataclass(frozen=True, slots=True)
class StudyView:
    """A study as its ledger has it.

    Attributes:
        directory: The study's directory.
        search: The sampler's name, such as "tpe".
        goals: The objectives and the constraints.
        budget_trials: The number of trials to suggest; None for the whole (finite) space.
        trials: All trials. Their `rungs` are known for one objective.
        attempts: All attempts, those of a trial in order.
        latest: The last report of each attempt of the trials that run or are interrupted.
        master: The process that runs the study; None if there is none.
        epochs: Epochs of a trial; None if unknown or if its steps are not epochs.
        models: Paths of the best trials' models, by the trial's number.
        possible_trials: How many configurations the search can try; None if there is no limit.
        device_budget: Limit of the device hours; None if there is none.
        timeout_seconds: Limit of the study's time, over all runs; None if there is none.
        last_finish: How the last run ended; None while one runs, and if it was killed.
        model_loader: What loads the best model: "keras", "study" (`Study.best_model`), "nothing".
        workers: How many workers the study has; None if unknown.
        is_beginning: Whether its master still reads the model, as after `hptune resume`.
        is_measuring: Whether the study measures training steps before its trials start.
        created_at: When it was created, in seconds since the epoch; 0 if unknown.
        carrier: What trains a trial on several devices, in words; empty for one device.
        paused_by: The user who paused the study; empty if it is not paused.
        space: The search space; None if unknown.
        rungs: The rungs of early stopping; empty without a pruner, and with one that is not built
            in.
        last_values: The first objective's last values of some of the best complete trials, by
            number; see `advice`. Empty with several objectives.
        notes: What users wrote on the study and its trials, in order; see `notes_on`.
        run_seconds: How long each run took, from its command's start to its last event.
        last_event_at: When the last run's last event was, in seconds since the epoch; 0 for none.
        remarks: What the reports of the first trial say of the user's code (`ReportChecks`).
        run_began_at: When the last run began, in seconds since the epoch; 0 if unknown.
        is_open: Whether programs ask for its trials, and it is not over.
        worded: Returns a text that names options and commands as the user gives them: as it is on
            the command line, with arguments and calls of `Tuner` in Python.
    """

    directory: str
    search: str
    goals: Goals
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
    model_loader: str = "study"
    workers: int | None = None
    is_beginning: bool = False
    is_measuring: bool = False
    created_at: float = 0.0
    carrier: str = ""
    paused_by: str = ""
    space: SearchSpace | None = None
    rungs: Sequence[int] = ()
    last_values: Mapping[int, Sequence[float]] = field(default_factory=dict)
    notes: Sequence[UserRequested] = ()
    run_seconds: Sequence[float] = ()
    last_event_at: float = 0.0
    remarks: Sequence[str] = ()
    run_began_at: float = 0.0
    is_open: bool = False
    worded: Callable[[str], str] = field(default=str, compare=False, repr=False)
    ranking: Ranking = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        ranking = Ranking.of(self.goals, self.trials, self.attempts)
        object.__setattr__(self, "ranking", ranking)

    @property
    def name(self) -> str:
        """The name of its directory."""
        return text.clean(self.directory.rstrip("/").rpartition("/")[2])

    @property
    def goal(self) -> Goal:
        """The first objective."""
        return self.goals.goal

    @property
    def state(self) -> StudyState:
        """Whether the study runs, and how it ended if not."""
        if self.master is not None:
            return StudyState.PAUSED if self.paused_by else StudyState.RUNNING
        if self.is_open:
            return StudyState.OPEN
        last = self.last_finish
        if last is not None and last.finish_reason is FinishReason.HANDED_OVER:
            return StudyState.QUEUED
        if last is not None:
            is_done = last.finish_reason in (FinishReason.DONE, FinishReason.EXHAUSTED)
            return StudyState.DONE if is_done else StudyState.STOPPED
        limits = [n for n in (self.budget_trials, self.possible_trials) if n is not None]
        if limits and self.ended - self.confirmations >= min(limits):
            return StudyState.DONE  # its master was killed after the last trial
        return StudyState.MASTER_GONE

    @property
    def is_run(self) -> bool:
        """Whether a master runs it, or programs ask for its trials."""
        return self.master is not None or self.is_open

    @property
    def is_live(self) -> bool:
        """Whether trials may run: not while the master still reads the model."""
        return self.is_run and not self.is_beginning

    @property
    def is_over(self) -> bool:
        """Whether nothing continues it: no master, no programs, and no job that waits."""
        return not self.is_run and self.state is not StudyState.QUEUED

    @property
    def has_ended(self) -> bool:
        """Whether nothing continues it, or its master has recorded its end."""
        last = self.last_finish
        if self.master is None or self.is_beginning or last is None:
            return self.is_over
        return last.finish_reason is not FinishReason.HANDED_OVER

    def seconds(self, now: float) -> float:
        """Return the study's time: that of all its runs; the time between them does not count.

        `--timeout` limits the same time. A run begins with its command; its last event is mostly
        the end of its last trial.
        """
        counted = sum(self.run_seconds)
        if self.master is None or not (last := max(self.last_event_at, self.master.since)):
            return counted
        return counted + max(0.0, now - last)

    @property
    def counts(self) -> Counter[TrialState]:
        """How many trials are in each state; without a master, no trial runs."""
        return Counter(self.trial_state(trial) for trial in self.trials)

    def counts_text(self, *, of: int | None = None) -> str:
        """Return how many trials are in each state; those that have begun are interrupted.

        Args:
            of: The number of trials in the end; None leaves out those to come.
        """
        return text.counts(self.counts, of=of, interrupted_trials=self.interrupted)

    @property
    def interrupted(self) -> int:
        """How many trials have begun and are to continue, but do not run."""
        return sum(self.state_of(trial) == INTERRUPTED for trial in self.trials)

    def trial_state(self, trial: Trial) -> TrialState:
        """Return a trial's state; one that ran waits if nothing trains it any more."""
        if trial.state is TrialState.RUNNING and not self.is_live:
            return TrialState.WAITING
        return trial.state

    def state_of(self, trial: Trial) -> str:
        """Return a trial's state in one word; one that waits and has begun is interrupted."""
        state = self.trial_state(trial)
        return INTERRUPTED if state is TrialState.WAITING and trial.is_begun else state.lower()

    @property
    def ended(self) -> int:
        """How many trials ended, in any state."""
        return sum(trial.state.is_final for trial in self.trials)

    @property
    def confirmations(self) -> int:
        """How many trials train the configuration of another one again."""
        return sum(trial.confirms is not None for trial in self.trials)

    @property
    def progress(self) -> str:
        """How many trials ended, of how many, in words; repeats are counted apart."""
        confirmed = sum(t.confirms is not None and t.state.is_final for t in self.trials)
        searched = text.progress(self.ended - confirmed, self._to_search)
        if not self.confirmations:
            return searched
        return f"{searched} and {confirmed}/{self.confirmations} confirmations"

    @property
    def short_progress(self) -> str:
        """The same below or after the word "trials"."""
        return self.progress.replace(" trials", "", 1).replace(" trial", "", 1)

    @property
    def infeasible(self) -> int:
        """How many complete trials break a constraint."""
        return sum(bool(t.violation) for t in self.trials if t.state is TrialState.COMPLETE)

    @property
    def broken_constraints(self) -> Counter[str]:
        """How many complete trials break each constraint."""
        complete = [trial for trial in self.trials if trial.state is TrialState.COMPLETE]
        return Counter(
            str(constraint)
            for constraint in self.goals.constraints
            for trial in complete
            if constraint.metric in trial.metrics
            and constraint.violation(trial.metrics[constraint.metric])
        )

    @property
    def attempts_of_run(self) -> list[Attempt]:
        """The attempts that began in the last run."""
        return [each for each in self.attempts if each.placed_at >= self.run_began_at]

    @property
    def open_attempts(self) -> list[Attempt]:
        """The attempts without a known end: they run if the study is live."""
        return [attempt for attempt in self.attempts if attempt.outcome is None]

    @property
    def _to_search(self) -> int | None:
        """The number of trials in the end, without confirmations; None if unknown."""
        last = self.last_finish
        if last is not None and last.finish_reason is FinishReason.EXHAUSTED:
            return len(self.trials) - self.confirmations
        return self.budget_trials

    @property
    def all_trials(self) -> int | None:
        """The same with confirmations."""
        known = self._to_search
        return None if known is None else known + self.confirmations

    @property
    def retried(self) -> Counter[str]:
        """How many attempts did not count against their trials, by how they ended."""
        lost = (attempt for attempt in self.attempts if attempt.outcome is Outcome.LOST)
        return Counter("lost" if each.cause is None else str(each.cause) for each in lost)

    @property
    def pruned_by_failure(self) -> list[Attempt]:
        """The attempts whose trials `--on-failure` made PRUNED."""
        pruned = (attempt for attempt in self.attempts if attempt.outcome is Outcome.PRUNED)
        return [each for each in pruned if each.cause not in (None, Cause.PRUNED)]

    @property
    def pruned_failures(self) -> Counter[str]:
        """How many trials `--on-failure` made PRUNED, by how they failed."""
        return Counter(str(each.cause) for each in self.pruned_by_failure)

    @property
    def front(self) -> tuple[Trial, ...]:
        """The best trials by the first objective, best first; at most one for one objective."""
        return self.ranking.best

    @property
    def best(self) -> Trial | None:
        """The best trial by the first objective; of equal ones the first to end."""
        return self.front[0] if self.front else None

    @property
    def model(self) -> str:
        """Path of the best trial's model; empty if there is none."""
        return "" if self.best is None else self.models.get(self.best.number, "")

    def notes_on(self, trial: int | None = None) -> list[WrittenNote]:
        """Return the notes on a trial, or those on the study as a whole, in their order."""
        return [
            WrittenNote(note.note.text, note.by, note.at)
            for note in self.notes
            if note.trial == trial and note.note is not None and note.note.text
        ]

    def texts_on(self, trial: int | None = None) -> list[str]:
        """Return the texts of `notes_on`."""
        return [each.text for each in self.notes_on(trial)]

    def tags_of(self, trial: int | None = None) -> tuple[str, ...]:
        """Return the tags of a trial, or those of the study, in the order of their addition."""
        tags: dict[str, None] = {}
        for note in (each.note for each in self.notes if each.trial == trial):
            if note is not None:
                tags |= dict.fromkeys(note.tags)
                tags = {tag: None for tag in tags if tag not in note.removed}
        return tuple(tags)

    def confirmation(self, trial: Trial) -> Confirmation | None:
        """Return the results of training the trial's configuration again."""
        return self.ranking.confirmation(trial)

    @property
    def failures(self) -> list[FailureGroup]:
        """The failed trials by reason, the most frequent reason first."""
        groups: dict[str, list[Trial]] = {}
        for trial in sorted(self.trials, key=lambda trial: trial.number):
            if trial.state is TrialState.FAILED:
                reason = text.shorten(text.without_numbers(trial.reason), text.FAILURE_CHARACTERS)
                groups.setdefault(reason, []).append(trial)
        return [FailureGroup(group) for group in sorted(groups.values(), key=len, reverse=True)]


def usual(trials: Iterable[Trial]) -> list[Trial]:
    """Return the complete trials that keep the constraints and train no other one's again."""
    return [
        trial
        for trial in trials
        if trial.state is TrialState.COMPLETE and trial.value is not None
        if trial.confirms is None and not trial.violation
    ]
