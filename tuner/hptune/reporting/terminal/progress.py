"""The contract of a progress display, what it is shown, and the estimate of the time left."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ... import text
from ...core.notice import Notice, Subject
from ...core.snapshot import RunningAttempt, StudySnapshot
from ...core.trial import Goal, Trial
from ...errors import without_passwords
from ..results.time_left import RunningTime, last_end, least_ended, rest_of, seconds_left

LABEL_CELLS = 9
"""Width of the labels at the beginnings of lines."""

_MINUTE_SECONDS = 60.0

_SHORT_SECONDS = 1.0
"""Time after which a log says what is waited for."""


@dataclass(frozen=True, slots=True)
class RunHeader:
    """Facts about a run before its first trial starts.

    Attributes:
        study: The study's directory.
        search: The sampler's name, such as "tpe".
        goal: What is optimised, in words.
        trials: The total number of trials; None for the whole (finite) space.
        parallelism: How much runs at once and where, in words.
        notes: Further lines.
        epochs: Epochs of a trial; None if unknown or if its steps are not epochs.
        confirm: Number of best configurations that are trained again at the end.
        confirm_times: How often each of them is trained again.
        budget: Limit of the device hours, in words; empty if there is none.
        timeout_seconds: Limit of the study's time, over all runs; None if there is none.
        trial_timeout_seconds: Limit of each trial's time; None if there is none.
        began_at: When the user's command began, in seconds since the epoch; None for the first
            update.
        earlier_seconds: How long earlier runs of the study took.
        stops_early: Whether a pruner may stop trials before their last epoch.
    """

    study: str
    search: str
    goal: str
    trials: int | None
    parallelism: str
    notes: Sequence[str] = ()
    epochs: int | None = None
    confirm: int = 0
    confirm_times: int = 1
    budget: str = ""
    timeout_seconds: float | None = None
    trial_timeout_seconds: float | None = None
    began_at: float | None = None
    earlier_seconds: float = 0.0
    stops_early: bool = False

    def lines(self) -> list[str]:
        """Return the header as lines of text."""
        return [label.ljust(LABEL_CELLS if label else 0) + words for label, words in self.rows()]

    def rows(self) -> list[tuple[str, str]]:
        """Return the header as labels and words; notes have an empty label."""
        trials = "the whole space" if self.trials is None else text.plural(self.trials, "trial")
        again = ""
        if self.confirm:
            times = {1: "once", 2: "twice"}.get(self.confirm_times, f"{self.confirm_times} times")
            again = f", then the best {self.confirm} {times} more"
        limits = [f"{self.budget} for all trials"] if self.budget else []
        if self.timeout_seconds is not None:
            words = f"{text.duration(self.timeout_seconds)} for the study"
            if self.timeout_seconds < _MINUTE_SECONDS:  # a number alone is taken as seconds
                words += " (10 minutes are 10m)"
            limits.append(words)
        if self.trial_timeout_seconds is not None:
            limits.append(f"{text.duration(self.trial_timeout_seconds)} for each trial")
        rows = [
            ("hptune", f"{self.search} search for {self.goal}, {trials}{again}"),
            ("study", text.clean(self.study)),
            ("runs", self.parallelism),
            ("limits", ", ".join(limits)),
            ("watch", f"hptune dashboard {text.clean(self.study)}"),
        ]
        return [row for row in rows if row[1]] + [("", text.clean(note)) for note in self.notes]


class Progress(Protocol):
    """A display of how a study is going.

    A display never holds up or stops a study: it swallows output errors, and a thread waits for
    slow readers (`BackgroundWriter`).

    It is called from one thread at a time: `busy`, then `start` once, then `update` after each
    batch of events and at least once a second, `note` at any time, and at the end `stop`, which may
    be repeated.
    """

    def busy(self, words: str) -> None:
        """Show what the user waits for before `start`; called several times a second."""

    def start(self, header: RunHeader) -> None:
        """Show what the run is about."""

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Show the study's present state.

        Args:
            snapshot: The study now.
            ended: The trials that ended since the last call.
            now: The time in seconds since the epoch.
        """

    def note(self, notice: Notice) -> None:
        """Show one line that stays, such as a warning."""

    def stop(self) -> None:
        """Leave the last state on the terminal, and the terminal as it was."""


class Waits:
    """What the user waits for before a run starts, with the seconds that each of it takes."""

    def __init__(self) -> None:
        self._words = ""
        self._since = 0.0
        self._said: set[str] = set()

    def seconds(self, words: str) -> float:
        """Return for how long these have been the words."""
        if words != self._words:
            self._words, self._since = words, time.monotonic()
        return time.monotonic() - self._since

    def line(self, words: str) -> str:
        """Return the line for a log, once; empty for none, and for what takes no time."""
        seconds = self.seconds(words)
        if words in self._said or (self._said and seconds < _SHORT_SECONDS):
            return ""
        self._said.add(words)
        return f"{words} …"


