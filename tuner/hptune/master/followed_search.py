"""The search of a study as its events tell it, without the loop that carries them out."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Sequence

from ..config.objectives import goals_of
from ..config.plugins import find_sampler
from ..config.settings import StudySettings
from ..core.messages import Command, GrowSpace, StudyOpened, Tell
from ..core.sampler import Sampler
from ..core.space.earlier_study import EarlierStudy
from ..core.space.space import SearchSpace
from ..core.trial import Suggestion, Trial
from ..errors import SpaceError
from ..storage.ledger import StudyFacts
from .suggester import InformedSampler, sampler_maker


class FollowedSearch:
    """A sampler that is told what the engine says, from the study's first event on.

    Args:
        make_sampler: Makes a fresh sampler for a space.

    Attributes:
        space: The search space, with what trials have declared.
    """

    def __init__(self, make_sampler: Callable[[SearchSpace], Sampler]) -> None:
        self.space = SearchSpace()
        self._make_sampler = make_sampler
        self._sampler = InformedSampler(make_sampler, self.space, ())

    def begin(self, opened: StudyOpened, trials: Iterable[Trial]) -> None:
        """Begin with a new master, whose sampler knows the trials."""
        self.space = SearchSpace.from_json(opened.space)
        self._sampler = InformedSampler(self._make_sampler, self.space, trials)

    def ask(self, numbers: Sequence[int]) -> tuple[Suggestion, ...]:
        """Return the sampler's suggestions for these trial numbers."""
        return self._sampler.ask(numbers)

    def carry_out(self, command: Command) -> None:
        """Carry out a command if it is about the search."""
        match command:
            case Tell(trial=trial):
                self._sampler.tell(trial)
            case GrowSpace(declared=declared):
                with contextlib.suppress(SpaceError):  # the trial used its default
                    grown = self.space.extended(declared)
                    if grown != self.space:
                        self.space = grown
                        self._sampler.grow(grown)
            case _:
                pass


def stored_sampler(settings: StudySettings, facts: StudyFacts) -> Callable[[SearchSpace], Sampler]:
    """Return what makes the sampler of a stored study."""
    return sampler_maker(
        find_sampler(settings),
        settings,
        goals=goals_of(facts),
        seed=operator.index(facts["seed"]),
        studies=tuple(map(EarlierStudy.from_json, facts["warm_start"])),
    )
