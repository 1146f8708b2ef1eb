"""Where a search begins while there is nothing to learn from."""

from __future__ import annotations

from collections.abc import Collection, Hashable

import numpy as np

from ...core.seeds import Purpose, generator
from .encoding import Encoding
from .halton import Halton
from .untried import Keyed, Untried


class InitialDesign:
    """The first configurations of a search that learns: a scrambled Halton sequence.

    Args:
        encoding: The columns of the space.
        seed: The study's seed.
        untried: What is new.
    """

    def __init__(self, encoding: Encoding, seed: int, untried: Untried) -> None:
        self._encoding = encoding
        self._untried = untried
        self._points = Halton(len(encoding), generator(seed, Purpose.SUGGESTION, 0, 1))

    def propose(
        self, number: int, _: np.random.Generator, pending: Collection[Hashable]
    ) -> Keyed | None:
        """The configuration for the trial with this number, if it is new."""
        nowhere = np.full(len(self._encoding), np.nan)
        params = self._encoding.decode(nowhere, self._points.point(number))
        return self._untried.first_untried([params], pending)
