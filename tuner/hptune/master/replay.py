"""Replay of a study's search from its ledger, which compares every suggestion."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from ..config.objectives import goals_of
from ..config.plugins import find_sampler, pruner_maker
from ..config.settings import StudySettings
from ..core.engine.engine import Engine
from ..core.messages import Ask, Command, GrowSpace, StudyOpened, Suggested, Tell
from ..core.sampler import Sampler
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.trial import Params
from ..errors import SpaceError
from ..storage.directory import StudyDirectory
from ..storage.ledger import LedgerReader, StudyFacts
from ..storage.whose import Use
from ..text import plural
from .resume_checks import read_settings, replay_errors
from .suggester import InformedSampler, sampler_maker


@dataclass(frozen=True, slots=True)
class Difference:
    """A suggestion that came out differently.

    Attributes:
        trial: The trial's number.
        recorded: The configuration in the ledger; None if the search was exhausted there.
        again: The configuration that came out now; None if the search is exhausted.
    """

    trial: int
    recorded: Params | None
    again: Params | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """Result of a replay.

    Attributes:
        same: How many suggestions are as in the ledger, until the first difference.
        difference: The first suggestion that differs; None if there is none.
        others: Number of trials that the search did not suggest: those of `resume --try` and
            `enqueue`, and repeats that confirm.
    """

    same: int
    difference: Difference | None
    others: int = 0

    def to_json(self) -> dict[str, object]:
        """Return plain values."""
        found = self.difference
        return {
            "same": self.same,
            "not_of_the_search": self.others,
            "difference": None
            if found is None
            else {
                "trial": found.trial,
                "recorded": None if found.recorded is None else dict(found.recorded),
                "again": None if found.again is None else dict(found.again),
            },
        }

    def text(self) -> str:
        """Return text for the user."""
        found = self.difference
        if found is None:
            ways = "--try, enqueue or --confirm"
            others = f"{plural(self.others, 'other trial')} came from {ways}"
            return f"{self.same} suggestions, all equal" + (f"; {others}" if self.others else "")
        lines = [f"{self.same} suggestions are equal; trial {found.trial} differs:"]
        recorded, again = found.recorded or {}, found.again or {}
        for name in dict.fromkeys((*recorded, *again)):
            left = repr(recorded[name]) if name in recorded else "-"
            right = repr(again[name]) if name in again else "-"
            mark = "  " if left == right else "* "
            lines.append(f"  {mark}{name}: {left} in the study, {right} now")
        for who, params in (("the study", found.recorded), ("now", found.again)):
            if params is None:
                lines.append(f"  {who}: no suggestion, the search was exhausted")
        return "\n".join(lines)


def replay(
    directory: StudyDirectory,
    make_sampler: Callable[[SearchSpace], Sampler] | None = None,
) -> Replayed:
    """Feed the study's events to a fresh engine, and the engine's requests to fresh samplers.

    The engine gets the suggestions of the ledger, even where others came out. Neither the model
    file nor an earlier study of a warm start is needed. A study that still runs is compared up to
    its last event.

    Args:
        directory: Where the study is.
        make_sampler: Makes the sampler instead of the study's settings; for tests.

    Raises:
        NoStudyError: There is no study.
        UsageError: Others may have written it, and it may name plug-ins, which are loaded.
    """
    reader = LedgerReader(directory.open(Use.RUN))
    facts = reader.facts()
    settings = read_settings(directory, facts)
    search = _Search(make_sampler or _maker(settings, facts), Engine(pruner_maker(settings)))
    same = 0
    for event in reader.events():
        if isinstance(event, StudyOpened):
            search.begin(event)
        elif isinstance(event, Suggested):
            recorded = [suggestion.params for suggestion in event.suggestions]
            again = search.answer(event.first_number)
            for i in range(max(len(recorded), len(again))):
                pair = [each[i] if i < len(each) else None for each in (recorded, again)]
                if _canonical(pair[0]) != _canonical(pair[1]):
                    return Replayed(same, Difference(event.first_number + i, *pair))
                same += 1
        with replay_errors(directory):
            commands = search.engine.handle(event)
        for command in commands:
            search.carry_out(command)
    return Replayed(same, None, others=len(tuple(search.engine.trials)) - same)


class _Search:
    """The part of the loop that carries out the engine's commands about suggestions."""

    def __init__(self, make_sampler: Callable[[SearchSpace], Sampler], engine: Engine) -> None:
        self.engine = engine
        self._make_sampler = make_sampler
        self._space = SearchSpace()
        self._sampler: InformedSampler | None = None
        self._answers: dict[int, list[Params]] = {}

    def begin(self, opened: StudyOpened) -> None:
        self._space = SearchSpace.from_json(opened.space)
        self._sampler = InformedSampler(self._make_sampler, self._space, self.engine.trials)
        self._answers = {}

    def answer(self, first_number: int) -> list[Params]:
        """Return what the sampler suggested for this trial number and those after it."""
        return self._answers.get(first_number, [])

    def carry_out(self, command: Command) -> None:
        if self._sampler is None:
            return
        match command:
            case Ask(numbers=numbers):
                found = self._sampler.ask(numbers)
                self._answers = {numbers[0]: [suggestion.params for suggestion in found]}
            case Tell(trial=trial):
                self._sampler.tell(trial)
            case GrowSpace(declared=declared):
                try:
                    grown = self._space.extended(declared)
                except SpaceError:
                    return
                if grown != self._space:
                    self._space = grown
                    self._sampler.grow(grown)
            case _:
                pass


def _maker(settings: StudySettings, facts: StudyFacts) -> Callable[[SearchSpace], Sampler]:
    return sampler_maker(
        find_sampler(settings),
        settings,
        goals=goals_of(facts),
        seed=operator.index(facts["seed"]),
        studies=tuple(map(EarlierStudy.from_json, facts["warm_start"])),
    )


def _canonical(params: Params | None) -> str:
    """Return a text that is equal for equal configurations only: 1, 1.0 and True all differ."""
    return repr(None if params is None else sorted(params.items()))
