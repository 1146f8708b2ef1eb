"""Reduction of several objectives to one loss for model-based samplers."""

from __future__ import annotations

import numpy as np

from .encoding import Floats, Integers


def pareto_losses(costs: Floats) -> Floats:
    """Return one loss for each result; lower is better.

    The integer part is the result's nondomination rank (0 for the Pareto front, 1 for the front
    without the first one, …), as in MOTPE (Ozaki et al. 2020, "Multiobjective tree-structured
    Parzen estimator for computationally expensive optimization problems"). The fraction orders a
    front by decreasing crowding distance (NSGA-II, Deb et al. 2002, section III-B). MOTPE takes
    the hypervolume contribution; the crowding distance is cheaper, needs no reference point and
    does not depend on the objectives' scales.

    >>> pareto_losses(np.array([[0.0, 3.0], [1.0, 1.0], [3.0, 0.0], [2.0, 2.0]])).round(2).tolist()
    [0.0, 0.67, 0.33, 1.0]

    Args:
        costs: The objectives' values (results x objectives), finite; lower is better.
    """
    losses = np.zeros(len(costs))
    for rank, front in enumerate(_fronts(costs)):
        order = np.argsort(-_crowding(costs[front]), kind="stable")
        losses[front[order]] = rank + np.arange(len(front)) / len(front)
    return losses


def _fronts(costs: Floats) -> list[Integers]:
    """Sort into fronts by efficient nondominated sorting (Zhang et al. 2015, ENS-BS).

    In lexicographic order no later result dominates an earlier one.
    """
    fronts: list[list[int]] = []
    for i in np.lexsort(costs.T[::-1]).tolist():
        lowest, highest = 0, len(fronts)
        while lowest < highest:
            middle = (lowest + highest) // 2
            others = costs[fronts[middle]]
            as_good, better = others <= costs[i], others < costs[i]
            if (as_good.all(axis=1) & better.any(axis=1)).any():
                lowest = middle + 1
            else:
                highest = middle
        if lowest == len(fronts):
            fronts.append([])
        fronts[lowest].append(i)
    return [np.array(sorted(front), dtype=np.intp) for front in fronts]


def _crowding(costs: Floats) -> Floats:
    """Return the distances of each result's neighbours, summed over the objectives.

    They are infinite at the ends.
    """
    distances = np.zeros(len(costs))
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        spread = ordered[-1] - ordered[0]
        distances[order[[0, -1]]] = np.inf
        if spread > 0:
            distances[order[1:-1]] += (ordered[2:] - ordered[:-2]) / spread
    return distances
