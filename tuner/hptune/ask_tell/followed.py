"""What a process has read of a study's events, and what a call adds to them."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Mapping
from types import MappingProxyType

from ..config.objectives import goals_of
from ..core.engine.engine import Engine
from ..core.messages import (
    Ask,
    Command,
    Discard,
    Event,
    Finish,
    FinishReason,
    GrowSpace,
    KeepBest,
    Start,
    StopRequested,
    StudyClosed,
    StudyOpened,
    UserRequested,
    WorkerLeft,
)
from ..core.user_requests import UserAction
from ..core.workers import Phase
from ..errors import HptuneError
from ..master.followed_search import FollowedSearch
from ..master.past import Past
from ..master.programs import taken
from ..master.suggester import suggested
from ..storage.artifacts import StudyFiles
from ..storage.ledger import Ledger
from ..text import duration


class FollowedStudy:
    """The state that follows from the events of a study, with those of the present call.

    What a call adds is in this state at once, and in the ledger with `record`.

    Args:
        past: The study before its first event.
        search: Its search before its first event.
        ahead_seconds: How much the clock of the study's file system is ahead of this machine's.

    Attributes:
        count: How many events it follows.
        new: The events of the present call.
        is_open: Whether programs may ask: one of them opened it, and no master has since.
        is_closed: Whether nothing starts before it is opened again.
        finish: How it has ended; None while it has not.
        at: The time of the latest event, in seconds since the epoch.
        starts: What each worker was given last, by the worker's name.
        refusals: Why requests of programs were refused, by their names; empty if they were not.
    """

    def __init__(self, past: Past, search: FollowedSearch, *, ahead_seconds: float) -> None:
        self._ahead_seconds = ahead_seconds
        self.past = past
        self.search = search
        self.count = 0
        self.new: list[Event] = []
        self.is_open = False
        self.is_closed = False
        self.finish: Finish | None = None
        self.at = 0.0
        self.starts: dict[str, Start] = {}
        self.refusals: dict[str, str] = {}
        self._best: KeepBest | None = None
        self._kept: KeepBest | None = None
        keeps = past.settings.keep_checkpoints > 0
        self._files = StudyFiles(past.directory, goals_of(past.facts), keep_checkpoints=keeps)
        self._discarded: list[Discard] = []
        self._facts: dict[str, object] = {}

    @property
    def engine(self) -> Engine:
        """The study's engine."""
        return self.past.engine

    @property
    def goes_on(self) -> bool:
        """Whether programs may ask, and the study neither stops nor has ended."""
        return self.is_open and self.finish is None and not self.engine.is_stopping

    def has_yet_to_get(self, program: str) -> bool:
        """Return whether a program waits for the trial that it has asked a master for."""
        known = self.engine.workers.get(program)
        is_gone = known is None or known.phase is Phase.LEFT
        return not is_gone and program not in self.starts

    def follow(self, event: Event) -> list[Command]:
        """Take in an event, and return the engine's commands."""
        self.count += 1
        self.at = max(self.at, event.at)
        if isinstance(event, StudyOpened):
            self.is_open, self.is_closed, self.finish = event.without_master, False, None
            self.search.begin(event, self.engine.results)
        elif isinstance(event, StudyClosed):
            self.is_open, self.is_closed = False, True
        elif isinstance(event, WorkerLeft):
            self.starts.pop(event.worker, None)
        elif isinstance(event, UserRequested) and event.action is UserAction.TRAIN:
            self.refusals[event.request] = event.refused
        commands = self.past.handle(event)
        for command in commands:
            self.search.carry_out(command)
            if isinstance(command, KeepBest):
                self._best = command
            elif isinstance(command, Finish):
                self.finish = command
            elif isinstance(command, Start):
                self.starts[command.placement.worker] = command
        return commands

    def now(self) -> float:
        """Return the present time by the file system's clock, which all programs share.

        That of a master may be ahead of it.
        """
        return max(time.time() + self._ahead_seconds, self.at)

    # --- events -----------------------------------------------------------------------------

    def happen(self, *events: Event) -> None:
        """Let events happen, and the answers to the engine's questions."""
        left = deque(events)
        while left:
            event = left.popleft()
            self.new.append(event)
            for command in self.follow(event):
                match command:
                    case Ask(numbers=numbers):
                        left.appendleft(suggested(event.at, numbers, self.search.ask(numbers)))
                    case Start():
                        left.extendleft(reversed(taken(event.at, command)))
                    case Discard():
                        self._discarded.append(command)
                    case GrowSpace():
                        self._facts["space"] = self.search.space.to_json()
                    case Finish(finish_reason=kind, reason=reason):
                        self._facts["ended"] = {"finish_reason": str(kind), "reason": reason}
                    case _:
                        pass

    def stop_if_due(self) -> None:
        """Stop the study if its time or its budget is over."""
        now, limit = self.now(), self.past.settings.timeout_seconds
        stop = self.engine.overspent(now)
        if limit and self.engine.active_seconds + (now - self.at) >= limit:
            reason = f"the time limit of {duration(limit)} is reached"
            stop = StopRequested(now, FinishReason.TIME_UP, reason)
        if stop is not None and self.goes_on:
            self.happen(stop)

    # --- the ledger -------------------------------------------------------------------------

    def record(self, ledger: Ledger, facts: Mapping[str, object] = MappingProxyType({})) -> None:
        """Write the events of the present call in one transaction, and then the files.

        Args:
            ledger: The study's, which has the events before them.
            facts: Facts that are written with them.

        Raises:
            StudyError: The ledger cannot be written, and nothing of the call has happened.
        """
        trials, attempts = self.engine.take_changes()
        facts = {**facts, **self._facts}
        ledger.append(self.new, trials=trials, attempts=attempts, facts=facts)
        self.new, self._facts = [], {}
        discarded, self._discarded = self._discarded, []
        try:
            # Also of another program, which was killed before it could do so.
            if self._best is not self._kept and self._best is not None:
                self._files.keep_best(self._best.trials)
                self._kept = self._best
            for each in discarded:
                self._files.discard(each.trial, keep_checkpoint=each.keep_checkpoint)
        except HptuneError as error:  # the result is in the ledger
            warnings.warn(f"{error.message}. The next call tries again", stacklevel=2)
