"""How a number in [0, 1] becomes a value between two bounds, and which values a step allows.

The formulas are KerasTuner's (`Numerical` in its `hp_types`), so that a space means the same here
and there, with two departures: the ends of a range are exact, and a linear step reaches the upper
bound even where floating point falls short by a rounding error (KerasTuner's documentation
promises 1.0 for `Float(0, 1, step=0.1)`, its code stops at 0.9).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import overload

_ROUNDING = 1e-9


class Scale(enum.StrEnum):
    """On which scale a number is drawn evenly."""

    LINEAR = "linear"
    LOG = "log"
    """Every decade is as likely as every other; the lower bound must be above 0."""
    REVERSE_LOG = "reverse_log"
    """Like `LOG`, mirrored: dense near the upper bound."""


def project(u: float, low: float, high: float, scale: Scale) -> float:
    """The value at `u` of [0, 1] on a scale from `low` to `high`, both of them met exactly.

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
    """Where in [0, 1] `project` finds this value; 0.5 if there is but one value.

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
    """Which of `count` equal parts of [0, 1] holds `u`.

    >>> [bucket(u, 4) for u in (0.0, 0.3, 0.5, 1.0)]
    [0, 1, 2, 3]
    """
    return min(max(math.floor(u / (1.0 / count)), 0), count - 1)


def bucket_centre(index: int, count: int) -> float:
    """The middle of one of `count` equal parts of [0, 1]."""
    return (index + 0.5) / count


class LinearSteps(Sequence[float]):
    """The floats low, low + step, … up to high, worked out when asked for."""

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
        """The index of the step that is nearest to this value."""
        return min(max(round((value - self._low) / self._step), 0), self._count - 1)


def multiplied_steps(low: float, high: float, step: float, scale: Scale) -> tuple[float, ...]:
    """The floats that a multiplying step reaches, in KerasTuner's order.

    `LOG` climbs from the lower bound, `REVERSE_LOG` descends from the upper one.

    >>> multiplied_steps(1.0, 100.0, 10.0, Scale.LOG)
    (1.0, 10.0, 100.0)
    >>> multiplied_steps(1.0, 100.0, 10.0, Scale.REVERSE_LOG)
    (100.0, 91.0, 1.0)
    """
    count = int(math.log(high / low) / math.log(step) + 1e-8) + 1
    factors = (low * math.pow(step, index) for index in range(count))
    # Steps that fall on the same float are one value.
    return tuple(dict.fromkeys(_mirrored(min(f, high), low, high, scale) for f in factors))


def multiplied_integers(low: int, high: int, step: int, scale: Scale) -> tuple[int, ...]:
    """The integers that a multiplying step reaches, in KerasTuner's order.

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
