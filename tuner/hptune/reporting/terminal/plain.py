"""Progress in lines of text, for pipes and logs."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import TextIO

from ... import text
from ...core.notice import Notice
from ...core.snapshot import StudySnapshot
from ...core.trial import Trial, TrialState
from .background_writer import BackgroundWriter
from .progress import (
    LABEL_CELLS,
    EndedTrial,
    RunHeader,
    TrialRate,
    Waits,
    is_waiting,
    shown_line,
    step_of,
)

HEARTBEAT_SECONDS = 30.0
"""Shortest time between two heartbeat lines, so that a log stays short."""

_REMINDER_SECONDS = 600.0
"""Time after which the line of a study in which nothing runs is repeated."""

_CONFIGURATION_CHARACTERS = 200
_RUNNING_TRIALS_NAMED = 8


class QuietProgress:
    """The display of `--quiet`: notes only."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = BackgroundWriter(stream)

    def busy(self, words: str) -> None:
        """Show nothing."""

    def start(self, header: RunHeader) -> None:
        """Show nothing."""

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Show nothing."""

    def note(self, notice: Notice) -> None:
        """Write one line."""
        self._writer.write(f"{shown_line(notice)}\n")

    def stop(self) -> None:
        """Wait until all is written; give up if it is not read."""
        self._writer.finish()


class PlainProgress:
    """A line for each ended trial, and a heartbeat line in between if anything changed."""

    def __init__(self, stream: TextIO) -> None:
        self._writer = BackgroundWriter(stream)
        self._waits = Waits()
        self._rate = TrialRate()
        self._epochs: int | None = None
        self._heartbeat_at: float | None = None
        self._heartbeat: tuple[str, ...] = ()
        self._written_at = -math.inf
        self._front: tuple[Trial, ...] | None = None
        self._stall_reason = ""
        self._began_at = time.time()

    def busy(self, words: str) -> None:
        """Write one line for each thing that takes time."""
        if line := self._waits.line(words):
            self._write(line)

    def start(self, header: RunHeader) -> None:
        """Write the header."""
        self._epochs = header.epochs
        self._rate.begin(header.began_at)
        self._began_at = header.began_at or self._began_at
        lines = header.lines()
        if header.earlier_seconds >= 1.0:
            before = text.duration(header.earlier_seconds)
            label = "times".ljust(LABEL_CELLS)
            lines.append(f"{label}since the start of this command; earlier runs took {before}")
        for line in lines:
            self._writer.write(f"{line}\n")

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Write the trials that ended, why the study stalls, and a heartbeat if one is due."""
        on_front = self._on_front(snapshot, ended)
        self._front = snapshot.front
        for each in self._rate.update(snapshot, ended, now):
            is_on_front = each.trial.number in on_front
            self._write(self._ended_line(each, snapshot, is_on_front=is_on_front))
        stall_reason = snapshot.stopping or snapshot.stall_reason
        if stall_reason != self._stall_reason:
            self._stall_reason = stall_reason
            if stall_reason:
                self._write(stall_reason)
        if self._heartbeat_at is None:
            self._heartbeat_at = now
        elif now - self._heartbeat_at >= HEARTBEAT_SECONDS:
            self._heartbeat_at = now
            self._write_heartbeat(snapshot, now)

    def note(self, notice: Notice) -> None:
        """Write one line, with the time since the start."""
        self._write(shown_line(notice))

    def _write(self, line: str) -> None:
        seconds = self._rate.elapsed_seconds
        if self._heartbeat_at is None:  # before the first update, such as while code is read
            seconds = max(seconds, int(time.time() - self._began_at))
        elapsed = text.duration(seconds)
        self._writer.write(f"{elapsed:>6}  {text.clean(line)}\n")

    def stop(self) -> None:
        """Wait until all is written; give up if it is not read."""
        self._writer.finish()

    def _on_front(self, snapshot: StudySnapshot, ended: Sequence[Trial]) -> set[int]:
        """Return which trials are on the front of those that have a line up to their own."""
        found = {trial.number for trial in snapshot.front}
        # Repeats count by their means, which only the study's own front has.
        joins = [e for e in ended if e.state is TrialState.COMPLETE and e.confirms is None]
        if self._front is None or found.isdisjoint(trial.number for trial in joins):
            return found
        before = [trial.score for trial in self._front]
        for trial in joins:
            if snapshot.goals.is_nondominated(trial.score, before):
                found.add(trial.number)
                before.append(trial.score)
        return found

    def _ended_line(self, ended: EndedTrial, snapshot: StudySnapshot, *, is_on_front: bool) -> str:
        trial = ended.trial
        after = "" if ended.seconds is None else f" after {text.duration(ended.seconds)}"
        again = f" ({text.again(trial)})" if text.again(trial) else ""
        begin = f"trial {trial.number}{again} {trial.state.lower()}{after}: "
        if trial.state is TrialState.FAILED:
            return begin + text.failure(trial)
        value = ", ".join(
            f"{goal.metric} {text.measured(value)}"
            for goal, value in zip(snapshot.goals.objectives, trial.values, strict=False)
        )
        step = text.value_step(trial, self._epochs)
        parts = [begin + (value or "no value was reported") + (f" {step}" if step else "")]
        parts += [f"infeasible: {each}" for each in snapshot.goals.broken(trial.metrics)]
        if is_on_front:
            is_one = len(snapshot.goals.objectives) == 1
            parts.append("best so far" if is_one else "on the front so far")
        if trial.params:
            configuration = " ".join(text.assignments(text.shown_params(trial)))
            parts.append(text.shorten(configuration, _CONFIGURATION_CHARACTERS))
        return "; ".join(parts)

    def _write_heartbeat(self, snapshot: StudySnapshot, now: float) -> None:
        done = text.progress(snapshot.ended, snapshot.budget_trials)
        parts = [self._running_text(snapshot)]
        if (best := snapshot.best) is not None:
            words = f"best {text.measured(best.value)} (trial {best.number})"
            if len(snapshot.goals.objectives) > 1:
                words = f"{text.plural(len(snapshot.front), 'trial')} on the front"
            parts.insert(0, words)
        if failed := snapshot.counts.get(TrialState.FAILED):
            parts.insert(0, f"{failed} failed")
        is_idle = not snapshot.running and not snapshot.paused_by
        is_due = is_idle and now - self._written_at >= _REMINDER_SECONDS
        if (heartbeat := (done, *parts)) == self._heartbeat and not is_due:
            return
        self._heartbeat, self._written_at = heartbeat, now
        if (left := self._rate.seconds_left(snapshot, self._epochs)) is not None:
            parts.insert(0, f"{text.duration(left)} left")
        self._write("; ".join((done, *parts)))

    def _running_text(self, snapshot: StudySnapshot) -> str:
        if not snapshot.running:
            waits = snapshot.paused_by or snapshot.stall_reason or snapshot.stopping
            if snapshot.workers and not waits and not snapshot.counts.get(TrialState.WAITING):
                return "the search chooses the next trial"
            paused = "paused: " if snapshot.paused_by else ""
            idle = f"{paused}nothing runs on {text.plural(snapshot.workers, 'worker')}"
            return f"{idle}; jobs: {snapshot.jobs}" if snapshot.jobs else idle
        named = []
        for run in snapshot.running[:_RUNNING_TRIALS_NAMED]:
            known = run.latest is not None or is_waiting(run)
            step = f" ({step_of(run, self._epochs)})" if known else ""
            named.append(f"{run.trial.number}{step}")
        more = len(snapshot.running) - len(named)
        return f"running {', '.join(named)}" + (f" and {more} more" if more else "")
