"""Scales: maps between [0, 1] and a range, and the values that a step allows.

The formulas are KerasTuner's (`Numerical` in its `hp_types`), so that a space has the same meaning
in both, with two differences. The ends of a range are exact. A linear step reaches the upper bound
despite rounding errors: KerasTuner's documentation promises 1.0 for `Float(0, 1, step=0.1)`, its
code stops at 0.9.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import overload

_ROUNDING = 1e-9
"""Part of a step by which rounding may miss the upper bound."""


class Scale(enum.StrEnum):
    """A scale on which a number is uniform."""

    LINEAR = "linear"
    LOG = "log"
    """All decades are equally likely; the lower bound must be above 0."""
    REVERSE_LOG = "reverse_log"
    """`LOG` mirrored: dense near the upper bound."""


def project(u: float, low: float, high: float, scale: Scale) -> float:
    """Return the value at `u` in [0, 1] on a scale from `low` to `high`, exact at both ends.

    >>> project(0.5, 1.0, 100.0, Scale.LOG), project(1.0, 0.001, 0.3, Scale.LOG)
    (10.0, 0.3)
    """
    if u <= 0.0:
        return low
    if u >= 1.0:
        return high
    if scale is Scale.LINEAR:
        value = low + u * (high - low)
    elif scale is Scale.LOG:
        value = low * math.pow(high / low, u)
    else:
        value = high + low - low * math.pow(high / low, 1.0 - u)
    return min(max(value, low), high)


def invert(value: float, low: float, high: float, scale: Scale) -> float:
    """Return the point in [0, 1] of a value, the inverse of `project`; 0.5 if `low` is `high`.

    >>> invert(10.0, 1.0, 100.0, Scale.LOG)
    0.5
    """
    if low == high:
        return 0.5
    value = min(max(value, low), high)
    if scale is Scale.LINEAR:
        return (value - low) / (high - low)
    if scale is Scale.LOG:
        return min(math.log(value / low) / math.log(high / low), 1.0)
    mirrored = min(max((high - value) + low, low), high)
    return 1.0 - min(math.log(mirrored / low) / math.log(high / low), 1.0)


def bucket(u: float, count: int) -> int:
    """Return which of `count` equal parts of [0, 1] contains `u`.

    >>> [bucket(u, 4) for u in (0.0, 0.3, 0.5, 1.0)]
    [0, 1, 2, 3]
    """
    return min(max(math.floor(u / (1.0 / count)), 0), count - 1)


def bucket_centre(index: int, count: int) -> float:
    """Return the centre of one of `count` equal parts of [0, 1]."""
    return (index + 0.5) / count


class LinearSteps(Sequence[float]):
    """The floats low, low + step, … up to high, computed on access."""

    __slots__ = ("_count", "_high", "_low", "_step")

    def __init__(self, low: float, high: float, step: float) -> None:
        self._low, self._high, self._step = low, high, step
        self._count = math.floor((high - low) / step + _ROUNDING) + 1

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> float: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[float, ...]: ...
    def __getitem__(self, index: int | slice) -> float | tuple[float, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._count)))
        if index < 0:
            index += self._count
        if not 0 <= index < self._count:
            raise IndexError(index)
        return min(self._low + index * self._step, self._high)

    def nearest(self, value: float) -> int:
        """Return the index of the step nearest to a value."""
        return min(max(round((value - self._low) / self._step), 0), self._count - 1)


def multiplied_steps(low: float, high: float, step: float, scale: Scale) -> tuple[float, ...]:
    """Return the floats that a multiplying step reaches, in KerasTuner's order.

    `LOG` starts at the lower bound, `REVERSE_LOG` at the upper one.

    >>> multiplied_steps(1.0, 100.0, 10.0, Scale.LOG)
    (1.0, 10.0, 100.0)
    >>> multiplied_steps(1.0, 100.0, 10.0, Scale.REVERSE_LOG)
    (100.0, 91.0, 1.0)
    """
    count = int(math.log(high / low) / math.log(step) + 1e-8) + 1
    factors = (low * math.pow(step, index) for index in range(count))
    # Adjacent steps may round to the same float.
    return tuple(dict.fromkeys(_mirrored(min(f, high), low, high, scale) for f in factors))


def multiplied_integers(low: int, high: int, step: int, scale: Scale) -> tuple[int, ...]:
    """Return the integers that a multiplying step reaches, in KerasTuner's order.

    >>> multiplied_integers(2, 40, 2, Scale.LOG)
    (2, 4, 8, 16, 32)
    """
    found = []
    value = low
    while value <= high:
        found.append(value if scale is Scale.LOG else high + low - value)
        value *= step
    return tuple(found)


def _mirrored(value: float, low: float, high: float, scale: Scale) -> float:
    if scale is Scale.LOG:
        return value
    return min(max(high + low - value, low), high)
