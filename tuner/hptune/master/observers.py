"""Observers of a run: the display, and those that act on what the ledger records."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..core.attempt import Attempt
from ..core.messages import Event
from ..core.notice import Notice, Subject
from ..core.snapshot import StudySnapshot
from ..core.trial import Trial
from ..executors.base import Executor
from ..reporting.terminal.notifications import QUIET_SECONDS, Notifications
from ..reporting.terminal.progress import Progress
from ..storage.ledger import Ledger
from .notify import Notifier
from .stop_requests import raise_interrupt
from .workforce import Workforce


@dataclass(frozen=True, slots=True)
class RunDisplay:
    """Display of a run's progress.

    Attributes:
        progress: Shows the progress and lines for the user.
        end_at_once: What a second Ctrl-C does.
        is_quiet: Whether only lines that need attention are shown.
        began_at: When the user's command began, in seconds since the epoch. The run's time, and so
            the study's, is counted from there.
    """

    progress: Progress
    end_at_once: Callable[[], None] = raise_interrupt
    is_quiet: bool = False
    began_at: float = field(default_factory=time.time)

    def note(self, line: str) -> None:
        """Show one line that stays."""
        self.progress.note(Notice(line))


class PackingLines:
    """The lines on how trials share devices, which change in steps: the last one is shown.

    Args:
        known: The lines that held before this run.
    """

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._shown = set(known)
        self._new: tuple[str, ...] = ()
        self._since = 0.0

    def observe(self, lines: Sequence[str], now: float) -> None:
        """Take in the lines that hold now."""
        new = tuple(line for line in lines if line and line not in self._shown)
        if new != self._new:
            self._new, self._since = new, now

    def settled(self, now: float) -> str:
        """Return what is new and did not change for a while, once; empty for nothing."""
        if not self._new or now - self._since < QUIET_SECONDS:
            return ""
        new, self._new = self._new, ()
        self._shown.update(new)
        return "; ".join(new)


_START_SECONDS = 5.0
"""Time in which workers of this machine start, so that a study without one has no fault."""


@dataclass(frozen=True, slots=True)
class RunObservers:
    """The loop's observer: shows the progress, and adjusts the workers to the trials.

    Attributes:
        display: Where the progress is shown.
        notifications: What the user should know of attempts and workers.
        workers: The run's workers.
        executor: Knows which of them take trials.
        notifier: Calls the user's command.
        packing: The lines on packing.
        mirror: Shows the first failure of `--mirror`.
        began_at: When the workers began to start, in seconds since the epoch.
    """

    display: RunDisplay
    notifications: Notifications
    workers: Workforce
    executor: Executor
    notifier: Notifier
    packing: PackingLines = field(default_factory=PackingLines)
    mirror: Callable[[], None] = lambda: None
    began_at: float = field(default_factory=time.time)

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Observe the study's present state."""
        progress = self.display.progress
        cluster = self.workers.cluster
        shown = replace(snapshot, jobs=cluster.jobs_text(now))
        if cluster.is_local and not snapshot.workers and now < self.began_at + _START_SECONDS:
            shown = replace(shown, stall_reason="")
        progress.update(shown, ended, now)
        self.notifications.observe_ended(ended)
        self.notifier.observe(shown, ended, cluster.longest_wait(now))
        self.mirror()
        if not (snapshot.stopping or self.display.is_quiet) and snapshot.may_begin_more:
            self.packing.observe((snapshot.packing, snapshot.packing_advice), now)
        self._show_packing(now)
        self.workers.scale_to(snapshot, self.executor)
        self._show_notices(now)

    def _show_notices(self, now: float) -> None:
        own = map(Notice, self.notifications.lines(now))
        jobs = self.workers.cluster.notices()
        for notice in (*own, *jobs, *self.executor.notices()):
            self.display.progress.note(notice)

    def _show_packing(self, now: float) -> None:
        if line := self.packing.settled(now):
            self.display.progress.note(Notice(line, Subject.PACKING))

    @contextlib.contextmanager
    def until_stopped(self) -> Iterator[None]:
        """Show what is still unsaid at the end, and stop the display."""
        try:
            yield
        finally:
            self._show_notices(math.inf)
            self._show_packing(math.inf)
            self.display.progress.stop()

    def end_at_once(self) -> None:
        """End the run without waiting for anything."""
        self.display.progress.stop()
        self.workers.close(force=True)
        if left := self.workers.cluster.left_behind:
            self.display.note(left)
            self.display.progress.stop()
        self.display.end_at_once()


@dataclass(frozen=True, slots=True)
class StudyRecorder:
    """The ledger, and the lines for the user that follow from what it records."""

    ledger: Ledger
    notifications: Notifications

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        """Record events and what they changed; durable when this returns."""
        changed = tuple(attempts)
        self.ledger.append(events, trials=trials, attempts=changed)
        self.notifications.observe(events, changed)

    def set_facts(self, facts: Mapping[str, object]) -> None:
        """Record facts on the study as a whole, all or none of them."""
        self.ledger.set_facts(facts)
