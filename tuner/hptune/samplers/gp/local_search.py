"""Local maximisation from many starting points at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy  # loads its parts when they are used: a study begins without them

from ..common.encoding import Floats

Objective = Callable[[Floats], tuple[Floats, Floats]]
"""Returns the values and gradients for the points in the rows of a matrix."""


def maximize(function: Objective, points: Floats, *, steps: int) -> tuple[Floats, Floats]:
    """Maximise a function in the unit cube from each starting point.

    L-BFGS-B climbs from all points together, on the sum of their values: one evaluation for all
    costs little more than for one. A point that ends below its start stays there.

    Args:
        function: The function and its gradient.
        points: The starting points (n x dimensions).
        steps: Number of evaluations besides those at the start and at the end.

    Returns:
        The final points and their values.
    """

    def loss(flat: Floats) -> tuple[float, Floats]:
        values, gradients = function(flat.reshape(points.shape))
        return -float(values.sum()), -gradients.ravel()

    before, _ = function(points)
    end = scipy.optimize.minimize(
        loss,
        points.ravel(),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, 1.0)] * points.size,
        options={"maxfun": steps, "maxiter": steps},
    )
    found = end.x.reshape(points.shape)
    after, _ = function(found)
    is_better = after > before
    return np.where(is_better[:, None], found, points), np.where(is_better, after, before)
