"""Progress: the contract of a display, what it is shown, and how fast the study goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ...core.snapshot import RunningAttempt, StudySnapshot
from ...core.trial import Goal, Trial
from .. import text

GUTTER = 9
"""So wide are the labels that lines begin with."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """What is known before the first trial starts.

    Attributes:
        study: The study's directory.
        search: The sampler's name, such as "tpe".
        goal: What is optimised, in words.
        trials: The total number of trials; None means the whole (finite) space.
        parallelism: How much runs at once and where, in words.
        dashboard: The dashboard's address; empty if there is none.
        notes: Further lines to show once.
        epochs: How many epochs a trial has; None if unknown or if its steps are not epochs.
        confirm: How many of the best configurations are trained again when all trials are over.
        repeats: How often each of them is.
        budget: In device hours, in words; empty if there is none.
        timeout_seconds: How long masters work on the study at most; None for as long as it takes.
        trial_timeout_seconds: How long a trial may take; None for as long as it does.
    """

    study: str
    search: str
    goal: str
    trials: int | None
    parallelism: str
    dashboard: str = ""
    notes: Sequence[str] = ()
    epochs: int | None = None
    confirm: int = 0
    repeats: int = 1
    budget: str = ""
    timeout_seconds: float | None = None
    trial_timeout_seconds: float | None = None

    def lines(self) -> list[str]:
        """The header in lines of text."""
        return [f"{label.ljust(GUTTER)}{words}" if label else words for label, words in self.rows()]

    def rows(self) -> list[tuple[str, str]]:
        """The header as labels and what stands beside them; the notes have no label."""
        trials = "the whole space" if self.trials is None else text.plural(self.trials, "trial")
        told = [
            ("hptune", f"{self.search} search for {self.goal}, {trials}{self._again}"),
            ("study", text.clean(self.study)),
        ]
        if self.parallelism:
            told.append(("runs", self.parallelism))
        if limits := self._limits:
            told.append(("limits", ", ".join(limits)))
        if self.dashboard:
            told.append(("watch", f"{self.dashboard} (Dask's dashboard)"))
        return [*told, *(("", text.clean(note)) for note in self.notes)]

    @property
    def _again(self) -> str:
        if not self.confirm:
            return ""
        times = {1: "once", 2: "twice"}.get(self.repeats, f"{self.repeats} times")
        return f", then the best {self.confirm} {times} again"

    @property
    def _limits(self) -> list[str]:
        limits = [f"{self.budget} for all trials"] if self.budget else []
        if self.timeout_seconds is not None:
            limits.append(f"{text.duration(self.timeout_seconds)} of work")
        if self.trial_timeout_seconds is not None:
            limits.append(f"{text.duration(self.trial_timeout_seconds)} for each trial")
        return limits


class Progress(Protocol):
    """Shows how a study is going.

    A display never stops a study: output errors are swallowed, and its reader is waited for in a
    thread of its own (`scribe`).

    The study's loop is the only caller, from one thread: `start` once, then `update` after each
    batch of events and at least once a second, `note` at any time, and `stop` at the end,
    whatever happened (it may be repeated).
    """

    def start(self, header: RunHeader) -> None:
        """Show what the run is about."""

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Take note of the present standing.

        Args:
            snapshot: The study now.
            ended: The trials that ended since the last call, each told once.
            now: The time in seconds since the epoch.
        """

    def note(self, line: str) -> None:
        """Show one line that stays, such as a warning."""

    def stop(self) -> None:
        """Leave the last standing behind, and the terminal as it was."""


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that ended during this run, and how long its attempts ran, if the last was seen."""

    trial: Trial
    seconds: float | None


_LEAST_ENDED = 3
"""So many trials must have ended, and as many as run at once, before the rest is reckoned."""


class TrialRate:
    """How long trials take, and so when the study will end.

    The cost of a trial is the time that attempts held a place, be it that they waited there,
    divided by the trials that ended; what running trials have already used counts neither way. So
    the estimate holds with any number of trials at once, for long trials and for short ones.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._latest = 0.0
        self._busy_seconds = 0.0
        self._ended = 0
        self._running: dict[int, RunningAttempt] = {}
        self._places = 0
        self._is_waiting = False

    @property
    def elapsed_seconds(self) -> float:
        """How long this run goes on."""
        return 0.0 if self._first is None else self._latest - self._first

    def update(
        self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float
    ) -> list[EndedTrial]:
        """Take note of the present standing, as `Progress.update` is told it.

        Returns:
            The ended trials with how long each took.
        """
        if self._first is None:
            self._first = self._latest = now
        # Trials too short to be seen running held at least one place since the last call.
        places = max(len(self._running), 1 if ended else 0)
        self._busy_seconds += places * (now - self._latest)
        self._latest = now
        self._ended += len(ended)
        timed = [EndedTrial(trial, self.seconds_run(trial.number)) for trial in ended]
        self._running = {run.trial.number: run for run in snapshot.running}
        self._is_waiting = bool(snapshot.stall_reason) or not snapshot.workers
        if snapshot.running or not snapshot.workers:
            self._places = len(snapshot.running)
        return timed

    def seconds_run(self, trial: int) -> float | None:
        """How long a trial has run by now, over all its attempts; None if it does not run (yet)."""
        if (run := self._running.get(trial)) is None:
            return None
        seconds = run.attempt.seconds(self._latest)
        if seconds is None:
            return run.earlier_seconds or None
        return run.earlier_seconds + seconds

    def seconds_left(self, snapshot: StudySnapshot) -> float | None:
        """When all trials will be over.

        None while that would be a guess: before a few trials have ended, while the study waits
        for workers, or if there is no end.
        """
        if snapshot.budget_trials is None:
            return None
        left = snapshot.budget_trials - snapshot.ended
        if left <= 0:
            return 0.0
        enough = min(max(_LEAST_ENDED, self._places), max(1, snapshot.budget_trials // 2))
        if self._ended < enough or not self._places or self._is_waiting:
            return None
        placed = [run.attempt.placed_at for run in self._running.values()]
        used = [max(0.0, self._latest - at) for at in placed]
        per_trial = max(0.0, self._busy_seconds - sum(used)) / self._ended
        work = left * per_trial - sum(min(seconds, per_trial) for seconds in used)
        return work / min(self._places, left)


def latest_value(run: RunningAttempt, goal: Goal) -> float | None:
    """The objective's latest value of a running attempt."""
    return None if run.latest is None else run.latest.metrics.get(goal.metric)


def waits(run: RunningAttempt) -> bool:
    """Whether an attempt waits at its worker for what another study holds."""
    return run.attempt.started_at is None and bool(run.attempt.reason)


def step_of(run: RunningAttempt, epochs: int | None) -> str:
    """How far a running attempt is: `3/10` epochs, or a step, or nothing known."""
    if waits(run):
        return "waits"
    if run.latest is None:
        return text.NOTHING
    # A trial may have its own number of epochs; never show more steps than there are.
    of = run.trial.params.get("epochs") if epochs is None else epochs
    known = isinstance(of, int) and of >= run.latest.step
    return f"{run.latest.step}/{of}" if known else str(run.latest.step)
