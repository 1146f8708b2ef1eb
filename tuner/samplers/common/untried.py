"""Configurations that were not tried before, however few are left."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence

import numpy as np

from ...core.seeds import Purpose, generator
from ...core.space.enumeration import Configurations
from ...core.space.space import SearchSpace
from ...core.trial import Params, Suggestion, Trial

_DRAWS = 64
_SPREAD = 2.0**0.5
"""Multiples of an irrational number are spread evenly over [0, 1), wherever one stops."""
Keyed = tuple[Hashable, Params]
"""A configuration behind its key (`SearchSpace.key`)."""
Proposer = Callable[[int, np.random.Generator, Mapping[Hashable, Params]], Keyed | None]
"""Proposes for a trial's number; the mapping holds what was just answered for those before it."""


class Untried:
    """The configurations of a space that are not tried yet.

    What it costs to ask does not grow with what was tried. A finite space is listed only once at
    least half of it is tried, so that the list is never longer than the history.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self._all: Configurations | None = space.configurations()
        self._tried: set[Hashable] = set()
        self._tried_inside = 0
        self._left: list[int] | None = None  # untried numbers of `_all`, ascending
        self._number_of: dict[Hashable, int] = {}

    @property
    def is_infinite(self) -> bool:
        """Whether the space is infinite."""
        return self._all is None

    def mark_tried(self, trial: Trial) -> None:
        """Take a trial's configuration for tried; it may lie outside the space, or come again.

        Trials of earlier studies (numbers below 0) are not tried in this one.
        """
        if trial.number < 0:
            return
        params = trial.params
        key = self._space.key(params)
        if key in self._tried:
            return
        self._tried.add(key)
        if self._all is None or not self._space.contains(params):
            return
        self._tried_inside += 1
        number = self._number_of.pop(key, None)
        if self._left is not None and number is not None:
            del self._left[bisect.bisect_left(self._left, number)]

    def is_tried(self, key: Hashable) -> bool:
        """Whether the configuration with this key is tried."""
        return key in self._tried

    def suggest(
        self,
        numbers: Sequence[int],
        seed: int,
        origin: str,
        propose: Proposer | None = None,
        *,
        random_share: float = 0.0,
    ) -> list[Suggestion]:
        """A sampler's answer: a new configuration for each of these trial numbers.

        Args:
            numbers: The trials' numbers.
            seed: The study's seed; with the trial's number it seeds each proposal.
            origin: Who proposes.
            propose: Gives a new configuration, or None to have one drawn at random.
            random_share: For which part of the numbers one is drawn at random in any case. The
                origin of these says so.

        Returns:
            One suggestion for each number, in order; fewer if no more configurations are left.
        """
        pending: dict[Hashable, Params] = {}
        suggestions = []
        for number in numbers:
            rng = generator(seed, Purpose.SUGGESTION, number)
            is_random = number * _SPREAD % 1.0 < random_share
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
        """The first of these that is new, with its key; None if there is none.

        Args:
            configurations: What to choose from; no more of it is worked out than needed.
            pending: Keys of configurations that are taken as well.
        """
        for params in configurations:
            key = self._space.key(params)
            if key not in pending and key not in self._tried:
                return key, params
        return None

    def draw(self, rng: np.random.Generator, pending: Collection[Hashable]) -> Keyed | None:
        """A random configuration with its key, each parameter drawn evenly on its own scale.

        A draw that is not new is repeated. If that does not help either, the choice is even among
        all that are left; in an infinite space, where a repetition is next to impossible, a draw
        is then taken as it comes.

        Returns:
            None if nothing is left.
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
        """One of the untried configurations of a finite space, each as likely as the others.

        Args:
            rng: Where the randomness comes from.
            pending: Keys of configurations that are taken as well.

        Returns:
            The configuration with its key; None if none is left, or if the space is infinite.
        """
        if self._all is None:
            return None
        while 2 * (self._tried_inside + len(pending)) < self._all.count:
            params = self._all.at(int(rng.integers(self._all.count)))
            key = self._space.key(params)
            if key not in pending and key not in self._tried:
                return key, params
        left = self._listed(self._all)
        # Pending ones are few; passing over them by rank keeps the choice even.
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
