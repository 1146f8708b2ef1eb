"""What all samplers have that learn a model from the values of trials."""

from __future__ import annotations

import abc
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from ...core.sampler import Sampler
from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Trial
from .encoding import Encoding, Floats
from .initial_design import InitialDesign
from .observations import History
from .untried import Keyed, Untried


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
        self._start = InitialDesign(self._encoding, seed, self._untried)
        self._history = History(self._encoding, directions=directions)

    def tell(self, trial: Trial) -> None:
        """Add a trial, or update it."""
        self._untried.mark_tried(trial)
        self._history.tell(trial)

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
        drawn = [draw(rng, pending) for _ in range(draws)]
        fresh = [each for each in drawn if each is not None]
        if not fresh:
            return None
        rows = self._encoding.rows(params for _, params in fresh)
        return fresh[int(np.argmin(losses(rows)))]
