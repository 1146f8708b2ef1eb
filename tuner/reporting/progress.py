"""Progress on a terminal or in a log: what to show, how fast it goes, and where to show it.

The display that redraws itself is in `live`, and loaded only for a terminal.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from ..core.picture import RunningAttempt, StudyPicture
from ..core.trial import Goal, Trial, TrialState
from . import text

HEARTBEAT_SECONDS = 30.0
"""The shortest time between two heartbeat lines in a log."""

_CONFIGURATION_CHARACTERS = 200
_RUNNING_TRIALS_NAMED = 8


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
    """

    study: str
    search: str
    goal: str
    trials: int | None
    parallelism: str
    dashboard: str = ""
    notes: Sequence[str] = ()
    epochs: int | None = None

    def lines(self) -> list[str]:
        """The header in lines of text."""
        trials = "the whole space" if self.trials is None else text.plural(self.trials, "trial")
        told = [
            f"hptune   {self.search} search for {self.goal}, {trials}",
            f"study    {text.clean(self.study)}",
        ]
        if self.parallelism:
            told.append(f"runs     {self.parallelism}")
        if self.dashboard:
            told.append(f"watch    {self.dashboard}")
        return [*told, *(text.clean(note) for note in self.notes)]


class Progress(Protocol):
    """Shows how a study is going. A display never stops a study: output errors are swallowed.

    The study's loop is the only caller, from one thread: `start` once, then `update` after each
    batch of events and at least once a second, `note` at any time, and `stop` at the end,
    whatever happened (it may be repeated).
    """

    def start(self, header: RunHeader) -> None:
        """Show what the run is about."""

    def update(self, picture: StudyPicture, ended: Sequence[Trial], now: float) -> None:
        """Take note of the present standing.

        Args:
            picture: The study now.
            ended: The trials that ended since the last call, each told once.
            now: The time in seconds since the epoch.
        """

    def note(self, line: str) -> None:
        """Show one line that stays, such as a warning."""

    def stop(self) -> None:
        """Leave the last standing behind, and the terminal as it was."""


def make_progress(stream: TextIO, *, quiet: bool) -> Progress:
    """The display that suits a stream: live on a terminal, lines in a pipe or a log.

    Args:
        stream: Where to write.
        quiet: Show notes only.
    """
    if quiet:
        return NotesOnly(stream)
    capable = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    draws_lines = (stream.encoding or "").lower().replace("-", "") == "utf8"
    if stream.isatty() and capable and draws_lines:
        from .live import LiveProgress

        return LiveProgress(stream)
    return PlainProgress(stream)


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """A trial that ended during this run, and how long it held its last place, if seen."""

    trial: Trial
    seconds: float | None


class Pace:
    """How long trials take, and so when the study will end.

    The cost of a trial is the time that attempts held a place, divided by the trials that ended;
    what running trials have already used counts neither way. So the estimate holds from the
    first ended trial on, with any number of trials at once, for long trials and for short ones.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._latest = 0.0
        self._busy_seconds = 0.0
        self._ended = 0
        self._placed_at: dict[int, float] = {}
        self._places = 0

    @property
    def elapsed_seconds(self) -> float:
        """How long this run goes on."""
        return 0.0 if self._first is None else self._latest - self._first

    def update(self, picture: StudyPicture, ended: Sequence[Trial], now: float) -> list[EndedTrial]:
        """Take note of the present standing, as `Progress.update` is told it.

        Returns:
            The ended trials with how long each took.
        """
        if self._first is None:
            self._first = self._latest = now
        # Trials too short to be seen running held at least one place since the last call.
        places = max(len(self._placed_at), 1 if ended else 0)
        self._busy_seconds += places * (now - self._latest)
        self._latest = now
        self._ended += len(ended)
        timed = [EndedTrial(trial, self.seconds_held(trial.number)) for trial in ended]
        self._placed_at = {run.trial.number: run.attempt.placed_at for run in picture.running}
        if picture.running or not picture.workers:
            self._places = len(picture.running)
        return timed

    def seconds_held(self, trial: int) -> float | None:
        """How long a running trial has held its place; None if it does not run."""
        placed_at = self._placed_at.get(trial)
        return None if placed_at is None else max(0.0, self._latest - placed_at)

    def seconds_left(self, picture: StudyPicture) -> float | None:
        """When the budget will be used up; None before the first trial ended, or if unknown."""
        if not self._ended or not self._places or picture.budget_trials is None:
            return None
        left = picture.budget_trials - picture.ended
        if left <= 0:
            return 0.0
        used = [max(0.0, self._latest - placed_at) for placed_at in self._placed_at.values()]
        per_trial = max(0.0, self._busy_seconds - sum(used)) / self._ended
        work = left * per_trial - sum(min(seconds, per_trial) for seconds in used)
        return work / min(self._places, left)


def latest_value(run: RunningAttempt, goal: Goal) -> float | None:
    """The objective's latest value of a running attempt."""
    return None if run.latest is None else run.latest.metrics.get(goal.metric)


