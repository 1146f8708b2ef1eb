"""Initial design of searches that learn from values."""

from __future__ import annotations

from collections.abc import Collection, Hashable

import numpy as np

from ...core.seeds import Purpose, generator
from .encoding import Encoding
from .halton import Halton
from .untried import Keyed, Untried


class InitialDesign:
    """The first configurations of a model-based search: a scrambled Halton sequence.

    Args:
        encoding: Encoding of the space.
        seed: The study's seed.
        untried: The untried configurations.
    """

    def __init__(self, encoding: Encoding, seed: int, untried: Untried) -> None:
        self._encoding = encoding
        self._untried = untried
        self._points = Halton(len(encoding), generator(seed, Purpose.SUGGESTION, 0, 1))

    def propose(
        self, number: int, _: np.random.Generator, pending: Collection[Hashable]
    ) -> Keyed | None:
        """Return the configuration for this trial number; None if it was tried before."""
        unset = np.full(len(self._encoding), np.nan)
        params = self._encoding.decode(unset, self._points.point(number))
        return self._untried.first_untried([params], pending)
