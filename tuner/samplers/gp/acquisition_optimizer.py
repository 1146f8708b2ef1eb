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
        axes: The columns of the rows.
        embedding: Their features.
        process: The model of the values; lower ones are better.
        least: What is to be improved on.
    """

    def __init__(
        self, axes: Encoding, embedding: KernelFeatures, process: GaussianProcess, least: float
    ) -> None:
        self._axes = axes
        self._embedding = embedding
        self._process = process
        self._least = least

    def heights(self, rows: Floats) -> Floats:
        """The logarithm of the expected improvement at each of these full rows."""
        features = self._embedding.features(rows, self._axes.active(rows))
        mean, deviation = self._process.predict(features)
        return acquisition.log_expected_improvement(mean, deviation, self._least)

    def climbed(
        self, rows: Floats, rng: np.random.Generator, *, steps: int = _STEPS
    ) -> tuple[Floats, Floats]:
        """Climb from each row: along all positions at once, over listed values one by one.

        Returns:
            Where each climb ended, and the heights there.
        """
        heights = self.heights(rows)
        positions = self._embedding.positions
        for _ in range(_ROUNDS):
            before = heights
            rows, heights = self._stepped(rows, heights, rng)
            if len(positions):
                rows, heights = self._slid(rows, steps)
            if np.all(heights <= before + 1e-3):
                break
        return rows, heights

    def _slid(self, rows: Floats, steps: int) -> tuple[Floats, Floats]:
        positions, places = self._embedding.positions, self._embedding.places
        active = self._axes.active(rows)

        def slope(points: Floats) -> tuple[Floats, Floats]:
            moved = rows.copy()
            moved[:, positions] = points
            features = self._embedding.features(moved, active)
            mean, deviation, mean_slopes, deviation_slopes = self._process.predict_with_slopes(
                features
            )
            by_mean, by_deviation = acquisition.slopes(mean, deviation, self._least)
            found = by_mean[:, None] * mean_slopes + by_deviation[:, None] * deviation_slopes
            values = acquisition.log_expected_improvement(mean, deviation, self._least)
            return values, np.where(active[:, positions], found[:, places], 0.0)

        points, heights = ascend(slope, rows[:, positions], steps=steps)
        moved = rows.copy()
        moved[:, positions] = points
        return moved, heights

    def _stepped(
        self, rows: Floats, heights: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Each row, or the highest of those that differ from it by one listed value."""
        moves = [
            (column, others)
            for column, axis in enumerate(self._axes.columns)
            if axis.count > 1
            for others in self._others(rows[:, column], column, rng).T
        ]
        if not moves:
            return rows, heights
        tried = np.repeat(rows[None], len(moves), axis=0)
        for k, (column, others) in enumerate(moves):
            tried[k, :, column] = others
        found = self.heights(tried.reshape(-1, rows.shape[1])).reshape(len(moves), len(rows))
        best = found.argmax(axis=0)
        each = np.arange(len(rows))
        better = found[best, each] > heights
        return (
            np.where(better[:, None], tried[best, each], rows),
            np.where(better, found[best, each], heights),
        )

    def _others(self, numbers: Floats, column: int, rng: np.random.Generator) -> Floats:
        """Other values of one column for each row: all, or the nearest and some at random."""
        axis = self._axes.columns[column]
        if axis.count <= _MOST_NEIGHBOURS + 1:
            return (numbers[:, None] + np.arange(1, axis.count)) % axis.count
        drawn = rng.integers(axis.count, size=(len(numbers), _MOST_NEIGHBOURS)).astype(np.float64)
        if axis.ordered:
            near = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
            drawn[:, : len(near)] = np.clip(numbers[:, None] + near, 0, axis.count - 1)
        return drawn


def anywhere(axes: Encoding, rng: np.random.Generator, count: int) -> Floats:
    """Full rows, even over all columns."""
    rows: Floats = rng.random((count, len(axes)))
    for column, axis in enumerate(axes.columns):
        if axis.values is not None:
            rows[:, column] = np.floor(rows[:, column] * axis.count)
    return rows


def nearby(axes: Encoding, rows: Floats, rng: np.random.Generator) -> Floats:
    """Full rows that differ from these a little, or in a few columns.

    Args:
        axes: The columns.
        rows: NaN where a parameter is not active; these are drawn anew.
        rng: Where the randomness comes from.
    """
    fresh = anywhere(axes, rng, len(rows))
    count, columns = rows.shape
    share = np.maximum(rng.random((count, 1)) ** 2, 1.0 / max(columns, 1))
    changes = rng.random(rows.shape) < share
    reach = 10.0 ** rng.uniform(-3.0, -0.5, size=(count, 1))
    moved = rows + reach * rng.standard_normal(rows.shape)
    leaps = rng.standard_normal(rows.shape)
    changed = fresh.copy()
    for column, axis in enumerate(axes.columns):
        if axis.values is None:
            changed[:, column] = np.clip(moved[:, column], 0.0, 1.0)
        elif axis.ordered:
            leap = np.sign(leaps[:, column]) * np.ceil(np.abs(leaps[:, column]))
            changed[:, column] = np.clip(rows[:, column] + leap, 0, axis.count - 1)
    found: Floats = np.where(np.isnan(rows), fresh, np.where(changes, changed, rows))
    return found
