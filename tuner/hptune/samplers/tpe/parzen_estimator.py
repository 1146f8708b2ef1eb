"""Multivariate Parzen estimators, which model good and bad trials in TPE.

The density is a mixture of the uniform distribution over the space and a kernel for each trial
(Watanabe 2023, "Tree-structured Parzen estimator", arXiv:2304.11127, eq. 8 and section 3.3). Each
kernel is a product over the columns (Falkner et al. 2018, "BOHB", eq. 3; Watanabe's eq. 9), so
that the mixture models dependences between parameters:

- continuous columns: a normal density, truncated to [0, 1];
- ordered values: the same density at the values' positions, normalised;
- unordered values: a higher probability for the trial's own value than for the others
  (Aitchison and Aitken 1976, with the weights of Watanabe's section 3.3.2).

Where a parameter is inactive, the trial's kernel is uniform. So a conditional parameter is modelled
only from the trials in which it was active.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ..common.encoding import Booleans, Column, Encoding, Floats, Integers

_UNIFORM_VARIANCE = 1.0 / 12.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothing:
    """Bandwidths of the kernels, as parts of a parameter's range (benchmarks/search_quality.py).

    Attributes:
        magnitude: Width of a single trial's kernel if trials are spread uniformly.
        full_width_dimensions: Number of parameters from which on this width applies. With
            fewer parameters, kernels of continuous columns are narrower by the root of the
            ratio, because trials are soon close together there.
        adaptation: How much the width of continuous columns follows the spread of the trials: 0
            not at all, 1 in proportion (Scott's rule).
        listed_adaptation: The same for ordered values.
        floor: Minimum width in continuous columns. Without it, a few good trials that are close
            together by chance trap the search.
        listed_floor: Minimum width for ordered values. It is larger, because with few
            neighbours a narrow kernel only repeats tried values.
        grain_floor: Minimum width in distances of neighbouring values.
        unordered: Weight of the other values of an unordered parameter, relative to one trial.
            Their total probability falls with the number of trials.
        prior: Number of trials that the uniform distribution counts as.
    """

    magnitude: float = 0.2
    full_width_dimensions: int = 7
    adaptation: float = 0.75
    listed_adaptation: float = 0.5
    floor: float = 0.02
    listed_floor: float = 0.15
    grain_floor: float = 0.5
    unordered: float = 1.0
    prior: float = 1.0


_SMOOTHING = Smoothing()


class ParzenEstimator:
    """A mixture of kernels around trials.

    Args:
        encoding: Encoding of the space.
        rows: Rows of the trials; NaN for inactive parameters.
        weights: Weights of the trials, above 0.
        smoothing: Bandwidths of the kernels.
    """

    def __init__(
        self,
        encoding: Encoding,
        rows: Floats,
        weights: Floats,
        smoothing: Smoothing = _SMOOTHING,
    ) -> None:
        self._encoding = encoding
        # A row of NaN stands for the uniform distribution.
        self._rows = np.vstack([rows, np.full((1, len(encoding)), np.nan)])
        prior = smoothing.prior * (weights.mean() if len(weights) else 1.0)
        self._weights = np.append(weights, prior)
        self._weights /= self._weights.sum()
        self._smoothing = smoothing
        self._count = len(rows) + smoothing.prior
        self._dimensions = sum(column.count != 1 for column in encoding.columns)
        self._shrinkage = math.pow(self._count, -1.0 / (4 + self._dimensions))
        self._positions = np.flatnonzero([column.values is None for column in encoding.columns])
        self._widths = np.array([self._width(int(i), encoding.columns[i]) for i in self._positions])
        listed = [i for i, column in enumerate(encoding.columns) if column.count > 1]
        self._places = {i: _places(self._rows[:, i], encoding.columns[i]) for i in listed}
        self._tables = {i: self._table(i) for i in listed if encoding.columns[i].ordered}

    # --- drawing ------------------------------------------------------------------------------

    def sample(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw full rows, in which numbers of inactive parameters have no meaning.

        A position outside [0, 1] is clipped, because the best value is often a bound.
        """
        which = rng.choice(len(self._rows), size=count, p=self._weights)
        uniform = rng.random((count, len(self._encoding)))
        drawn = np.zeros_like(uniform)
        centres = self._rows[which][:, self._positions]
        moved = centres + rng.standard_normal(centres.shape) * self._widths
        drawn[:, self._positions] = np.where(
            np.isnan(moved), uniform[:, self._positions], np.clip(moved, 0.0, 1.0)
        )
        keep = rng.random(uniform.shape)
        for i, places in self._places.items():
            count_values = self._encoding.columns[i].count
            centre = places[which]
            if i in self._tables:
                cumulated = np.cumsum(self._tables[i], axis=0)[:-1, centre]
                drawn[:, i] = (uniform[:, i] > cumulated).sum(axis=0)
            else:
                kept = (keep[:, i] < self._own_share(count_values)) & (centre < count_values)
                shares = self._encoding.columns[i].shares
                elsewhere = np.floor(uniform[:, i] * count_values)
                unknown = np.searchsorted(np.cumsum(shares)[:-1], uniform[:, i], side="right")
                elsewhere = np.where(centre < count_values, elsewhere, unknown)
                drawn[:, i] = np.where(kept, centre, elsewhere)
        return drawn

    # --- density ------------------------------------------------------------------------------

    def log(self, rows: Floats, active: Booleans) -> Floats:
        """Return the log density of the active parameters of each row."""
        terms = self._log_positions(rows, active) + np.log(self._weights)
        for i, places in self._places.items():
            numbers = np.where(active[:, i], rows[:, i], 0.0).astype(np.intp)
            logs = self._log_listed(i, numbers, places)
            terms += logs if active[:, i].all() else logs * active[:, i, None]
        top = terms.max(axis=1)
        found: Floats = top + np.log(np.exp(terms - top[:, None]).sum(axis=1))
        return found

    def _log_positions(self, rows: Floats, active: Booleans) -> Floats:
        """Return the log kernels over the continuous columns (rows x trials).

        -(x - m)**2 / 2s**2 is expanded into x**2, x m and m**2, so that matrix products avoid an
        array of rows x trials x parameters.
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
        """Whether each kernel has each position, the precisions, and the log normalisations."""
        centres = self._rows[:, self._positions]
        known = ~np.isnan(centres)
        centres = np.where(known, centres, 0.5)
        inside = normal_cdf((1.0 - centres) / self._widths) - normal_cdf(-centres / self._widths)
        normalisations = -np.log(inside * self._widths * math.sqrt(2 * math.pi))
        return known.astype(np.float64), self._widths**-2, np.where(known, normalisations, 0.0)

    def _log_listed(self, index: int, numbers: Integers, places: Integers) -> Floats:
        """Return the log kernels of a listed column at these values (rows x trials)."""
        if index in self._tables:
            ordered: Floats = np.log(self._tables[index])[:, places][numbers]
            return ordered
        column = self._encoding.columns[index]
        count = column.count
        own = self._own_share(count)
        same, other = math.log(own + (1.0 - own) / count), math.log((1.0 - own) / count)
        logs = np.where(np.arange(count)[:, None] == places, same, other)
        logs[:, places == count] = np.log(column.shares)[:, None]
        return logs[numbers]

    # --- widths -------------------------------------------------------------------------------

    def _width(self, index: int, column: Column) -> float:
        """Return the kernels' width: Scott's rule (n to the power of -1 / (d + 4)) with a floor."""
        smoothing = self._smoothing
        spread = math.sqrt(self._variance(index, column) / _UNIFORM_VARIANCE)
        width_scale = smoothing.magnitude * self._shrinkage
        if column.values is None:
            floor, adaptation = smoothing.floor, smoothing.adaptation
            width_scale *= math.sqrt(min(1.0, self._dimensions / smoothing.full_width_dimensions))
        else:
            floor, adaptation = smoothing.listed_floor, smoothing.listed_adaptation
        width = width_scale * math.pow(spread, adaptation)
        return min(max(width, floor, smoothing.grain_floor * column.grain), 1.0)

    def _variance(self, index: int, column: Column) -> float:
        """Return the variance of the mixture's centres, including the uniform distribution."""
        numbers = self._rows[:, index]
        known = ~np.isnan(numbers)
        centres = numbers[known]
        if column.values is not None:
            centres = column.centres[centres.astype(np.intp)]
        weights = self._weights[known]
        prior = self._weights[-1]
        total = weights.sum() + prior
        mean = (weights @ centres + prior * 0.5) / total
        squares = weights @ (centres - mean) ** 2 + prior * ((0.5 - mean) ** 2 + _UNIFORM_VARIANCE)
        return float(squares / total)

    def _table(self, index: int) -> Floats:
        """Return the probability of each value (row) given a trial's value (column; last: none)."""
        column = self._encoding.columns[index]
        distances = (column.centres[:, None] - column.centres) / self._width(index, column)
        table = np.hstack([np.exp(-0.5 * distances**2), column.shares[:, None]])
        found: Floats = table / table.sum(axis=0)
        return found

    def _own_share(self, values: int) -> float:
        """Return the probability that a kernel keeps the trial's value instead of drawing any."""
        return 1.0 / (1.0 + self._smoothing.unordered * values / self._count)


def _places(numbers: Floats, column: Column) -> Integers:
    return np.where(np.isnan(numbers), column.count, numbers).astype(np.intp)


def normal_cdf(x: Floats) -> Floats:
    """Return the standard normal distribution function with an error below 1.5e-7.

    Abramowitz and Stegun 1964, formula 7.1.26.

    >>> normal_cdf(np.array([-1.96, 0.0, 1.96])).round(3).tolist()
    [0.025, 0.5, 0.975]
    """
    # Not scipy.special.ndtr: importing it takes 0.3 s in the master of every default search.
    z = np.abs(x) * math.sqrt(0.5)
    t = 1.0 / (1.0 + 0.3275911 * z)
    series = np.full_like(t, 1.061405429)
    for coefficient in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = series * t + coefficient
    upper = 0.5 * series * t * np.exp(-z * z)
    found: Floats = np.where(x < 0, upper, 1.0 - upper)
    return found
