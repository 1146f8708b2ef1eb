"""Sobol search: a low-discrepancy sequence over the space."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..core.sampler import Sampler
from ..core.seeds import generator
from ..core.space.space import SearchSpace
from ..core.trial import Direction, Params, Suggestion, Trial
from .common.encoding import Encoding, Floats
from .common.untried import Untried

_MAX_SKIPPED_POINTS = 64
"""Points tried for one suggestion if their configurations are repetitions; then one is drawn."""


class SobolSampler(Sampler):
    """Quasi-random search with a scrambled Sobol sequence, one coordinate for each declaration.

    Trial n takes the n-th point. Each coordinate is read on its parameter's scale; those of
    inactive parameters are ignored. If the configuration was tried already (likely in a small
    space), the following points are taken instead, and after these a random untried
    configuration.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        directions: Sequence[Direction] = (),  # noqa: ARG002 - it learns nothing from values
    ) -> None:
        self._seed = seed
        self._encoding = Encoding(space)
        self._untried = Untried(space)
        self._points: Floats = np.empty((0, len(self._encoding)))

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return an untried configuration for each number; fewer once all are tried."""
        return self._untried.suggest(
            numbers,
            self._seed,
            "sobol",
            lambda number, _, pending: self._untried.first_untried(self._from(number), pending),
        )

    def tell(self, trial: Trial) -> None:
        """Mark the trial's configuration as tried."""
        self._untried.mark_tried(trial)

    def _from(self, number: int) -> Iterator[Params]:
        free = np.full(len(self._encoding), np.nan)
        for each in range(number, number + _MAX_SKIPPED_POINTS):
            yield self._encoding.decode(free, self._point(each))

    def _point(self, number: int) -> Floats:
        """Return the point with this number, from 0; its coordinates lie in [0, 1).

        They are those of Sobol 1967 with Matousek's scrambling and a digital shift, from scipy.
        """
        dimensions = len(self._encoding)
        if not dimensions:
            return np.empty(0)
        if number >= len(self._points):
            from scipy.stats.qmc import Sobol

            rng = generator(self._seed, 0, 2)
            # Only a power of two of points is balanced.
            self._points = Sobol(dimensions, rng=rng).random(1 << number.bit_length())
        found: Floats = self._points[number]
        return found
