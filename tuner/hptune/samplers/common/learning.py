"""What all samplers have that learn from the values of trials, and how they begin."""

from __future__ import annotations

import abc
import itertools
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

import numpy as np

from ...core.sampler import Sampler
from ...core.seeds import generator
from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Trial
from .encoding import Encoding, Floats
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
        self._halton = Halton(len(self._encoding), generator(seed, 0, 1))
        self._history = History(self._encoding, directions=directions)

    def tell(self, trial: Trial) -> None:
        """Add a trial, or update it."""
        self._untried.mark_tried(trial)
        self._history.tell(trial)

    def _start(
        self, number: int, _: np.random.Generator, pending: Collection[Hashable]
    ) -> Keyed | None:
        """Return the configuration with which the search begins; None if it was tried before."""
        unset = np.full(len(self._encoding), np.nan)
        params = self._encoding.decode(unset, self._halton.point(number))
        return self._untried.first_untried([params], pending)

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
        draw = self._untried.draw if self._untried.is_infinite else self._untried.draw_uniformly
        fresh = [each for _ in range(draws) if (each := draw(rng, pending)) is not None]
        if not fresh:
            return None
        rows = self._encoding.rows(params for _, params in fresh)
        return fresh[int(np.argmin(losses(rows)))]


_RESOLUTION = 1e-9
"""Digits below this part of the range are left out."""


# Not scipy.stats.qmc.Halton: importing it takes 1.1 s in the master of every default search.
class Halton:
    """Halton sequence with randomly permuted digits.

    Each coordinate is the radical inverse of the point's number in its own prime base (Halton
    1960). Permuting the digits removes the correlation between coordinates with large bases
    (Owen 2017, "A randomized Halton algorithm in R", arXiv:1706.02808).

    Args:
        dimensions: Number of coordinates of a point.
        rng: Source of the permutations.
    """

    def __init__(self, dimensions: int, rng: np.random.Generator) -> None:
        self._bases = list(itertools.islice(_primes(), dimensions))
        self._permutations = []
        for base in self._bases:
            digits = int(np.ceil(-np.log(_RESOLUTION) / np.log(base)))
            self._permutations.append([rng.permutation(base).tolist() for _ in range(digits)])

    def point(self, number: int) -> Floats:
        """Return the point with this number, from 0; its coordinates lie in [0, 1)."""
        return np.array(
            [
                _radical_inverse(number, base, permutations)
                for base, permutations in zip(self._bases, self._permutations, strict=True)
            ]
        )


def _radical_inverse(number: int, base: int, permutations: list[list[int]]) -> float:
    found, place = 0.0, 1.0
    for permutation in permutations:
        number, digit = divmod(number, base)
        place /= base
        found += permutation[digit] * place
    return found


def _primes() -> Iterator[int]:
    found: list[int] = []
    for number in itertools.count(2):
        if all(number % prime for prime in found):
            found.append(number)
            yield number
