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
        axes: The columns of the space.
        seed: The study's seed.
        unseen: What is new.
    """

    def __init__(self, axes: Encoding, seed: int, unseen: Untried) -> None:
        self._axes = axes
        self._unseen = unseen
        self._points = Halton(len(axes), generator(seed, Purpose.SUGGESTION, 0, 1))

    def propose(
        self, number: int, _: np.random.Generator, pending: Collection[Hashable]
    ) -> Keyed | None:
        """The configuration for the trial with this number, if it is new."""
        nowhere = np.full(len(self._axes), np.nan)
        params = self._axes.decode(nowhere, self._points.point(number))
        return self._unseen.first([params], pending)
