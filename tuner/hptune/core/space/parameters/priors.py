"""Priors: where on a parameter's scale the user expects good values."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

EVEN_SHARE = 0.2
"""Part of the unit interval that stays uniform over the whole range.

A wrong prior costs a search at most this factor: 0.2 means five times as many trials.
"""

_LEAST_MASS = 1e-9
"""Mass within the bounds below which a prior is refused."""


@dataclass(frozen=True, slots=True)
class Prior:
    """A piecewise uniform density on [0, 1], mixed with a uniform one (`EVEN_SHARE`).

    The interval is divided into cells of equal length, one for each weight. `quantile` maps uniform
    draws to the density, `cdf` is its inverse. The uniform part keeps the search going in the whole
    range.

    >>> prior = Prior((0.0, 3.0, 1.0))
    >>> [round(prior.quantile(prior.cdf(t)), 9) for t in (0.0, 0.1, 0.5, 1.0)]
    [0.0, 0.1, 0.5, 1.0]
    >>> prior.quantile(0.5) > 0.5 > prior.cdf(0.5)
    True

    Args:
        weights: The weight of each cell, in any unit; at least one is above 0.
    """

    weights: tuple[float, ...]
    _sums: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        total, count = sum(self.weights), len(self.weights)
        masses = ((1 - EVEN_SHARE) * weight / total + EVEN_SHARE / count for weight in self.weights)
        sums = (0.0, *itertools.accumulate(masses))
        object.__setattr__(self, "_sums", (*sums[:-1], 1.0))

    def quantile(self, u: float) -> float:
        """Return the point in [0, 1] below which the part `u` of the density lies."""
        u = min(max(u, 0.0), 1.0)
        cell = min(bisect.bisect_right(self._sums, u), len(self.weights)) - 1
        low, high = self._sums[cell], self._sums[cell + 1]
        return (cell + (u - low) / (high - low)) / len(self.weights)

    def cdf(self, point: float) -> float:
        """Return the part of the density below this point; the inverse of `quantile`."""
        scaled = min(max(point, 0.0), 1.0) * len(self.weights)
        cell = min(math.floor(scaled), len(self.weights) - 1)
        low, high = self._sums[cell], self._sums[cell + 1]
        return low + (scaled - cell) * (high - low)


def prior_of_cells(edges: Sequence[float], cdf: Callable[[float], float]) -> Prior | None:
    """Return the prior of the cells between these edges, given a cumulative distribution.

    Returns:
        None if almost nothing of the distribution lies within.
    """
    weights = tuple(abs(cdf(b) - cdf(a)) for a, b in itertools.pairwise(edges))
    return Prior(weights) if sum(weights) > _LEAST_MASS else None


def apply_prior(u: float, prior: Prior | None) -> float:
    """Return `Prior.quantile`, or `u` itself without a prior."""
    return u if prior is None else prior.quantile(u)


def undo_prior(point: float, prior: Prior | None) -> float:
    """Return `Prior.cdf`, or `point` itself without a prior."""
    return point if prior is None else prior.cdf(point)


def normal(mean: float, deviation: float) -> Callable[[float], float]:
    """Return the cumulative distribution function of a normal distribution."""
    return lambda value: 0.5 * math.erfc((mean - value) / (deviation * math.sqrt(2.0)))


def lognormal(median: float, deviation: float) -> Callable[[float], float]:
    """Return the cumulative distribution function of a log-normal distribution.

    `deviation` is that of the natural logarithm: at 0.5, two thirds lie within a factor of 1.65.
    """
    below = normal(math.log(median), deviation)
    return lambda value: below(math.log(value)) if value > 0.0 else 0.0
