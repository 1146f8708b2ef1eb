"""Reduction of several objectives to one loss for model-based samplers."""

from __future__ import annotations

import bisect

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
    if not len(costs):
        return []
    order = np.lexsort(costs.T[::-1])
    ranks = np.empty(len(costs), dtype=np.intp)
    ranks[order] = (_ranks_of_pairs if costs.shape[1] == 2 else _ranks)(costs[order])
    return np.split(np.argsort(ranks, kind="stable"), np.cumsum(np.bincount(ranks))[:-1])


def _ranks_of_pairs(ordered: Floats) -> list[int]:
    """Return each result's front; of two objectives, a front's last member decides alone."""
    lasts: list[tuple[float, float]] = []  # ascending
    ranks = []
    for first, second in ordered.tolist():
        rank = bisect.bisect_left(lasts, (second, first))
        lasts[rank : rank + 1] = [(second, first)]
        ranks.append(rank)
    return ranks


def _ranks(ordered: Floats) -> list[int]:
    """Return each result's front, for any number of objectives."""
    fronts: list[Floats] = []  # objectives x members, with room for more
    counts: list[int] = []
    ranks = []
    for costs in ordered:
        lowest, highest = 0, len(fronts)
        while lowest < highest:
            middle = (lowest + highest) // 2
            others = fronts[middle][:, : counts[middle]]
            as_good = others[1] <= costs[1]  # as they all are by the first objective
            for mine, theirs in zip(costs[2:], others[2:], strict=True):
                as_good &= theirs <= mine
            if as_good.any() and (others[:, as_good] < costs[:, None]).any():
                lowest = middle + 1
            else:
                highest = middle
        if lowest == len(fronts):
            fronts.append(np.empty((len(costs), 8)))
            counts.append(0)
        front, count = fronts[lowest], counts[lowest]
        if count == front.shape[1]:
            front = fronts[lowest] = np.concatenate([front, np.empty_like(front)], axis=1)
        front[:, count] = costs
        counts[lowest] += 1
        ranks.append(lowest)
    return ranks


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
