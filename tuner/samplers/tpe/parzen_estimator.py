"""Parzen estimators over the columns of a space: what TPE models good and bad trials with.

A density is a mixture of kernels, one for each trial, and of the even distribution over the space
(Watanabe 2023, "Tree-structured Parzen estimator", arXiv:2304.11127, eq. 8 and section 3.3). Each
kernel is a product over the columns (Falkner et al. 2018, "BOHB", eq. 3; the multivariate kernel
of Watanabe's eq. 9), so that the mixture knows which values go together:

- positions in [0, 1]: a normal density, cut off at both ends;
- ordered values: the same density at the values' places, made to sum to 1;
- unordered values: the trial's own value with a higher probability than the others
  (Aitchison and Aitken 1976; with the weights of Watanabe's section 3.3.2).

A trial in which a parameter was not active says nothing about its values: there its kernel is
even. So a child is modelled from the trials in which it was active, and from no others.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..common.encoding import Booleans, Column, Encoding, Floats, Integers

_EVEN_VARIANCE = 1.0 / 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothing:
    """How far a kernel reaches. Widths are parts of a parameter's range.

    Attributes:
        magnitude: The width of one trial's kernel where trials are spread evenly.
        full_reach: In spaces of so many parameters or more. In those of fewer, kernels over
            positions are narrower, by the root of the share: there trials soon lie close enough
            for more to be seen between them.
        adaptation: How much the width follows the spread of the trials: 0 not at all, 1 in
            proportion (Scott's rule).
        listed_adaptation: The same for ordered values.
        floor: The least width for positions. Without one, a few good trials that happen to be
            close together hold the search there for ever.
        listed_floor: The least width for ordered values. They need more: where neighbours are
            few, a narrow kernel only repeats what is known.
        grain_floor: The least width in distances of neighbouring values.
        unordered: How many times one trial's share the other values of an unordered parameter
            get, all together a share that falls with the number of trials.
        prior: How many trials the even distribution counts for.
    """

    magnitude: float = 0.2
    full_reach: int = 7
    adaptation: float = 0.75
    listed_adaptation: float = 0.5
    floor: float = 0.02
    listed_floor: float = 0.15
    grain_floor: float = 0.5
    unordered: float = 1.0
    prior: float = 1.0


class ParzenEstimator:
    """A mixture of kernels around rows.

    Args:
        encoding: The columns.
        rows: One trial each; NaN where a parameter was not active.
        weights: What each trial counts, above 0.
        smoothing: How far the kernels reach.
    """

    def __init__(
        self, encoding: Encoding, rows: Floats, weights: Floats, smoothing: Smoothing
    ) -> None:
        self._encoding = encoding
        # A row of NaN is the even distribution.
        self._rows = np.vstack([rows, np.full((1, len(encoding)), np.nan)])
        prior = smoothing.prior * (weights.mean() if len(weights) else 1.0)
        self._weights = np.append(weights, prior)
        self._weights /= self._weights.sum()
        self._smoothing = smoothing
        self._count = len(rows) + smoothing.prior
        self._moving = sum(column.count != 1 for column in encoding.columns)
        self._shrinkage = math.pow(self._count, -1.0 / (4 + self._moving))
        self._positions = np.flatnonzero([column.values is None for column in encoding.columns])
        self._widths = np.array([self._width(int(i), encoding.columns[i]) for i in self._positions])
        listed = [i for i, column in enumerate(encoding.columns) if column.count > 1]
        self._places = {i: _places(self._rows[:, i], encoding.columns[i]) for i in listed}
        self._tables = {i: self._table(i) for i in listed if encoding.columns[i].ordered}

    # --- drawing ------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw full rows; numbers of inactive parameters are drawn as well, and mean nothing.

        A position that falls outside [0, 1] is set to the end: the best value is often the
        first or the last that is allowed.
        """
        which = rng.choice(len(self._rows), size=count, p=self._weights)
        even = rng.random((count, len(self._encoding)))
        drawn = np.zeros_like(even)
        centres = self._rows[which][:, self._positions]
        moved = centres + rng.standard_normal(centres.shape) * self._widths
        drawn[:, self._positions] = np.where(
            np.isnan(moved), even[:, self._positions], np.clip(moved, 0.0, 1.0)
        )
        stays = rng.random(even.shape)
        for i, places in self._places.items():
            count_values = self._encoding.columns[i].count
            centre = places[which]
            if i in self._tables:
                cumulated = np.cumsum(self._tables[i], axis=0)[:-1, centre]
                drawn[:, i] = (even[:, i] > cumulated).sum(axis=0)
            else:
                stay = (stays[:, i] < self._own_share(count_values)) & (centre < count_values)
                shares = self._encoding.columns[i].shares
                elsewhere = np.floor(even[:, i] * count_values)
                unknown = np.searchsorted(np.cumsum(shares)[:-1], even[:, i], side="right")
                elsewhere = np.where(centre < count_values, elsewhere, unknown)
                drawn[:, i] = np.where(stay, centre, elsewhere)
        return drawn

    # --- weighing -----------------------------------------------------------------------------

    def log(self, rows: Floats, active: Booleans) -> Floats:
        """The logarithm of the density at each row, over its active parameters only.

        Args:
            rows: Full rows, as `sample` draws them.
            active: Which of their numbers count.
        """
        terms = self._log_positions(rows, active) + np.log(self._weights)
        for i, places in self._places.items():
            numbers = np.where(active[:, i], rows[:, i], 0.0).astype(np.intp)
            logs = self._log_listed(i, numbers, places)
            terms += logs if active[:, i].all() else logs * active[:, i, None]
        top = terms.max(axis=1)
        found: Floats = top + np.log(np.exp(terms - top[:, None]).sum(axis=1))
        return found

    def _log_positions(self, rows: Floats, active: Booleans) -> Floats:
        """The kernels' logarithms over positions, as products of matrices.

        -(x - m)**2 / 2s**2 is taken apart into x**2, x m and m**2, so that nothing of the size
        rows x trials x parameters is ever made.
        """
        known, precision, constants = self._kernels
        counted = active[:, self._positions].astype(np.float64)
        x = rows[:, self._positions] * counted
        centres = np.where(known > 0, self._rows[:, self._positions], 0.0)
        found: Floats = (
            (-0.5 * x * x * precision) @ known.T
            + x @ (centres * precision).T
            + counted @ (constants - 0.5 * centres * centres * precision).T
        )
        return found

    @cached_property
    def _kernels(self) -> tuple[Floats, Floats, Floats]:
        """Which kernels know which positions, their precision, and the logs of their values."""
        centres = self._rows[:, self._positions]
        known = ~np.isnan(centres)
        centres = np.where(known, centres, 0.5)
        inside = normal_cdf((1.0 - centres) / self._widths) - normal_cdf(-centres / self._widths)
        values = -np.log(inside * self._widths * math.sqrt(2 * math.pi))
        return known.astype(np.float64), self._widths**-2, np.where(known, values, 0.0)

    def _log_listed(self, index: int, numbers: Integers, places: Integers) -> Floats:
        """The kernels' logarithms at values of one column: those asked for by those of trials."""
        if index in self._tables:
            ordered: Floats = np.log(self._tables[index])[:, places][numbers]
            return ordered
        column = self._encoding.columns[index]
        count = column.count
        own = self._own_share(count)
        same, other = math.log(own + (1.0 - own) / count), math.log((1.0 - own) / count)
        logs = np.where(numbers[:, None] == places, same, other)
        logs[:, places == count] = np.log(column.shares)[numbers][:, None]
        return logs

    # --- widths -------------------------------------------------------------------------------

    def _width(self, index: int, column: Column) -> float:
        """The kernels' width: Scott's rule (n to the power of -1 / (d + 4)), with a floor."""
        smoothing = self._smoothing
        spread = math.sqrt(self._variance(index, column) / _EVEN_VARIANCE)
        reach = smoothing.magnitude * self._shrinkage
        if column.values is None:
            floor, adaptation = smoothing.floor, smoothing.adaptation
            reach *= math.sqrt(min(1.0, self._moving / smoothing.full_reach))
        else:
            floor, adaptation = smoothing.listed_floor, smoothing.listed_adaptation
        width = reach * math.pow(spread, adaptation)
        return min(max(width, floor, smoothing.grain_floor * column.grain), 1.0)

    def _variance(self, index: int, column: Column) -> float:
        """The variance of the mixture's centres, the even distribution included."""
        numbers = self._rows[:, index]
        known = ~np.isnan(numbers)
        centres = numbers[known]
        if column.values is not None:
            centres = column.centres[centres.astype(np.intp)]
        weights = self._weights[known]
        prior = self._weights[-1]
        total = weights.sum() + prior
        mean = (weights @ centres + prior * 0.5) / total
        squares = weights @ (centres - mean) ** 2 + prior * ((0.5 - mean) ** 2 + _EVEN_VARIANCE)
        return float(squares / total)

    def _table(self, index: int) -> Floats:
        """Probability of each value (down) given a trial's value (across); last, given none."""
        column = self._encoding.columns[index]
        distances = (column.centres[:, None] - column.centres) / self._width(index, column)
        table = np.hstack([np.exp(-0.5 * distances**2), column.shares[:, None]])
        found: Floats = table / table.sum(axis=0)
        return found

    def _own_share(self, values: int) -> float:
        """How often a kernel over this many unordered values gives the trial's own; else any."""
        return 1.0 / (1.0 + self._smoothing.unordered * values / self._count)


def _places(numbers: Floats, column: Column) -> Integers:
    return np.where(np.isnan(numbers), column.count, numbers).astype(np.intp)


def normal_cdf(x: Floats) -> Floats:
    """The standard normal distribution function, within 1.5e-7.

    Abramowitz and Stegun 1964, formula 7.1.26.

    >>> normal_cdf(np.array([-1.96, 0.0, 1.96])).round(3).tolist()
    [0.025, 0.5, 0.975]
    """
    z = np.abs(x) * math.sqrt(0.5)
    t = 1.0 / (1.0 + 0.3275911 * z)
    series = np.full_like(t, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + coefficient
    upper = 0.5 * series * t * np.exp(-z * z)
    found: Floats = np.where(x < 0, upper, 1.0 - upper)
    return found