def shown_line(notice: Notice) -> str:
    """Return a notice as a display shows it, without control codes and passwords."""
    begin = f"{notice.subject}: " if notice.subject is Subject.PACKING else ""
    return text.clean(without_passwords(f"{begin}{notice.text}"))


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that ended during this run.

    Attributes:
        trial: The trial.
        seconds: How long its attempts ran; None if the last one was not seen running.
    """

    trial: Trial
    seconds: float | None


_SETTLED_SECONDS = 10.0
"""Time for which fewer trials must run until the time left is estimated with fewer places."""


class TrialRate:
    """The time that trials take, and the estimate of the time left.

    The time of a trial is that for which its attempts held a place, even if they waited there.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._latest = 0.0
        self._ended: list[float] = []
        self._running: dict[int, RunningAttempt] = {}
        self._places = 0
        self._places_at = 0.0
        self._is_stalled = False

    def begin(self, at: float | None) -> None:
        """Count the time since then, in seconds since the epoch; None to begin with an update."""
        if at is not None:
            self._first = self._latest = at

    @property
    def elapsed_seconds(self) -> float:
        """Time since the run began."""
        return 0.0 if self._first is None else self._latest - self._first

    def update(
        self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float
    ) -> list[EndedTrial]:
        """Observe the study, with the arguments of `Progress.update`.

        Returns:
            The ended trials, with the time that each took.
        """
        if self._first is None:
            self._first = self._latest = now
        # Trials too short to be seen running shared one place since the last call.
        unseen = sum(trial.number not in self._running for trial in ended)
        since, self._latest = now - self._latest, now
        timed = [EndedTrial(trial, self.seconds_run(trial.number)) for trial in ended]
        for trial in ended:
            is_seen = trial.number in self._running
            self._ended.append(self._held(trial.number) if is_seen else since / unseen)
        self._running = {run.trial.number: run for run in snapshot.running}
        self._is_stalled = bool(snapshot.stall_reason) or not snapshot.workers
        # A place that was just left is about to be taken again.
        is_settled = now - self._places_at > _SETTLED_SECONDS or not snapshot.workers
        if (count := len(snapshot.running)) >= self._places or is_settled:
            self._places, self._places_at = count, now
        return timed

    def seconds_run(self, trial: int) -> float | None:
        """Return how long a trial's attempts have run; None if none of them has started."""
        if (run := self._running.get(trial)) is None:
            return None
        seconds = run.attempt.seconds(self._latest)
        if seconds is None:
            return run.earlier_seconds or None
        return run.earlier_seconds + seconds

    def _held(self, trial: int) -> float:
        run = self._running[trial]
        return run.earlier_seconds + max(0.0, self._latest - run.attempt.placed_at)

    def seconds_left(self, snapshot: StudySnapshot, epochs: int | None = None) -> float | None:
        """Estimate when all trials will be over.

        None before a few trials have ended, while the study waits for workers, if the running
        trials, of unknown length, take longer than all before, and without a limit of trials.
        """
        budget = snapshot.budget_trials
        if budget is None or len(self._ended) < self._enough(budget) or not self._can_tell:
            return None
        if (left := budget - snapshot.ended) <= 0:
            return None
        seconds = seconds_left(
            self._ended,
            [
                RunningTime(self._held(number), self._rest(number, epochs))
                for number in self._running
            ],
            to_come=max(0, left - len(self._running)),
            places=self._places,
        )
        return seconds if seconds >= 1.0 else None

    def expected(self, snapshot: StudySnapshot, epochs: int | None) -> tuple[float, float] | None:
        """Estimate from the first epochs how long a whole trial takes, and the study from now on.

        Both in seconds. None if the epochs are unknown, before at least half of the running trials
        have measured their time for one, and when `seconds_left` knows more.
        """
        budget = snapshot.budget_trials
        if not (epochs and budget and self._can_tell) or len(self._ended) >= self._enough(budget):
            return None
        rest = {number: self._rest(number, epochs) for number in self._running}
        known = {number: seconds for number, seconds in rest.items() if seconds is not None}
        if not known or 2 * len(known) < len(self._running):
            return None
        ran = {number: self.seconds_run(number) or 0.0 for number in self._running}
        each = sum(ran[number] + seconds for number, seconds in known.items()) / len(known)
        remaining = [known.get(number, max(0.0, each - ran[number])) for number in self._running]
        to_come = max(0, budget - snapshot.ended - len(remaining))
        places = max(self._places, len(remaining))
        whole_rounds = max(0, to_come // places - 1)
        left = last_end(remaining, [each] * (to_come - whole_rounds * places), places=places)
        left += whole_rounds * each
        return each, left

    @property
    def _can_tell(self) -> bool:
        return bool(self._places) and not self._is_stalled

    def _rest(self, trial: int, epochs: int | None) -> float | None:
        run = self._running[trial]
        return rest_of(run.attempt, run.latest, epochs)

    def _enough(self, budget: int) -> int:
        return least_ended(budget, self._places)


def latest_value(run: RunningAttempt, goal: Goal) -> float | None:
    """Return the objective's latest value of a running attempt."""
    return None if run.latest is None else run.latest.metrics.get(goal.metric)


def is_waiting(run: RunningAttempt) -> bool:
    """Return whether an attempt waits at its worker for devices that another study holds."""
    return run.attempt.started_at is None and bool(run.attempt.reason)


def step_of(run: RunningAttempt, epochs: int | None) -> str:
    """Return the progress of a running attempt: `3/10` epochs, a step, or a dash if unknown."""
    if is_waiting(run):
        return "waits"
    if run.latest is None:
        return text.NOTHING
    return text.steps_of(run.latest.step, run.trial.params, epochs)
