"""Untried configurations of a space, also when few are left."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ...core.seeds import generator
from ...core.space.enumeration import Configurations
from ...core.space.space import SearchSpace
from ...core.trial import Params, Suggestion, Trial

if TYPE_CHECKING:
    import numpy as np

_DRAWS = 64
"""Random draws before the remaining configurations are enumerated."""
_IRRATIONAL = 2.0**0.5
"""The fractional parts of its multiples are evenly distributed for any number of trials."""
Keyed = tuple[Hashable, Params]
"""A configuration with its key (`SearchSpace.key`)."""
Proposer = Callable[[int, "np.random.Generator", Mapping[Hashable, Params]], Keyed | None]
"""Proposes for a trial number. The mapping holds the suggestions for the numbers before it."""


class Untried:
    """The untried configurations of a space.

    The time for a suggestion does not grow with the number of trials. A finite space is
    enumerated only when half of it is tried, so that the list is not longer than the history.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._all: Configurations | None = space.configurations()
        self._tried: set[Hashable] = set()
        self._tried_inside = 0
        self._left: list[int] | None = None  # untried indices of `_all`, ascending
        self._number_of: dict[Hashable, int] = {}

    @property
    def is_infinite(self) -> bool:
        """Whether the space is infinite."""
        return self._all is None

    def mark_tried(self, trial: Trial) -> None:
        """Mark a trial's configuration as tried; it may lie outside the space or repeat.

        Trials of earlier studies (numbers below 0) do not count as tried.
        """
        if trial.number < 0:
            return
        params = trial.params
        key = self._space.key(params)
        if key in self._tried:
            return
        self._tried.add(key)
        if self._all is None or not self._space.contains(self._space.canonical(params)):
            return
        self._tried_inside += 1
        number = self._number_of.pop(key, None)
        if self._left is not None and number is not None:
            del self._left[bisect.bisect_left(self._left, number)]

    def suggest(
        self,
        numbers: Sequence[int],
        seed: int,
        origin: str,
        propose: Proposer | None = None,
        *,
        random_share: float = 0.0,
    ) -> list[Suggestion]:
        """Return an untried configuration for each of these trial numbers.

        Args:
            numbers: The trial numbers.
            seed: The study's seed, which seeds each proposal together with the trial number.
            origin: Origin of the suggestions.
            propose: Returns an untried configuration, or None to have one drawn at random.
            random_share: Share of the numbers for which one is always drawn at random. The
                origin of these says so.

        Returns:
            One suggestion for each number, in order; fewer if no configurations are left.
        """
        pending: dict[Hashable, Params] = {}
        suggestions = []
        for number in numbers:
            rng = generator(seed, number)
            is_random = number * _IRRATIONAL % 1.0 < random_share
            found = None if propose is None or is_random else propose(number, rng, pending)
            found = found or self.draw(rng, pending)
            if found is None:
                break
            key, params = found
            pending[key] = params
            suggestions.append(Suggestion(params, f"{origin} (random)" if is_random else origin))
        return suggestions

    def first_untried(
        self, configurations: Iterable[Params], pending: Collection[Hashable]
    ) -> Keyed | None:
        """Return the first untried one of these with its key; None if there is none.

        Args:
            configurations: The candidates, evaluated lazily.
            pending: Keys of further configurations that count as tried.
        """
        for params in configurations:
            key = self._space.key(params)
            if key not in pending and key not in self._tried:
                return key, params
        return None

    def draw(self, rng: np.random.Generator, pending: Collection[Hashable]) -> Keyed | None:
        """Return a random untried configuration with its key; None if none is left.

        Each parameter is drawn uniformly on its own scale. A configuration that was tried is
        drawn again, `_DRAWS` times at most. Then the choice is uniform among all that are left;
        in an infinite space, where that is almost impossible, a repetition is accepted.
        """
        found = self.first_untried((self._space.sample(rng) for _ in range(_DRAWS)), pending)
        if found is not None:
            return found
        if not self.is_infinite:
            return self.draw_uniformly(rng, pending)
        params = self._space.sample(rng)
        return self._space.key(params), params

    def draw_uniformly(
        self, rng: np.random.Generator, pending: Collection[Hashable]
    ) -> Keyed | None:
        """Return an untried configuration with its key, uniformly chosen from a finite space.

        Returns:
            None if none is left, or if the space is infinite.
        """
        if self._all is None:
            return None
        while 2 * (self._tried_inside + len(pending)) < self._all.count:
            drawn = self._all.at(int(rng.integers(self._all.count)))
            if (found := self.first_untried([drawn], pending)) is not None:
                return found
        left = self._listed(self._all)
        # Skipping the few pending ones by rank keeps the choice uniform.
        blocked = sorted(self._number_of[key] for key in pending if key in self._number_of)
        if len(blocked) == len(left):
            return None
        rank = int(rng.integers(len(left) - len(blocked)))
        for number in blocked:
            if left[rank] >= number:
                rank += 1
        params = self._all.at(left[rank])
        return self._space.key(params), params

    def _listed(self, every: Configurations) -> list[int]:
        if self._left is None:
            self._left = []
            for number, params in enumerate(every):
                key = self._space.key(params)
                if key not in self._tried:
                    self._left.append(number)
                    self._number_of[key] = number
        return self._left
