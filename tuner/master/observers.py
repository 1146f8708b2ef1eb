"""Who looks on at a run, and who draws conclusions from what is written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..core.messages import Event
from ..core.snapshot import StudySnapshot
from ..core.trial import Attempt, Trial
from ..reporting.terminal.notifications import Notifications
from ..reporting.terminal.progress import Progress
from ..storage.ledger import Ledger
from .stop_requests import raise_interrupt
from .workforce import Workforce


@dataclass(frozen=True, slots=True)
class RunDisplay:
    """Who looks on.

    Attributes:
        progress: Shows how it goes.
        leave_at_once: What a second Ctrl-C does.
        is_quiet: Whether only what needs attention is told.
    """

    progress: Progress
    leave_at_once: Callable[[], None] = raise_interrupt
    is_quiet: bool = False


@dataclass(frozen=True, slots=True)
class RunObservers:
    """The display, what it is told, and those who find workers for what there is to do."""

    progress: Progress
    news: Notifications
    workers: Workforce
    is_quiet: bool
    told: set[str] = field(default_factory=set)

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Take note of the present standing."""
        self.progress.update(snapshot, ended, now)
        packing = "" if snapshot.stopping or not snapshot.may_begin_more else snapshot.packing
        if packing and not self.is_quiet and packing not in self.told:
            self.told.add(packing)
            self.progress.note(packing)
        for line in (*self.news.lines(now), *self.workers.follow(snapshot)):
            self.progress.note(line)


@dataclass(frozen=True, slots=True)
class StudyRecorder:
    """The ledger, and those who draw conclusions from it.

    They say which workers are of no use, and what the user should know.
    """

    ledger: Ledger
    workers: Workforce
    news: Notifications

    def append(
        self, events: Sequence[Event], *, trials: Iterable[Trial], attempts: Iterable[Attempt]
    ) -> None:
        """Write down events and what they changed; safe when this returns."""
        changed = tuple(attempts)
        self.ledger.append(events, trials=trials, attempts=changed)
        self.workers.heed(events, changed)
        self.news.observe(events, changed)

    def set_facts(self, facts: Mapping[str, object]) -> None:
        """Write down what is known of the study as a whole; all or nothing."""
        self.ledger.set_facts(facts)
