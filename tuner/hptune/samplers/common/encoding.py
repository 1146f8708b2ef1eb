"""Encoding of configurations as rows of numbers.

There is one column for each declaration of the space; inactive parameters are NaN. A *listed*
column, of a declaration with few values (choices, booleans, steps, small ranges), holds indices of
these values. A *continuous* column, of a declaration with many values, holds positions in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...core.space.enumeration import is_open
from ...core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    IntParameter,
    Parameter,
    SearchSpace,
)
from ...core.trial import Params, ParamValue

MAX_LISTED = 64
"""Values; an ordered parameter with more is encoded as continuous."""

_PRIOR_DRAWS = 4_096
"""Quantiles from which the probabilities of listed values are computed if they are unequal."""

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
Integers = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Encoding of one declaration.

    Attributes:
        parameter: The declaration.
        values: The listed values; None for a continuous column.
        centres: Positions of the listed values in [0, 1]; empty for a continuous column.
        ordered: Whether neighbouring values are similar.
        grain: Distance of neighbouring values in [0, 1]; 0 for infinitely many values.
        shares: Prior probabilities of the listed values, which sum to 1.
    """

    parameter: Parameter
    values: tuple[ParamValue, ...] | None
    centres: Floats
    ordered: bool
    grain: float
    shares: Floats

    @classmethod
    def of(cls, parameter: Parameter) -> Column:
        """Return the column of this declaration."""
        values = parameter.values
        count = math.inf if values is None else len(values)
        ordered = not isinstance(parameter, BooleanParameter) and not (
            isinstance(parameter, ChoiceParameter) and not parameter.ordered
        )
        if values is None or (ordered and count > MAX_LISTED):
            return cls(parameter, None, np.empty(0), ordered, 1.0 / count, np.empty(0))
        listed = tuple(values)
        centres = np.array([parameter.to_unit(value) for value in listed])
        return cls(parameter, listed, centres, ordered, 1.0 / count, _shares(parameter, listed))

    @property
    def count(self) -> int:
        """Number of listed values; 0 for a continuous column."""
        return len(self.centres)

    def encode(self, value: ParamValue) -> float:
        """Return the number that encodes this value."""
        unit = self.parameter.to_unit(value)
        if self.values is None:
            return unit
        return float(np.abs(self.centres - unit).argmin())

    def decode(self, number: float) -> ParamValue:
        """Return the value that this number encodes."""
        if self.values is None:
            return self.parameter.from_unit(min(max(number, 0.0), 1.0))
        return self.values[int(number)]

    def meets(self, condition: Condition, numbers: Floats) -> Booleans:
        """Return for each number whether its value fulfils the condition."""
        if self.values is None:
            # An int has an interval of positions, so its value decides and not the position.
            decoded = (self.decode(number) for number in numbers.tolist())
            return np.array([value in condition.values for value in decoded], dtype=np.bool_)
        met = np.array([value in condition.values for value in self.values])
        return np.asarray(met[numbers.astype(np.intp)], dtype=np.bool_)


def _shares(parameter: Parameter, values: Sequence[ParamValue]) -> Floats:
    even = np.full(len(values), 1.0 / len(values))
    # Without a step, whole numbers on a log scale have unequal parts of the unit interval.
    is_even = not isinstance(parameter, IntParameter) or parameter.step is not None
    if parameter.prior is None and is_even:
        return even
    drawn = [
        values.index(parameter.from_unit((k + 0.5) / _PRIOR_DRAWS)) for k in range(_PRIOR_DRAWS)
    ]
    shares: Floats = 0.999 * np.bincount(drawn, minlength=len(values)) / _PRIOR_DRAWS + 0.001 * even
    return shares


class Encoding:
    """The columns of a space."""

    def __init__(self, space: SearchSpace) -> None:
        self.columns = tuple(Column.of(parameter) for parameter in space)
        names = [parameter.name for parameter in space]
        self.conditional = np.array(
            [bool(p.conditions) or p.name in names[:i] for i, p in enumerate(space)], dtype=np.bool_
        )
        """For each column, whether it may hold NaN."""
        self._by_name: Mapping[Hashable, Sequence[int]] = {
            name: [i for i, other in enumerate(names) if other == name] for name in names
        }

    def __len__(self) -> int:
        return len(self.columns)

    def encode(self, params: Params) -> Floats | None:
        """Return a configuration's row; None if it lies outside the space.

        A missing parameter that would be active (the space has grown) becomes NaN like an
        inactive one, so that the trial still informs about the other parameters.
        """
        row = np.full(len(self.columns), np.nan)
        chosen: dict[str, ParamValue] = {}
        for i, column in enumerate(self.columns):
            parameter = column.parameter
            if not is_open(parameter, chosen) or parameter.name not in params:
                continue
            value = parameter.canonical(params[parameter.name])  # the space may have changed
            if parameter.explain(value):
                return None
            chosen[parameter.name] = value
            row[i] = column.encode(value)
        return row if len(chosen) == len(params) else None

    def rows(self, configurations: Iterable[Params]) -> Floats:
        """Return the rows of these configurations without those outside the space."""
        encoded = [self.encode(params) for params in configurations]
        found = [row for row in encoded if row is not None]
        return np.array(found) if found else np.empty((0, len(self)))

    def decode(self, row: Floats, spare: Floats) -> Params:
        """Return the configuration that a row encodes.

        Args:
            row: One number for each column; those of inactive parameters are ignored.
            spare: Positions in [0, 1] for active parameters whose number is NaN.
        """
        chosen: dict[str, ParamValue] = {}
        for column, number, unit in zip(self.columns, row.tolist(), spare.tolist(), strict=True):
            parameter = column.parameter
            if is_open(parameter, chosen):
                missing = math.isnan(number)
                chosen[parameter.name] = (
                    parameter.from_unit(unit) if missing else column.decode(number)
                )
        return chosen

    def active(self, rows: Floats) -> Booleans:
        """Return for each number of full rows whether its parameter is active in that row."""
        found = np.ones(rows.shape, dtype=np.bool_)
        for i in np.flatnonzero(self.conditional).tolist():
            parameter = self.columns[i].parameter
            for condition in parameter.conditions:
                holds = np.zeros(len(rows), dtype=np.bool_)
                for j in self._by_name[condition.name]:
                    if j < i:
                        holds |= found[:, j] & self.columns[j].meets(condition, rows[:, j])
                found[:, i] &= holds
            for j in self._by_name[parameter.name]:
                if j < i:
                    found[:, i] &= ~found[:, j]
        return found
