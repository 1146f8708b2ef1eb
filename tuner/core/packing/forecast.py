"""What a trial will use (memory, processor time, seconds per step), by what others used."""

from __future__ import annotations

import math
import statistics
from collections.abc import Hashable
from dataclasses import dataclass

from ..trial import Params
from .regression import Regression, fitted

REMEMBERED = 96
"""So many of the last observations count."""

_ALIKE = 0.05
"""Trials whose predictions differ by less than this, as a logarithm, are comparable."""

_OF_WHAT_WAS_FORETOLD = 0.125
"""What a trial adds to the news that used what was foretold, where many are known already."""

_LEAST_MARGIN = 1.05
_MOST_BEYOND = 4.0
"""Nothing is foretold to be further than by this factor beyond all that was seen."""


@dataclass(slots=True)
class _Observation:
    params: Params
    value: float
    is_least: bool

    @property
    def point(self) -> tuple[Params, float]:
        return self.params, math.log(self.value)


def _are_alike(one: _Observation, other: _Observation) -> bool:
    return abs(math.log(one.value / other.value)) <= _ALIKE


class Forecast:
    """Learns a positive quantity as a function of the hyperparameters.

    Worked example: memory that grows with `units`, whatever the `rate`::

        >>> memory = Forecast()
        >>> for units, rate in [(16, 3.0), (32, 1.0), (64, 2.0), (128, 1.0), (256, 5.0), (48, 4.0)]:
        ...     memory.learn(units, {"units": units, "rate": rate}, 2.0 * units)
        >>> round(memory.typical({"units": 100, "rate": 2.0}))
        200
        >>> memory.depends_on
        ('units',)
        >>> 200 <= memory.upper({"units": 100, "rate": 2.0}) < 220
        True

    While there are too few observations, the bound is more than the largest one: twice as much of
    two, half as much again of four.

    Questions change nothing: a new prediction is made when enough has been learned, and only then,
    so that a forecast follows from what it was told and in which order.

    Attributes:
        version: How often predictions have changed.
    """

    def __init__(self) -> None:
        self._observations: dict[Hashable, _Observation] = {}
        self._news = 0.0
        self._fit: Regression | None = None
        self._predictions: list[tuple[float, float]] = []
        self._count = 0
        self._most = 0.0
        self._median = 0.0
        self.version = 0

    def __len__(self) -> int:
        return len(self._observations)

    def learn(self, key: Hashable, params: Params, value: float, *, is_least: bool = False) -> None:
        """Take note of what a trial used; the last value under a key counts.

        Args:
            key: Of the trial.
            params: Its hyperparameters.
            value: What it used.
            is_least: Whether it may have come to use more.
        """
        before = self._observations.pop(key, None)
        observation = _Observation(params, max(value, 1e-9), is_least)
        self._observations[key] = observation
        if before is None or before.is_least != is_least or not _are_alike(before, observation):
            self._news += 1.0 if self._is_surprising(observation) else _OF_WHAT_WAS_FORETOLD
        if len(self._observations) > REMEMBERED:
            del self._observations[next(iter(self._observations))]
        if self._news > len(self._observations) // 8:
            self._news = 0.0
            self._learn_anew()

    def _is_surprising(self, new: _Observation) -> bool:
        """Whether something else was foretold, or too little is known to say so."""
        if self._fit is None or len(self._observations) < REMEMBERED:
            return True
        expected, _ = self._fit.at(new.params)
        return abs(math.log(new.value) - expected) > max(_ALIKE, self._fit.margin)

    def typical(self, params: Params) -> float:
        """What such a trial uses, most likely; 0 while nothing is known."""
        if not self._observations:
            return 0.0
        if self._fit is None:
            return self._median
        return self._bounded(self._fit.at(params)[0])

    def upper(self, params: Params) -> float:
        """What such a trial will hardly exceed; 0 while nothing is known.

        Of many, one in forty may, as far as the errors so far tell.
        """
        if not self._observations:
            return 0.0
        if self._fit is None:
            return self._above_all
        expected, leverage = self._fit.at(params)
        above = self._bounded(expected + self._fit.margin * math.sqrt(1.0 + leverage))
        alike = (v for at, v in self._predictions if abs(at - expected) < _ALIKE)
        above = max(above, _LEAST_MARGIN * self._bounded(expected), *alike)
        return max(above, self._most) if self._fit.is_strange(params) else above

    @property
    def depends_on(self) -> tuple[str, ...]:
        """The hyperparameters that it is foretold from."""
        return () if self._fit is None else self._fit.names

    @property
    def middle(self) -> float:
        """A bound for a trial in the middle of those that were seen; 0 while nothing is known."""
        if self._fit is None:
            return self._above_all if self._observations else 0.0
        return self._median * max(_LEAST_MARGIN, math.exp(self._fit.margin))

    @property
    def _above_all(self) -> float:
        return self._most * (1.0 + 2.0 / self._count)

    def _bounded(self, logarithm: float) -> float:
        return min(math.exp(min(logarithm, 99.0)), _MOST_BEYOND * self._most)

    def _learn_anew(self) -> None:
        observations = list(self._observations.values())
        self._count = len(observations)
        self._most = max(each.value for each in observations)
        self._median = statistics.median(each.value for each in observations)
        sure = [each.point for each in observations if not each.is_least]
        fit = fitted(sure)
        if fit is not None and len(sure) < len(observations):
            # What may have become more tells something only where it is above what is expected.
            least = [each.point for each in observations if each.is_least]
            more = [(params, value) for params, value in least if value > fit.at(params)[0]]
            fit = (fitted([*sure, *more]) or fit) if more else fit
        self._fit = fit
        self._predictions = (
            [] if fit is None else [(fit.at(o.params)[0], o.value) for o in observations]
        )
        self.version += 1
