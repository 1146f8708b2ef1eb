"""Where a search begins while there is nothing to learn from."""

from __future__ import annotations

import numpy as np

from ..core.seeds import Purpose, generator
from ..core.trial import Params
from .axes import Axes
from .halton import Halton


class Start:
    """The first configurations: what the space gives as defaults, then a scrambled Halton sequence.

    Args:
        axes: The columns of the space.
        seed: The study's seed.
    """

    def __init__(self, axes: Axes, seed: int) -> None:
        self._axes = axes
        self._points = Halton(len(axes), generator(seed, Purpose.SUGGESTION, 0, 1))

    def params(self, number: int) -> Params:
        """The configuration for the trial with this number."""
        row = np.full(len(self._axes), np.nan)
        if number:
            return self._axes.decode(row, self._points.point(number))
        for i, axis in enumerate(self._axes.columns):
            default, lowest = axis.parameter.default, axis.parameter.from_unit(0.0)
            # The lowest number is what a parameter has for a default if nobody gave one.
            if not axis.ordered or default != lowest:
                row[i] = axis.encode(default)
        return self._axes.decode(row, np.full(len(self._axes), 0.5))
