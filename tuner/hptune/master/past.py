"""A study as its ledger tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from ..config.plugins import pruner_maker
from ..config.settings import StudySettings
from ..core.attempt import AttemptId
from ..core.engine.engine import Engine
from ..core.messages import Command, Event, GrowSpace, Reported, StudyOpened
from ..core.space.earlier_study import EarlierStudy
from ..core.trial import Trial
from ..errors import StudyError, faults_of_others
from ..storage.directory import StudyDirectory
from ..storage.ledger import StudyFacts, damage_errors


@dataclass(frozen=True, slots=True)
class Past:
    """A study as its ledger tells it, before it is resumed.

    Attributes:
        directory: Where the study is.
        facts: The ledger's facts on the study as a whole.
        settings: The settings of the last run.
        engine: The engine, in the past that the last master left.
        reports: How many reports of each attempt the ledger has.
        found_later: Parameters that trials of the last master declared beyond the space in which
            it opened the study.
    """

    directory: StudyDirectory
    facts: StudyFacts
    settings: StudySettings
    engine: Engine
    reports: Counter[AttemptId] = field(default_factory=Counter)
    found_later: list[Sequence[Mapping[str, object]]] = field(default_factory=list)

    @classmethod
    def begin(cls, directory: StudyDirectory, facts: StudyFacts) -> Past:
        """Return the past of a study of which no event is read yet."""
        settings = read_settings(directory, facts)
        return cls(directory, facts, settings, Engine(pruner_maker(settings)))

    def read(self, events: Iterable[Event]) -> None:
        """Replay the events of the ledger.

        Raises:
            StudyError: The ledger is damaged, or its events do not fit together.
        """
        with replay_errors(self.directory):
            for event in events:
                self.handle(event)

    def handle(self, event: Event) -> list[Command]:
        """Take in an event; its commands are given again when the study is opened, if needed."""
        commands = self.engine.handle(event)
        if isinstance(event, Reported):
            self.reports[event.attempt] += 1
        elif isinstance(event, StudyOpened):
            self.found_later.clear()  # the event has the whole space
        self.found_later.extend(
            command.declared for command in commands if isinstance(command, GrowSpace)
        )
        return commands

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials."""
        return tuple(self.engine.trials)

    @property
    def suggested(self) -> int:
        """How many trials are no repeats that confirm others."""
        return sum(trial.confirms is None for trial in self.trials)


def replay_errors(directory: StudyDirectory) -> AbstractContextManager[None]:
    """Turn what the engine raises at an event that it did not expect into an error of the study.

    Raises:
        StudyError: It was raised.
    """
    return faults_of_others(  # the engine takes the events of its own study only
        lambda words, _: StudyError(
            f"the events of the study in {directory} do not fit together ({words}). Nothing was "
            "changed. If another program or another hptune wrote to study.db, take a backup of "
            f"it; a new study learns from the trials with --warm-start {directory}"
        )
    )


def read_settings(directory: StudyDirectory, facts: StudyFacts) -> StudySettings:
    """Return the settings of a stored study, whose earlier studies can be read too.

    Raises:
        StudyError: The ledger is damaged.
    """
    with damage_errors(directory):
        for study in facts["warm_start"]:
            EarlierStudy.from_json(study)
        return StudySettings.from_json(facts["settings"]).found_in(directory.path)
