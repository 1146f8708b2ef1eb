"""Maximisation of the acquisition function over rows with continuous and listed columns."""

from __future__ import annotations

import numpy as np

from ..common.encoding import Encoding, Floats
from .acquisition import Acquisition
from .kernel_features import KernelFeatures
from .local_search import maximize
from .success import SuccessModel

_ROUNDS = 3
"""Alternations between listed and continuous columns in a local search."""
_STEPS = 20
"""Evaluations for the continuous columns in each round."""
_MAX_NEIGHBOURS = 12
"""Values of a listed column that are tried in each round."""


class AcquisitionOptimizer:
    """An acquisition function times the probability of success, and its local maximisation.

    Args:
        encoding: Encoding of the space.
        kernel_features: Features of the rows.
        function: The acquisition function.
        success: Where configurations succeed; None if none failed.
    """

    def __init__(
        self,
        encoding: Encoding,
        kernel_features: KernelFeatures,
        function: Acquisition,
        success: SuccessModel | None = None,
    ) -> None:
        self._encoding = encoding
        self._kernel_features = kernel_features
        self._function = function
        self._success = success

    def values(self, rows: Floats) -> Floats:
        """Return the log expected improvement at each of these full rows, less where some fail."""
        features = self._kernel_features.features(rows, self._encoding.active(rows))
        found = self._function.values(features)
        if self._success is not None:
            found = found + self._success.log_factor(features, self._function.caution)
        return found

    def local_search(self, rows: Floats, rng: np.random.Generator) -> tuple[Floats, Floats]:
        """Improve each row, alternately by one listed value and along all continuous columns.

        Returns:
            The improved rows and their values.
        """
        values = self.values(rows)
        positions = self._kernel_features.positions
        for _ in range(_ROUNDS):
            before = values
            rows, values = self._improve_listed(rows, values, rng)
            if len(positions):
                rows, values = self._improve_continuous(rows)
            if np.all(values <= before + 1e-3):
                break
        return rows, values

    def _improve_continuous(self, rows: Floats) -> tuple[Floats, Floats]:
        positions, places = self._kernel_features.positions, self._kernel_features.places
        active = self._encoding.active(rows)

        def objective(points: Floats) -> tuple[Floats, Floats]:
            moved = rows.copy()
            moved[:, positions] = points
            features = self._kernel_features.features(moved, active)
            values, found = self._function.values_with_gradients(features)
            if self._success is not None:
                log, gradients = self._success.log_factor_with_gradients(
                    features, self._function.caution
                )
                values, found = values + log, found + gradients
            return values, np.where(active[:, positions], found[:, places], 0.0)

        points, values = maximize(objective, rows[:, positions], steps=_STEPS)
        moved = rows.copy()
        moved[:, positions] = points
        return moved, values

    def _improve_listed(
        self, rows: Floats, values: Floats, rng: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """Return for each row the best of it and of rows that differ by one listed value."""
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
        """Return other values of a column for each row: all, or the nearest and random ones."""
        column = self._encoding.columns[index]
        if column.count <= _MAX_NEIGHBOURS + 1:
            return (numbers[:, None] + np.arange(1, column.count)) % column.count
        drawn = rng.integers(column.count, size=(len(numbers), _MAX_NEIGHBOURS)).astype(np.float64)
        if column.ordered:
            near = np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0])
            drawn[:, : len(near)] = np.clip(numbers[:, None] + near, 0, column.count - 1)
        return drawn


def uniform_rows(encoding: Encoding, rng: np.random.Generator, count: int) -> Floats:
    """Return random full rows, uniform in each column."""
    rows: Floats = rng.random((count, len(encoding)))
    for index, column in enumerate(encoding.columns):
        if column.values is not None:
            rows[:, index] = np.floor(rows[:, index] * column.count)
    return rows


def perturbed_rows(encoding: Encoding, rows: Floats, rng: np.random.Generator) -> Floats:
    """Return full rows that differ from these a little or in a few columns.

    Args:
        encoding: Encoding of the space.
        rows: The rows. Numbers of inactive parameters (NaN) are drawn uniformly.
        rng: The random number generator.
    """
    fresh = uniform_rows(encoding, rng, len(rows))
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
