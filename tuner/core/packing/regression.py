"""A small regression of logarithms on a few features of the hyperparameters.

The features are chosen one by one, each being the one that explains most of what is left
(orthogonal matching pursuit; Pati et al. 1993), as long as that makes the prediction of every
observation from all others better (PRESS; Allen 1974). The same errors tell how far a prediction
may be out.

All is plain Python, with exact sums: a study that is replayed elsewhere should come to the same
numbers, and libraries of linear algebra choose their order of summation by the processor, as
Python's own `sum` does by its version. What is left is the C library's logarithm, which may differ
in the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..trial import Params, ParamValue

_FEWEST = 5
"""So many observations are needed for a regression."""

_MOST_FEATURES = 6
_WORTHWHILE = 0.9
"""A feature is taken if the squared errors become smaller by this factor."""

_EXACT = 1e-6
"""Mean squared errors below this (a thousandth of the value) are not worth another feature."""

_NOTHING = 1e-12
"""A feature that varies by less than this says nothing that others do not."""

_Function = Callable[[Params], float]


@dataclass(frozen=True, slots=True)
class _Direction:
    """A feature, made orthogonal to those before it."""

    name: str
    feature: _Function
    mean: float
    on_others: tuple[float, ...]
    length: float
    effect: float


@dataclass(frozen=True, slots=True)
class Regression:
    """Expects logarithms from hyperparameters.

    Attributes:
        mean: Of the logarithms that were seen.
        count: How many there were.
        directions: The features that count, made orthogonal to each other.
        margin: So much above what is expected a value may be, one in forty excepted.
        seen: The hyperparameters that were seen; of choices, which.
    """

    mean: float
    count: int
    directions: tuple[_Direction, ...]
    margin: float
    seen: Mapping[str, frozenset[ParamValue]]

    @property
    def names(self) -> tuple[str, ...]:
        """The hyperparameters that count, the most telling one first."""
        return tuple(dict.fromkeys(each.name for each in self.directions))

    def at(self, params: Params) -> tuple[float, float]:
        """The expected logarithm, and the leverage: how far these are from what was seen."""
        along: list[float] = []
        expected = self.mean
        for each in self.directions:
            rest = each.feature(params) - each.mean
            rest -= _dot(each.on_others, along)
            along.append(rest / each.length)
            expected += each.effect * along[-1]
        return expected, 1.0 / self.count + _dot(along, along)

    def is_strange(self, params: Params) -> bool:
        """Whether a choice or a hyperparameter was never seen."""
        return any(
            name not in self.seen or (_number(value) is None and value not in self.seen[name])
            for name, value in params.items()
        )


def fitted(points: Sequence[tuple[Params, float]]) -> Regression | None:
    """The regression by these configurations and logarithms; None if they are too few.

    Where nothing explains them, it expects their mean.

    >>> points = [({"units": 2**n, "rate": n % 3}, float(n)) for n in range(6)]
    >>> found = fitted(points)
    >>> found.names, round(found.at({"units": 64, "rate": 1})[0], 6)
    (('units',), 6.0)
    """
    count = len(points)
    if count < _FEWEST:
        return None
    values = [value for _, value in points]
    mean = math.fsum(values) / count
    rest = [value - mean for value in values]
    leverages = [1.0 / count] * count
    errors = _press(rest, leverages)
    columns = _columns([params for params, _ in points])
    basis: list[list[float]] = []
    directions: list[_Direction] = []
    while len(directions) < min(_MOST_FEATURES, count // 3) and errors > _EXACT * count:
        best = max(columns, key=lambda each: _explained(each.left, rest), default=None)
        length = 0.0 if best is None else math.sqrt(_dot(best.left, best.left))
        if best is None or length * length <= _NOTHING:
            break
        unit = [each / length for each in best.left]
        effect = _dot(unit, rest)
        new_rest = [r - effect * u for r, u in zip(rest, unit, strict=True)]
        new_leverages = [h + u * u for h, u in zip(leverages, unit, strict=True)]
        new_errors = _press(new_rest, new_leverages)
        if new_errors > _WORTHWHILE * errors:
            break
        rest, leverages, errors = new_rest, new_leverages, new_errors
        on_others = tuple(_dot(each, best.raw) for each in basis)
        directions.append(_Direction(best.name, best.feature, best.mean, on_others, length, effect))
        basis.append(unit)
        columns.remove(best)
        for column in columns:
            shared = _dot(unit, column.left)
            column.left = [c - shared * u for c, u in zip(column.left, unit, strict=True)]
    freedom = count - len(directions) - 1
    # Of many features the one was taken that happened to do best with these few observations.
    optimism = 1.0 + 3.0 / count
    margin = optimism * _student(freedom) * math.sqrt(errors / count)
    return Regression(mean, count, tuple(directions), margin, _seen(points))


def _seen(points: Sequence[tuple[Params, float]]) -> Mapping[str, frozenset[ParamValue]]:
    seen = dict[str, set[ParamValue]]()
    for params, _ in points:
        for name, value in params.items():
            choices = seen.setdefault(name, set())
            if _number(value) is None:
                choices.add(value)
    return {name: frozenset(choices) for name, choices in seen.items()}


def _student(freedom: int) -> float:
    """About the 97.5 % quantile of Student's distribution.

    >>> round(_student(3), 1), round(_student(10), 1), round(_student(1000), 1)
    (3.1, 2.2, 2.0)
    """
    return 1.96 + 2.4 / freedom + 3.0 / freedom**2


def _press(rest: Sequence[float], leverages: Sequence[float]) -> float:
    """The squared errors of predicting each observation from all others."""
    return math.fsum((r / max(1.0 - h, 1e-9)) ** 2 for r, h in zip(rest, leverages, strict=True))


@dataclass(slots=True)
class _Column:
    """A feature of all observations: centred, and what of it the chosen ones do not explain."""

    name: str
    feature: _Function
    mean: float
    raw: list[float]
    left: list[float]


def _columns(configurations: Sequence[Params]) -> list[_Column]:
    columns = []
    for name, feature in _features(configurations):
        values = [feature(params) for params in configurations]
        mean = math.fsum(values) / len(values)
        raw = [value - mean for value in values]
        if _dot(raw, raw) > _NOTHING * max(1.0, mean * mean):
            columns.append(_Column(name, feature, mean, raw, raw))
    return columns


def _features(configurations: Sequence[Params]) -> list[tuple[str, _Function]]:
    """What may explain something: numbers, their logarithms, and which choice was made."""
    found: list[tuple[str, _Function]] = []
    for name in dict.fromkeys(name for params in configurations for name in params):
        values = [params[name] for params in configurations if name in params]
        numbers = [number for each in values if (number := _number(each)) is not None]
        if len(numbers) == len(values):
            usual = math.fsum(numbers) / len(numbers)
            found.append((name, _linear(name, usual)))
            if min(numbers) > 0.0:
                found.append((name, _logarithm(name, usual)))
        else:
            found += [(name, _choice(name, each)) for each in dict.fromkeys(values)]
        if len(values) < len(configurations):
            found.append((name, _presence(name)))
    return found


def _linear(name: str, usual: float) -> _Function:
    def feature(params: Params) -> float:
        number = _number(params.get(name))
        return (usual if number is None else number) / (abs(usual) or 1.0)

    return feature


def _logarithm(name: str, usual: float) -> _Function:
    def feature(params: Params) -> float:
        number = _number(params.get(name))
        return math.log(number / usual) if number is not None and number > 0.0 else 0.0

    return feature


def _choice(name: str, choice: ParamValue) -> _Function:
    return lambda params: float(params.get(name, _Absent) == choice)


def _presence(name: str) -> _Function:
    return lambda params: float(name in params)


class _Absent:
    """No choice is equal to it."""


def _number(value: object) -> float | None:
    """A number; a yes or no is none."""
    return float(value) if isinstance(value, int | float) and type(value) is not bool else None


def _explained(column: Sequence[float], rest: Sequence[float]) -> float:
    size = _dot(column, column)
    return _dot(column, rest) ** 2 / size if size > _NOTHING else 0.0


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(a * b for a, b in zip(one, other, strict=True))
