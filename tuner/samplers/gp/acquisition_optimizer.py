"""The search for the configurations that promise most, over rows of mixed columns."""

from __future__ import annotations

import numpy as np

from ..common.encoding import Encoding, Floats
from . import acquisition
from .gaussian_process import GaussianProcess
from .kernel_features import KernelFeatures
from .local_search import ascend

_ROUNDS = 3
_STEPS = 20
_MOST_NEIGHBOURS = 12


class AcquisitionOptimizer:
    """The expected improvement over the space, as a model sees it.

    Args:
        encoding: The columns of the rows.
        kernel_features: Their features.
        process: The model of the values; lower ones are better.
        least: What is to be improved on.
    """

    def __init__(
        self,
        encoding: Encoding,
        kernel_features: KernelFeatures,
        process: GaussianProcess,
        least: float,
    ) -> None:
        self._encoding = encoding
        self._kernel_features = kernel_features
        self._process = process
        self._least = least

    def values(self, rows: Floats) -> Floats:
        """The logarithm of the expected improvement at each of these full rows."""
        features = self._kernel_features.features(rows, self._encoding.active(rows))
        mean, deviation = self._process.predict(features)
        return acquisition.log_expected_improvement(mean, deviation, self._least)

    def local_search(
        self, rows: Floats, rng: np.random.Generator, *, steps: int = _STEPS
    ) -> tuple[Floats, Floats]:
        """Climb from each row: along all positions at once, over listed values one by one.

        Returns:
            Where each climb ended, and the values there.
        """
        values = self.values(rows)
        positions = self._kernel_features.positions
        for _ in range(_ROUNDS):
            before = values
            rows, values = self._stepped(rows, values, rng)
            if len(positions):
                rows, values = self._slid(rows, steps)
            if np.all(values <= before + 1e-3):
                break
        return rows, values

    def _slid(self, rows: Floats, steps: int) -> tuple[Floats, Floats]:
        positions, places = self._kernel_features.positions, self._kernel_features.places
        active = self._encoding.active(rows)

        def slope(points: Floats) -> tuple[Floats, Floats]:
            moved = rows.copy()
            moved[:, positions] = points
            features = self._kernel_features.features(moved, active)
            mean, deviation, mean_slopes, deviation_slopes = self._process.predict_with_slopes(
                features
            )
            by_mean, by_deviation = acquisition.slopes(mean, deviation, self._least)
            found = by_mean[:, None] * mean_slopes + by_deviation[:, None] * deviation_slopes
            values = acquisition.log_expected_improvement(mean, deviation, self._least)
            return values, np.where(active[:, positions], found[:, places], 0.0)

        points, values = ascend(slope, rows[:, positions], steps=steps)
        moved = rows.copy()
        moved[:, positions] = points
        return moved, values

    def _stepped(
        self, rows: Floats, values: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Each row, or the highest of those that differ from it by one listed value."""
        moves = [
            (index, others)
            for index, column in enumerate(self._encoding.columns)
            if column.count > 1
            for others in self._others(rows[:, index], index, rng).T
        ]
        if not moves:
            return rows, values
        tried = np.repeat(rows[None], len(moves), axis=0)
        for k, (index, others) in enumerate(moves):
            tried[k, :, index] = others
        found = self.values(tried.reshape(-1, rows.shape[1])).reshape(len(moves), len(rows))
        best = found.argmax(axis=0)
        each = np.arange(len(rows))
        better = found[best, each] > values
        return (
            np.where(better[:, None], tried[best, each], rows),
            np.where(better, found[best, each], values),
        )

    def _others(self, numbers: Floats, index: int, rng: np.random.Generator) -> Floats:
        """Other values of one column for each row: all, or the nearest and some at random."""
        column = self._encoding.columns[index]
        if column.count <= _MOST_NEIGHBOURS + 1:
            return (numbers[:, None] + np.arange(1, column.count)) % column.count
        drawn = rng.integers(column.count, size=(len(numbers), _MOST_NEIGHBOURS)).astype(np.float64)
        if column.ordered:
            near = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
            drawn[:, : len(near)] = np.clip(numbers[:, None] + near, 0, column.count - 1)
        return drawn


def anywhere(encoding: Encoding, rng: np.random.Generator, count: int) -> Floats:
    """Full rows, even over all columns."""
    rows: Floats = rng.random((count, len(encoding)))
    for index, column in enumerate(encoding.columns):
        if column.values is not None:
            rows[:, index] = np.floor(rows[:, index] * column.count)
    return rows


def nearby(encoding: Encoding, rows: Floats, rng: np.random.Generator) -> Floats:
    """Full rows that differ from these a little, or in a few columns.

    Args:
        encoding: The columns.
        rows: NaN where a parameter is not active; these are drawn anew.
        rng: Where the randomness comes from.
    """
    fresh = anywhere(encoding, rng, len(rows))
    count, columns = rows.shape
    share = np.maximum(rng.random((count, 1)) ** 2, 1.0 / max(columns, 1))
    changes = rng.random(rows.shape) < share
    reach = 10.0 ** rng.uniform(-3.0, -0.5, size=(count, 1))
    moved = rows + reach * rng.standard_normal(rows.shape)
    leaps = rng.standard_normal(rows.shape)
    changed = fresh.copy()
    for index, column in enumerate(encoding.columns):
        if column.values is None:
            changed[:, index] = np.clip(moved[:, index], 0.0, 1.0)
        elif column.ordered:
            leap = np.sign(leaps[:, index]) * np.ceil(np.abs(leaps[:, index]))
            changed[:, index] = np.clip(rows[:, index] + leap, 0, column.count - 1)
    found: Floats = np.where(np.isnan(rows), fresh, np.where(changes, changed, rows))
    return found
