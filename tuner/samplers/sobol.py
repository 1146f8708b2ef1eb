"""Sobol search: points that fill the space evenly, whenever one stops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..core.sampler import Sampler
from ..core.seeds import Purpose, generator
from ..core.space.space import SearchSpace
from ..core.trial import Params, Suggestion, Trial
from .common.encoding import Encoding, Floats
from .common.untried import Untried

_POINTS_AHEAD = 64


class SobolSampler(Sampler):
    """Goes through a scrambled Sobol sequence, one coordinate for each declaration.

    The trial with number n takes the n-th point, each coordinate read on its parameter's own
    scale; those of inactive parameters are passed over. Where its configuration was tried
    already, as happens among few values, the next points come instead, and if they were all
    tried too, an untried configuration at random.

    Args:
        space: What to search.
        seed: The study's seed.
    """

    def __init__(self, space: SearchSpace, seed: int) -> None:
        self._seed = seed
        self._encoding = Encoding(space)
        self._points = _Sobol(len(self._encoding), seed)
        self._untried = Untried(space)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """One configuration for each number; fewer once all are tried."""
        return self._untried.suggest(
            numbers,
            self._seed,
            "sobol",
            lambda number, _, pending: self._untried.first_untried(self._from(number), pending),
        )

    def tell(self, trial: Trial) -> None:
        """Remember that this configuration is tried."""
        self._untried.mark_tried(trial)

    def _from(self, number: int) -> Iterator[Params]:
        free = np.full(len(self._encoding), np.nan)
        for each in range(number, number + _POINTS_AHEAD):
            yield self._encoding.decode(free, self._points.point(each))


class _Sobol:
    """The sequence (Sobol 1967), with Matousek's scrambling and a digital shift, as in scipy.

    Args:
        dimensions: How many coordinates a point has.
        seed: The study's seed.
    """

    def __init__(self, dimensions: int, seed: int) -> None:
        self._dimensions = dimensions
        self._seed = seed
        self._known: Floats = np.empty((0 if dimensions else 1, dimensions))

    def point(self, number: int) -> Floats:
        """The point with this number, from 0; each coordinate is at least 0 and below 1."""
        if self._dimensions and number >= len(self._known):
            from scipy.stats.qmc import Sobol

            rng = generator(self._seed, Purpose.SUGGESTION, 0, 2)
            # The sequence is balanced after powers of two only.
            self._known = Sobol(self._dimensions, rng=rng).random(1 << number.bit_length())
        found: Floats = self._known[number if self._dimensions else 0]
        return found
