"""Several objectives as one loss that a Gaussian process can learn."""

from __future__ import annotations

import numpy as np

from ..common.encoding import Floats
from ..common.initial_design import Halton
from ..common.pareto import pareto_losses
from .surrogate import limited, refit_interval

_SHARE_OF_SUM = 0.05
"""Weight of the sum of the costs beside the largest one (rho in ParEGO)."""
_MOST = 1e100
"""Largest scaled cost; a range on the front may be tiny."""


def weighted_losses(costs: Floats, turn: int) -> Floats:
    """Return the loss of each result, under the weights of a turn.

    The augmented Tchebycheff function of ParEGO (Knowles 2006, "ParEGO: a hybrid algorithm with
    on-line landscape approximation for expensive multiobjective optimization problems", eq. 2):
    the largest weighted cost, plus a small share of their sum. A rank by fronts is not smooth, and
    the ends of the front always are its best results, so that a model of ranks leads to the ends.
    Each choice of weights leads to another part of the front. Those of successive turns are spread
    evenly, and change as rarely as the kernel is fitted, since the fit is what takes time. As the
    fits become rarer with more trials, the same 16 choices recur from the 32nd trial on: new ones
    gave no gain (17 paired runs of 100 trials).

    Each objective is scaled by its range on the front found so far. ParEGO takes the range of all
    results, which depends on the worst ones.

    >>> int(weighted_losses(np.array([[0.0, 3.0], [1.0, 1.0], [3.0, 0.0], [4.0, 4.0]]), 5).argmin())
    1

    Args:
        costs: The objectives' values (results x objectives), finite; lower is better.
        turn: Number of the trial to be suggested.
    """
    if not len(costs):
        return np.zeros(0)
    costs = np.column_stack([limited(column) for column in costs.T])
    front = costs[pareto_losses(costs) < 1.0]
    ranges = np.ptp(front, axis=0)
    ranges = np.where(ranges > 0.0, ranges, np.ptp(costs, axis=0))
    with np.errstate(over="ignore"):
        scaled = (costs - front.min(axis=0)) / np.where(ranges > 0.0, ranges, 1.0)
    weighted = np.minimum(scaled, _MOST) * _weights(turn, costs.shape[1])
    found: Floats = weighted.max(axis=1) + _SHARE_OF_SUM * weighted.sum(axis=1)
    return found


def _weights(turn: int, objectives: int) -> Floats:
    sequence = Halton(objectives - 1, np.random.default_rng(0))
    cuts = np.sort(sequence.point(turn // refit_interval(turn)))
    found: Floats = np.diff(np.concatenate([[0.0], cuts, [1.0]]))
    return found
