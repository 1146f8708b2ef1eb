"""Prior beliefs: where on a parameter's scale good values are expected."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

EVEN_SHARE = 0.2
"""How much of a search's volume the prior leaves to the parameter's whole range."""

_LEAST_MASS = 1e-9


@dataclass(frozen=True, slots=True)
class Prior:
    """A bent ruler: moves [0, 1] so that what is evenly drawn falls where the prior expects it.

    The range is divided into cells of equal length; the prior says how likely each is, and within
    a cell all places are alike. A part of the volume stays spread over the whole range, so that
    a search goes on there as well, and a wrong prior costs it that factor and no more.

    >>> ruler = Prior((0.0, 3.0, 1.0))
    >>> [round(ruler.quantile(ruler.cdf(t)), 9) for t in (0.0, 0.1, 0.5, 1.0)]
    [0.0, 0.1, 0.5, 1.0]
    >>> ruler.quantile(0.5) > 0.5 > ruler.cdf(0.5)
    True

    Args:
        weights: How likely each cell is, in any unit; at least one is above 0.
    """

    weights: tuple[float, ...]
    _sums: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        total, count = sum(self.weights), len(self.weights)
        masses = ((1 - EVEN_SHARE) * each / total + EVEN_SHARE / count for each in self.weights)
        sums = (0.0, *itertools.accumulate(masses))
        object.__setattr__(self, "_sums", (*sums[:-1], 1.0))

    def quantile(self, u: float) -> float:
        """The place in [0, 1] below which the prior expects the part `u` of all good values."""
        u = min(max(u, 0.0), 1.0)
        cell = min(bisect.bisect_right(self._sums, u), len(self.weights)) - 1
        low, high = self._sums[cell], self._sums[cell + 1]
        return (cell + (u - low) / (high - low)) / len(self.weights)

    def cdf(self, place: float) -> float:
        """The part of all good values that is expected below this place; undoes `quantile`."""
        scaled = min(max(place, 0.0), 1.0) * len(self.weights)
        cell = min(math.floor(scaled), len(self.weights) - 1)
        low, high = self._sums[cell], self._sums[cell + 1]
        return low + (scaled - cell) * (high - low)


def between(edges: Sequence[float], below: Callable[[float], float]) -> Prior | None:
    """The prior of cells between these edges, given how much lies below a value.

    Returns:
        None if next to nothing lies within.
    """
    weights = tuple(abs(below(b) - below(a)) for a, b in itertools.pairwise(edges))
    return Prior(weights) if sum(weights) > _LEAST_MASS else None


def bent(u: float, prior: Prior | None) -> float:
    """`Prior.quantile`, where there is a prior."""
    return u if prior is None else prior.quantile(u)


def straightened(place: float, prior: Prior | None) -> float:
    """`Prior.cdf`, where there is a prior."""
    return place if prior is None else prior.cdf(place)


def normal(mean: float, deviation: float) -> Callable[[float], float]:
    """How much of a normal distribution lies below a value."""
    return lambda value: 0.5 * math.erfc((mean - value) / (deviation * math.sqrt(2.0)))


def lognormal(median: float, deviation: float) -> Callable[[float], float]:
    """How much of a log-normal distribution lies below a value.

    `deviation` is the natural logarithm's: 0.5 means that two thirds lie within a factor of 1.65.
    """
    below = normal(math.log(median), deviation)
    return lambda value: below(math.log(value)) if value > 0.0 else 0.0
