"""Progress in lines, for pipes, logs and the quiet."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TextIO

from ...core.snapshot import StudySnapshot
from ...core.trial import Trial, TrialState
from .. import text
from .background_writer import (
    PATIENCE_SECONDS,
    AtOnce,
    BackgroundWriter,
    InBackground,
    Unshared,
    can_block,
)
from .progress import EndedTrial, RunHeader, TrialRate, step_of, waits

HEARTBEAT_SECONDS = 30.0
"""The shortest time between two heartbeat lines in a log."""

_CONFIGURATION_CHARACTERS = 200
_RUNNING_TRIALS_NAMED = 8


class Lines:
    """Writes lines to a stream until it breaks, and then no more; waits for no reader.

    Args:
        stream: Where to write.
        patience_seconds: `finish` gives up a reader who takes nothing for so long.
    """

    def __init__(self, stream: TextIO, *, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._stream: io.TextIOBase | TextIO | None = stream
        self._scribe: BackgroundWriter = AtOnce()
        if can_block(stream):
            self._stream = Unshared(stream)
            self._scribe = InBackground(
                lambda lost: self._write(lost_words(lost)), patience_seconds=patience_seconds
            )

    def write(self, line: str) -> None:
        """Write one line."""
        self._scribe.write(lambda: self._write(line))

    def finish(self) -> bool:
        """Wait until all is written, but not for ever; whether it is."""
        return self._scribe.finish()

    def _write(self, line: str) -> None:
        if self._stream is None:
            return
        encoding = self._stream.encoding or "utf-8"
        try:
            self._stream.write(line.encode(encoding, "replace").decode(encoding) + "\n")
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._stream = None


def lost_words(count: int) -> str:
    """That so many lines were never written."""
    return f"({text.plural(count, 'line')} left out: nobody read them in time)"


class NotesOnly:
    """The quiet display: nothing but notes."""

    def __init__(self, stream: TextIO) -> None:
        self._lines = Lines(stream)

    def start(self, header: RunHeader) -> None:
        """Show nothing."""

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Show nothing."""

    def note(self, line: str) -> None:
        """Show one line."""
        self._lines.write(text.clean(line))

    def stop(self) -> None:
        """Wait until all notes are read, but not for ever."""
        self._lines.finish()


class PlainProgress:
    """Progress for pipes and logs: a line for each ended trial, and a heartbeat in between."""

    def __init__(self, stream: TextIO) -> None:
        self._lines = Lines(stream)
        self._pace = TrialRate()
        self._epochs: int | None = None
        self._heartbeat_at: float | None = None
        self._notice = ""

    def start(self, header: RunHeader) -> None:
        """Write the header."""
        self._epochs = header.epochs
        for line in header.lines():
            self._lines.write(line)

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Write the trials that ended, and a heartbeat if the last line is long ago."""
        for over in self._pace.update(snapshot, ended, now):
            self._tell(self._ended_line(over, snapshot))
        stall_reason = snapshot.stopping or snapshot.stall_reason
        if stall_reason != self._notice:
            self._notice = stall_reason
            if stall_reason:
                self._tell(text.clean(stall_reason))
        if self._heartbeat_at is None:
            self._heartbeat_at = now
        elif now - self._heartbeat_at >= HEARTBEAT_SECONDS:
            self._heartbeat_at = now
            self._tell(self._heartbeat_line(snapshot))

    def note(self, line: str) -> None:
        """Write one line."""
        self._tell(text.clean(line))

    def stop(self) -> None:
        """Write nothing, for the last lines say it all; wait until they are read, if they are."""
        self._lines.finish()

    def _tell(self, line: str) -> None:
        self._lines.write(f"{text.duration(self._pace.elapsed_seconds):>6}  {line}")

    def _ended_line(self, over: EndedTrial, snapshot: StudySnapshot) -> str:
        trial = over.trial
        said = f"trial {trial.number} {trial.state.lower()}"
        after = "" if over.seconds is None else f" after {text.duration(over.seconds)}"
        if trial.state is TrialState.FAILED:
            return f"{said}{after}: {text.failure(trial)}"
        values = trial.values or (None,)
        value = ", ".join(
            f"{goal.metric} {text.measured(value)}"
            for goal, value in zip(snapshot.aims.goals, values, strict=False)
        )
        step = text.at_step(trial.step, self._epochs)
        best = any(each.number == trial.number for each in snapshot.front)
        parts = [f"{said}{after}: {value}" + (f" at {step}" if step else "")]
        parts += [f"infeasible: {each}" for each in snapshot.aims.broken(trial.metrics)]
        if best:
            parts.append("best so far")
        if trial.params:
            configuration = " ".join(text.assignments(trial.params))
            parts.append(text.shorten(configuration, _CONFIGURATION_CHARACTERS))
        return "; ".join(parts)

    def _heartbeat_line(self, snapshot: StudySnapshot) -> str:
        parts = [text.progress(snapshot.ended, snapshot.budget_trials)]
        left = self._pace.seconds_left(snapshot)
        if left is not None:
            parts.append(f"{text.duration(left)} to go")
        if snapshot.counts.get(TrialState.FAILED):
            parts.append(f"{snapshot.counts[TrialState.FAILED]} failed")
        if snapshot.best is not None:
            best = snapshot.best
            parts.append(f"best {text.measured(best.value)} (trial {best.number})")
        parts.append(self._running_words(snapshot))
        return "; ".join(parts)

    def _running_words(self, snapshot: StudySnapshot) -> str:
        if not snapshot.running:
            return f"nothing runs on {text.plural(snapshot.workers, 'worker')}"
        told = []
        for run in snapshot.running[:_RUNNING_TRIALS_NAMED]:
            known = run.latest is not None or waits(run)
            step = f" ({step_of(run, self._epochs)})" if known else ""
            told.append(f"{run.trial.number}{step}")
        more = len(snapshot.running) - len(told)
        return f"running {', '.join(told)}" + (f" and {more} more" if more else "")
