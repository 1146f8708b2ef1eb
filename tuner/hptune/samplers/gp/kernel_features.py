"""Features of rows, between which the kernel measures distances.

An ordered or continuous parameter has one feature. An unordered one has a feature for each value,
so that all values are equally far from each other. The features of an inactive parameter are in
the middle of the range: rows without the parameter are equal in it, and at most half a range away
from rows with it.
"""

from __future__ import annotations

import numpy as np

from ..common.encoding import Booleans, Column, Encoding, Floats, Integers

_MAX_DIRECTIONS = 64
"""Features of an unordered parameter; with more values they are random directions."""
_APART = np.sqrt(0.5)


class KernelFeatures:
    """Mapping from a space's rows to kernel features.

    Args:
        encoding: Encoding of the space. Columns with a single value have no features.
    """

    def __init__(self, encoding: Encoding) -> None:
        self._tables: list[tuple[int, Floats | None]] = []
        groups: list[int] = []
        places: list[int] = []
        columns: list[int] = []
        for index, column in enumerate(encoding.columns):
            if column.count == 1:
                continue
            table = None if column.values is None else _table(column)
            if table is None:
                columns.append(index)
                places.append(len(groups))
            groups += [len(self._tables)] * (1 if table is None else table.shape[1])
            self._tables.append((index, table))
        self.groups: Integers = np.array(groups, dtype=np.intp)
        """For each feature, the index of its parameter among those that have features."""
        self.positions: Integers = np.array(columns, dtype=np.intp)
        """Indices of the continuous columns."""
        self.places: Integers = np.array(places, dtype=np.intp)
        """For each of `positions`, the index of its feature (the position itself, if active)."""

    @property
    def parameters(self) -> int:
        """Number of parameters that have features."""
        return len(self._tables)

    def features(self, rows: Floats, active: Booleans) -> Floats:
        """Return the features of full rows.

        Args:
            rows: One number for each column; those of inactive parameters are ignored.
            active: For each number, whether its parameter is active.
        """
        parts = [np.empty((len(rows), 0))]
        for index, table in self._tables:
            on, numbers = active[:, index], rows[:, index]
            if table is None:
                parts.append(np.where(on, numbers, 0.5)[:, None])
            else:
                middle = len(table) - 1
                parts.append(table[np.where(on, numbers, middle).astype(np.intp)])
        return np.concatenate(parts, axis=1)

    def of_observed(self, rows: Floats) -> Floats:
        """Return the features of rows from `Encoding.encode`, with NaN for inactive parameters."""
        return self.features(np.nan_to_num(rows), ~np.isnan(rows))


def _table(column: Column) -> Floats:
    """Return the features of each listed value; in the last row those of an inactive parameter."""
    if column.ordered:
        low, high = column.centres.min(), column.centres.max()
        values = ((column.centres - low) / (high - low))[:, None]
    elif column.count <= 2:
        values = np.arange(column.count, dtype=np.float64)[:, None]
    elif column.count <= _MAX_DIRECTIONS:
        values = _APART * np.eye(column.count)
    else:
        # Random directions in many dimensions are nearly perpendicular.
        directions = np.random.default_rng(0).standard_normal((column.count, _MAX_DIRECTIONS))
        values = _APART * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    middle = np.full((1, 1), 0.5) if column.ordered else values.mean(axis=0, keepdims=True)
    return np.concatenate([values, middle])