class _Lines:
    """Writes lines to a stream until it breaks, and then no more."""

    def __init__(self, stream: TextIO) -> None:
        self._stream: TextIO | None = stream

    def write(self, line: str) -> None:
        if self._stream is None:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._stream = None


class NotesOnly:
    """The quiet display: nothing but notes."""

    def __init__(self, stream: TextIO) -> None:
        self._lines = _Lines(stream)

    def start(self, header: RunHeader) -> None:
        """Show nothing."""

    def update(self, picture: StudyPicture, ended: Sequence[Trial], now: float) -> None:
        """Show nothing."""

    def note(self, line: str) -> None:
        """Show one line."""
        self._lines.write(text.clean(line))

    def stop(self) -> None:
        """Show nothing."""


class PlainProgress:
    """Progress for pipes and logs: a line for each ended trial, and a heartbeat in between."""

    def __init__(self, stream: TextIO) -> None:
        self._lines = _Lines(stream)
        self._pace = Pace()
        self._epochs: int | None = None
        self._heartbeat_at: float | None = None
        self._notice = ""

    def start(self, header: RunHeader) -> None:
        """Write the header."""
        self._epochs = header.epochs
        for line in header.lines():
            self._lines.write(line)

    def update(self, picture: StudyPicture, ended: Sequence[Trial], now: float) -> None:
        """Write the trials that ended, and a heartbeat if the last line is long ago."""
        for over in self._pace.update(picture, ended, now):
            self._tell(self._ended_line(over, picture))
        notice = picture.stopping or picture.notice
        if notice != self._notice:
            self._notice = notice
            if notice:
                self._tell(text.clean(notice))
        if self._heartbeat_at is None:
            self._heartbeat_at = now
        elif now - self._heartbeat_at >= HEARTBEAT_SECONDS:
            self._heartbeat_at = now
            self._tell(self._heartbeat_line(picture))

    def note(self, line: str) -> None:
        """Write one line."""
        self._tell(text.clean(line))

    def stop(self) -> None:
        """Write nothing: the last lines say it all."""

    def _tell(self, line: str) -> None:
        self._lines.write(f"{text.duration(self._pace.elapsed_seconds):>6}  {line}")

    def _ended_line(self, over: EndedTrial, picture: StudyPicture) -> str:
        trial = over.trial
        said = f"trial {trial.number} {trial.state.lower()}"
        after = "" if over.seconds is None else f" after {text.duration(over.seconds)}"
        if trial.state is TrialState.FAILED:
            return f"{said}{after}: {text.failure(trial)}"
        value = f"{picture.goal.metric} {text.measured(trial.value)}"
        step = text.at_step(trial.step, self._epochs)
        best = picture.best is not None and picture.best.number == trial.number
        parts = [f"{said}{after}: {value}" + (f" at {step}" if step else "")]
        if best:
            parts.append("best so far")
        if trial.params:
            configuration = " ".join(text.assignments(trial.params))
            parts.append(text.shorten(configuration, _CONFIGURATION_CHARACTERS))
        return "; ".join(parts)

    def _heartbeat_line(self, picture: StudyPicture) -> str:
        parts = [text.progress(picture.ended, picture.budget_trials)]
        left = self._pace.seconds_left(picture)
        if left is not None:
            parts.append(f"{text.duration(left)} to go")
        if picture.counts.get(TrialState.FAILED):
            parts.append(f"{picture.counts[TrialState.FAILED]} failed")
        if picture.best is not None:
            best = picture.best
            parts.append(f"best {text.measured(best.value)} (trial {best.number})")
        parts.append(self._running_words(picture))
        return "; ".join(parts)

    def _running_words(self, picture: StudyPicture) -> str:
        if not picture.running:
            return f"nothing runs on {text.plural(picture.workers, 'worker')}"
        told = []
        for run in picture.running[:_RUNNING_TRIALS_NAMED]:
            step = "" if run.latest is None else f" ({step_of(run, self._epochs)})"
            told.append(f"{run.trial.number}{step}")
        more = len(picture.running) - len(told)
        return f"running {', '.join(told)}" + (f" and {more} more" if more else "")


def step_of(run: RunningAttempt, epochs: int | None) -> str:
    """How far a running attempt is: `3/10` epochs, or a step, or nothing known."""
    if run.latest is None:
        return text.NOTHING
    # A trial may have its own number of epochs; never show more steps than there are.
    of = run.trial.params.get("epochs") if epochs is None else epochs
    known = isinstance(of, int) and of >= run.latest.step
    return f"{run.latest.step}/{of}" if known else str(run.latest.step)
