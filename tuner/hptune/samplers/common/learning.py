"""What all samplers have that learn a model from the values of trials."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

import numpy as np

from ...core.sampler import Sampler
from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Suggestion, Trial
from .encoding import Encoding, Floats
from .initial_design import InitialDesign
from .kernel_features import KernelFeatures
from .observations import History, Observations
from .one_thread import one_thread
from .success import success_model
from .untried import Keyed, Untried

_DESIGN_CHOICES = 8
"""Points of the initial design that are compared once a trial failed."""
_DESIGN_STRIDE = 1_009
"""Distance of their numbers: a prime, since points whose numbers differ by a multiple of a base are
close together in its coordinate."""


class LearningSampler(Sampler, abc.ABC):
    """A sampler with an initial design, and then with a model of the trials that it was told.

    Args:
        space: The search space.
        seed: The study's seed.
        directions: Directions of the objectives.
    """

    def __init__(self, space: SearchSpace, seed: int, *, directions: Sequence[Direction]) -> None:
        self._seed = seed
        self._encoding = Encoding(space)
        self._untried = Untried(space)
        self._kernel_features = KernelFeatures(self._encoding)
        self._start = InitialDesign(self._encoding, seed, self._untried)
        self._history = History(self._encoding, directions=directions)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return a configuration for each number; those before it count as running."""
        seen = self._history.observations()
        # What is learned from failures takes SciPy, which a study without them need not load.
        with one_thread() if seen.failed else contextlib.nullcontext():
            return self._suggestions(numbers, seen)

    @abc.abstractmethod
    def _suggestions(self, numbers: Sequence[int], seen: Observations) -> list[Suggestion]:
        """Return a configuration for each number, learned from these observations."""

    def tell(self, trial: Trial) -> None:
        """Add a trial, or update it."""
        self._untried.mark_tried(trial)
        self._history.tell(trial)

    def _initial(self, numbers: Sequence[int], seen: Observations, origin: str) -> list[Suggestion]:
        """Return suggestions of the initial design; after failures, those that likely succeed."""
        success = success_model(seen, self._kernel_features, caution=1.0)
        if success is None:
            return self._untried.suggest(numbers, self._seed, origin, self._start.propose)

        def losses(rows: Floats) -> Floats:
            return -success.log_factor(self._kernel_features.of_observed(rows))

        def likely(
            number: int, rng: np.random.Generator, pending: Mapping[Hashable, Params]
        ) -> Keyed | None:
            points = range(number, number + _DESIGN_CHOICES * _DESIGN_STRIDE, _DESIGN_STRIDE)
            return self._best([self._start.propose(each, rng, pending) for each in points], losses)

        return self._untried.suggest(numbers, self._seed, origin, likely)

    def _best_fresh(
        self,
        rng: np.random.Generator,
        pending: Mapping[Hashable, Params],
        *,
        draws: int,
        losses: Callable[[Floats], Floats],
    ) -> Keyed | None:
        """Return the best of some untried configurations, for when all candidates were tried.

        Args:
            rng: Draws them.
            pending: Configurations that count as tried.
            draws: How many are compared.
            losses: Returns a loss for each of their rows; lower is better.

        Returns:
            It with its key; None if none is left.
        """
        # Where few are left, random draws rarely meet one.
        is_infinite = self._untried.is_infinite
        draw = self._untried.draw if is_infinite else self._untried.draw_uniformly
        return self._best([draw(rng, pending) for _ in range(draws)], losses)

    def _best(
        self, proposed: Iterable[Keyed | None], losses: Callable[[Floats], Floats]
    ) -> Keyed | None:
        known = [each for each in proposed if each is not None]
        if not known:
            return None
        rows = self._encoding.rows(params for _, params in known)
        return known[int(np.argmin(losses(rows)))]
