"""Replay of a study's search from its ledger, which compares every suggestion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass

from ..config.plugins import pruner_maker
from ..core.engine.engine import Engine
from ..core.messages import Ask, StudyOpened, Suggested
from ..core.sampler import Sampler
from ..core.space.space import SearchSpace
from ..core.trial import Params
from ..storage.directory import StudyDirectory
from ..storage.ledger import LedgerReader
from ..storage.whose import Use
from ..text import plural
from .followed_search import FollowedSearch, stored_sampler
from .past import read_settings, replay_errors


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
            "difference": None if found is None else asdict(found),
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
    engine = Engine(pruner_maker(settings))
    search = FollowedSearch(make_sampler or stored_sampler(settings, facts))
    answers: dict[int, list[Params]] = {}
    same = 0
    for event in reader.events():
        if isinstance(event, StudyOpened):
            search.begin(event, engine.results)
            answers = {}
        elif isinstance(event, Suggested):
            recorded = [suggestion.params for suggestion in event.suggestions]
            again = answers.get(event.first_number, [])
            for i in range(max(len(recorded), len(again))):
                pair = [each[i] if i < len(each) else None for each in (recorded, again)]
                if _canonical(pair[0]) != _canonical(pair[1]):
                    return Replayed(same, Difference(event.first_number + i, *pair))
                same += 1
        with replay_errors(directory):
            commands = engine.handle(event)
        for command in commands:
            if isinstance(command, Ask):
                found = search.ask(command.numbers)
                answers = {command.numbers[0]: [suggestion.params for suggestion in found]}
            else:
                search.carry_out(command)
    return Replayed(same, None, others=len(tuple(engine.trials)) - same)


def _canonical(params: Params | None) -> str:
    """Return a text that is equal for equal configurations only: 1, 1.0 and True all differ."""
    return repr(None if params is None else sorted(params.items()))
