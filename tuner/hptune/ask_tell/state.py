"""The state of a study in this process, which follows the ledger."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from ..core.messages import Event, StudyOpened
from ..core.space.space import SearchSpace
from ..master.followed_search import FollowedSearch, stored_sampler
from ..master.past import Past, replay_errors
from ..storage.directory import StudyDirectory
from ..storage.ledger import Ledger, LedgerReader, StudyFacts
from ..storage.lock import MasterLock
from ..storage.whose import Use
from .followed import FollowedStudy


class FollowedState:
    """Follows each event of a study once. One thread at a time may call.

    Args:
        directory: Where the study is.
    """

    def __init__(self, directory: StudyDirectory) -> None:
        self._directory = directory
        self._study: FollowedStudy | None = None
        self._file: object = None
        self._ledger: Ledger | None = None
        self._opened_by: object = None

    def seen(self) -> FollowedStudy:
        """Return the study as the ledger has it now; others may write to it at this moment."""
        if (ledger := self._own_ledger()) is None:
            reader = LedgerReader(self._directory)
            return self._followed(reader.facts, lambda count: reader.events(after=count - 1))
        return self._followed(lambda: ledger.facts, lambda count: ledger.events(after=count - 1))

    def caught_up(self, lock: MasterLock) -> FollowedStudy:
        """Return the study as the ledger has it until the lock is released."""
        ledger, is_new = self._writer(lock)
        study = self._followed(lambda: ledger.facts, lambda count: ledger.events(after=count - 1))
        if is_new:
            ledger.check(study.engine.trials)
        return study

    def read_again(self, lock: MasterLock) -> FollowedStudy:
        """Return the study, read from its first event on, until the lock is released."""
        self._study = None
        return self.caught_up(lock)

    @contextlib.contextmanager
    def recorded(self, study: FollowedStudy) -> Iterator[None]:
        """Record what happens within the context, all of it or nothing.

        Args:
            study: The study, caught up.
        """
        try:
            yield
            self.record()
        except BaseException:
            if study.new:  # the state knows what the ledger does not
                self._study = None
            raise

    def record(self, facts: Mapping[str, object] = MappingProxyType({})) -> None:
        """Record what has happened until now, with facts about the study.

        Raises:
            StudyError: The ledger cannot be written.
        """
        if self._study is not None and self._ledger is not None and (self._study.new or facts):
            self._study.record(self._ledger, facts)

    def _writer(self, lock: MasterLock) -> tuple[Ledger, bool]:
        """Return the ledger, open for writing under this lock, and whether it was opened now.

        A connection is of one thread of one process. Without locks of the file system, opening the
        ledger repairs what a killed program left.
        """
        if (ledger := self._own_ledger()) is not None:
            ledger.use(lock)
            return ledger, False
        if not lock.has_posix_lock:
            self._study = None
        self._directory.open(Use.RUN)
        self._ledger = Ledger.open(self._directory, lock=lock)
        self._opened_by = self._opener() if lock.has_posix_lock else None
        return self._ledger, True

    def _own_ledger(self) -> Ledger | None:
        """Return the ledger if this thread has it open, and it may be used again."""
        return self._ledger if self._opened_by == self._opener() else None

    def _opener(self) -> object:
        return os.getpid(), threading.get_ident(), self._identity()

    def _followed(
        self, facts: Callable[[], StudyFacts], events_from: Callable[[int], Iterable[Event]]
    ) -> FollowedStudy:
        """Return the study after the events that it does not follow yet.

        Args:
            facts: Returns the facts about the study.
            events_from: Returns the events of its ledger from a number on.
        """
        file = self._identity()
        study, self._study = self._study, None  # if this is interrupted, it is read again
        events = [*events_from(study.count)] if study and file == self._file else []
        has_run = any(isinstance(event, StudyOpened) for event in events)
        if study is None or file != self._file or has_run:
            self._directory.open(Use.RUN)
            study, events = self._from_the_first(facts, events_from)
        with replay_errors(self._directory):
            for event in events:
                study.follow(event)
        study.engine.take_changes()
        self._study, self._file = study, file
        return study

    def _from_the_first(
        self, facts: Callable[[], StudyFacts], events_from: Callable[[int], Iterable[Event]]
    ) -> tuple[FollowedStudy, list[Event]]:
        """Return a study before its first event, and its events, with facts of the same moment."""
        while True:
            before = facts()
            events = [*events_from(0)]
            if facts() == before:
                return self._begun(before), events

    def _begun(self, facts: StudyFacts) -> FollowedStudy:
        """Return a study before its first event."""
        past = Past.begin(self._directory, facts)
        search = FollowedSearch(stored_sampler(past.settings, past.facts))
        search.space = SearchSpace.from_json(facts["space"])
        # A machine whose clock is wrong must not end the leases of all others.
        ahead_seconds = self._directory.now() - time.time()
        return FollowedStudy(past, search, ahead_seconds=ahead_seconds)

    def _identity(self) -> object:
        """Return which file the ledger is: another one may have taken its place."""
        try:
            file = self._directory.database.stat()
        except OSError:
            return None
        return file.st_dev, file.st_ino
