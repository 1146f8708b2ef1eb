"""Several objectives as one loss, by which model-based samplers can rank what they saw."""

from __future__ import annotations

import numpy as np

from .encoding import Floats, Integers


def pareto_losses(costs: Floats) -> Floats:
    """One number for each result, lower for better ones.

    Its whole part is the result's nondomination rank (0 for the Pareto front, 1 for the front of
    what is left, …), as in MOTPE (Ozaki et al. 2020, "Multiobjective tree-structured Parzen
    estimator for computationally expensive optimization problems"). Within a front those come
    first that have the most room around them: by the crowding distance of NSGA-II (Deb et al.
    2002, section III-B), where MOTPE takes the hypervolume that each adds. It costs less, needs
    no reference point, and does not change with the objectives' scales.

    >>> pareto_losses(np.array([[0.0, 3.0], [1.0, 1.0], [3.0, 0.0], [2.0, 2.0]])).round(2).tolist()
    [0.0, 0.67, 0.33, 1.0]

    Args:
        costs: The objectives' values (results x objectives), finite, lower for better ones.
    """
    losses = np.zeros(len(costs))
    for rank, front in enumerate(_fronts(costs)):
        order = np.argsort(-_crowding(costs[front]), kind="stable")
        losses[front[order]] = rank + np.arange(len(front)) / len(front)
    return losses


def _fronts(costs: Floats) -> list[Integers]:
    """Efficient nondominated sorting (Zhang et al. 2015, ENS-BS): no later one dominates."""
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
    """How far apart the neighbours of each are, objective by objective; the ends are infinite."""
    distances = np.zeros(len(costs))
    for column in costs.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        spread = ordered[-1] - ordered[0]
        distances[order[[0, -1]]] = np.inf
        if spread > 0:
            distances[order[1:-1]] += (ordered[2:] - ordered[:-2]) / spread
    return distances
