"""Rows of a space as points whose distances mean something to a kernel.

Each parameter has features of its own: one number for ordered values and positions, as many as
there are values for unordered ones, so that all of them are equally far from each other. Where a
parameter is not active its features stand in the middle, the same for all such rows: these are
alike as far as this parameter goes, and a row where it is active is at most half a range away.
"""

from __future__ import annotations

import numpy as np

from ..common.encoding import Booleans, Column, Encoding, Floats, Integers

_MOST_DIRECTIONS = 64
_APART = np.sqrt(0.5)


class KernelFeatures:
    """The features of a space's rows.

    Args:
        encoding: The columns of the rows. Those with a single value have no features.
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
        """For each feature, the number of its parameter among those that have features."""
        self.positions: Integers = np.array(columns, dtype=np.intp)
        """The columns that hold positions in [0, 1]."""
        self.places: Integers = np.array(places, dtype=np.intp)
        """For each of these, its feature, which is the position itself where it is active."""

    @property
    def parameters(self) -> int:
        """How many parameters have features."""
        return len(self._tables)

    def features(self, rows: Floats, active: Booleans) -> Floats:
        """The points of full rows.

        Args:
            rows: One number for each index; those that are not active are not looked at.
            active: Which numbers are.
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


def _table(column: Column) -> Floats:
    """The features of each value, and behind them those of no value."""
    if column.ordered:
        low, high = column.centres.min(), column.centres.max()
        values = ((column.centres - low) / (high - low))[:, None]
    elif column.count <= 2:
        values = np.arange(column.count, dtype=np.float64)[:, None]
    elif column.count <= _MOST_DIRECTIONS:
        values = _APART * np.eye(column.count)
    else:
        # Random directions in a space of many dimensions are nearly perpendicular.
        directions = np.random.default_rng(0).standard_normal((column.count, _MOST_DIRECTIONS))
        values = _APART * directions / np.linalg.norm(directions, axis=1, keepdims=True)
    middle = np.full((1, 1), 0.5) if column.ordered else values.mean(axis=0, keepdims=True)
    return np.concatenate([values, middle])
