"""Where a search begins while there is nothing to learn from."""

from __future__ import annotations

import numpy as np

from ..core.seeds import Purpose, generator
from ..core.trial import Params
from .axes import Axes
from .halton import Halton


class Start:
    """The first configurations of a search that learns: a scrambled Halton sequence.

    Args:
        axes: The columns of the space.
        seed: The study's seed.
    """

    def __init__(self, axes: Axes, seed: int) -> None:
        self._axes = axes
        self._points = Halton(len(axes), generator(seed, Purpose.SUGGESTION, 0, 1))

    def params(self, number: int) -> Params:
        """The configuration for the trial with this number."""
        nowhere = np.full(len(self._axes), np.nan)
        return self._axes.decode(nowhere, self._points.point(number))
