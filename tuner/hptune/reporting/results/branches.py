"""Hyperparameters that have no influence where another one has certain values.

In each branch, the trials with one value of a hyperparameter, the normal scores of the values are
explained by all hyperparameters that are active there (least squares; a number counts linearly and
squared, a choice by its values). The influence of one of them is what the rest of the variance
loses by it (partial R²), with the F test of its columns. Influence is claimed only if it is strong,
and its absence only where many trials would have shown it.

What a hyperparameter does in places is looked for as well: that it changes the influence of another
one (the F test of their products), or has one among the best trials, where most others diverge.

In 200 simulated studies each of 100 and of 200 random trials with two parents, a hyperparameter
that one of two branches does not use was found in 51 and 61 %; a search that learns finds less.
None was told wrongly of one that both use alike, or that one branch uses half as much; 1 % where it
has a quarter of the influence, none where it only changes that of another one, and up to 9 % where
two thirds of a branch diverge (43 % where five of six do, with 100 trials). Fewer trials find less.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ...core.space.space import FixedParameter, FloatParameter, IntParameter, Parameter
from ...core.trial import Params, ParamValue

_MOST_VALUES = 5
"""Values of a hyperparameter that divides trials into branches."""

_MOST_COLUMNS = 60
"""Columns by which values are explained at most, so that it takes two seconds at most."""

_LEAST_FREE = 12
"""Trials of a branch beyond the columns, so that an influence can be found in it."""

_LEAST_FREE_WITHOUT = 40
"""The same, so that its absence can be."""

_STRONG, _SURE = 0.3, 3.09
"""Partial R² of an influence, and its normal score: chance has it in one of a thousand tests."""

_WEAK_PART, _UNSURE = 0.15, 0.52
"""Part of the strongest influence that counts as none, and its score: chance has more in three of
ten tests."""

_BEST, _HIDDEN = 20, 0.84
"""Best trials of a branch, and the score from which on an influence may be hidden: chance has more
in one of five tests."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Unused:
    """A hyperparameter without influence where another one has certain values.

    Attributes:
        parameter: Its declaration.
        parent: That of the other one.
        without: The values of the other one where it has no influence.
        others: The other values.
        trials: The number of trials with a value of `without`.
    """

    parameter: Parameter
    parent: Parameter
    without: Sequence[ParamValue]
    others: Sequence[ParamValue]
    trials: int


def unused_in_branches(
    space: Sequence[Parameter], results: Sequence[tuple[Params, float]]
) -> list[Unused]:
    """Return the hyperparameters that seem to be unused in some branches, by their names.

    Args:
        space: The declarations; names with several ones, such as conditional ones, are left out.
        results: Configurations of complete trials and their finite losses: less is better.
    """
    times = Counter(each.name for each in space)
    searched = [
        each
        for each in space
        if times[each.name] == 1 and not each.conditions and not isinstance(each, FixedParameter)
    ]
    # A study that was resumed may have trials of another space.
    known = [
        (params, value)
        for params, value in results
        if all(p.name in params and not p.explain(params[p.name]) for p in searched)
    ]
    found: dict[str, tuple[float, Unused]] = {}
    for parent in searched:
        listed = parent.values
        if listed is None or not 2 <= len(listed) <= _MOST_VALUES:
            continue
        branches: dict[ParamValue, list[tuple[Params, float]]] = {value: [] for value in listed}
        for params, value in known:
            # A default may lie between two steps: then it is in no branch.
            if (mine := branches.get(parent.canonical(params[parent.name]))) is not None:
                mine.append((params, value))
        others = [each for each in searched if each is not parent]
        influences = {value: _influences(others, mine) for value, mine in branches.items()}
        for parameter in others:
            of = {v: each[parameter.name] for v, each in influences.items() if each}
            strongest = max((each.share for each in of.values() if each.is_strong), default=0.0)
            without = [
                value
                for value, each in of.items()
                if each.is_absent(strongest) and not _may_hide(parameter, others, branches[value])
            ]
            if without and strongest > found.get(parameter.name, (0.0,))[0]:
                rest = [value for value in listed if value not in without]
                trials = sum(len(branches[value]) for value in without)
                found[parameter.name] = strongest, Unused(parameter, parent, without, rest, trials)
    return [unused for _, (_, unused) in sorted(found.items())]


@dataclass(frozen=True, slots=True)
class _Influence:
    """The influence of a hyperparameter in a branch.

    Attributes:
        share: The partial R².
        score: A normal score of the F test.
        free: Trials beyond the columns.
    """

    share: float
    score: float
    free: int

    @property
    def is_strong(self) -> bool:
        return self.share >= _STRONG and self.score > _SURE

    def is_absent(self, strongest: float) -> bool:
        is_weak = self.share < _WEAK_PART * strongest and self.score < _UNSURE
        return is_weak and self.free >= _LEAST_FREE_WITHOUT


def _influences(
    parameters: Sequence[Parameter], results: Sequence[tuple[Params, float]]
) -> Mapping[str, _Influence]:
    """Return the influence of each hyperparameter among these trials; empty with too few."""
    columns = [_columns(each, [params[each.name] for params, _ in results]) for each in parameters]
    width = 1 + sum(len(each) for each in columns)
    if width > _MOST_COLUMNS or len(results) < width + _LEAST_FREE:
        return {}
    table = np.array([np.ones(len(results)), *(row for each in columns for row in each)])
    scores = _normal_scores([value for _, value in results])
    squares, products = table @ table.T, table @ scores
    owners = np.repeat(np.arange(len(columns) + 1), [1, *map(len, columns)])
    total = float(scores @ scores)
    weights, rest, rank = _explained(squares, products, total)
    inverse = np.linalg.inv(squares) if rank == width else None
    free = len(results) - rank
    found = {}
    for number, parameter in enumerate(parameters, start=1):
        kept = owners != number
        if inverse is not None:  # much faster than to explain the values again
            of, block = weights[~kept], inverse[np.ix_(~kept, ~kept)]
            without, added = rest + float(of @ np.linalg.solve(block, of)), len(of)
        else:
            _, without, others = _explained(squares[np.ix_(kept, kept)], products[kept], total)
            added = rank - others
        share = 1.0 - rest / without if without > 0.0 else 0.0
        score = _f_score(added, free, share) if added else 0.0
        found[parameter.name] = _Influence(share, score, free if added else 0)
    return found


def _may_hide(
    parameter: Parameter, parameters: Sequence[Parameter], results: Sequence[tuple[Params, float]]
) -> bool:
    """Return whether a hyperparameter without influence on the whole may have one in places.

    It may change that of another one, or have one among the best trials, where most others diverge.
    """
    best = sorted(results, key=lambda result: result[1])[:_BEST]
    alone = _columns(parameter, [params[parameter.name] for params, _ in best])
    if _added_score([], alone, best) >= _HIDDEN:
        return True
    others, products = list[_Floats](), list[_Floats]()
    mine = _columns(parameter, [params[parameter.name] for params, _ in results])
    for each in parameters:
        if each is not parameter:
            columns = _columns(each, [params[each.name] for params, _ in results])
            others += columns
            is_number = isinstance(each, FloatParameter | IntParameter)
            linear = columns[:1] if is_number else columns
            products += [one * other for one in mine for other in linear]
    return _added_score(others, [*mine, *products], results) >= _HIDDEN


def _added_score(
    base: Sequence[_Floats], added: Sequence[_Floats], results: Sequence[tuple[Params, float]]
) -> float:
    """Return a normal score of what columns add to others; infinite with too few trials."""
    table = np.array([np.ones(len(results)), *base, *added])
    if len(results) < len(table) + _LEAST_FREE:
        return math.inf
    scores = _normal_scores([value for _, value in results])
    squares, products, total = table @ table.T, table @ scores, float(scores @ scores)
    _, rest, rank = _explained(squares, products, total)
    kept = 1 + len(base)
    _, without, others = _explained(squares[:kept, :kept], products[:kept], total)
    if rank == others or without <= 0.0:
        return 0.0
    return _f_score(rank - others, len(results) - rank, 1.0 - rest / without)


def _columns(parameter: Parameter, values: Sequence[ParamValue]) -> list[_Floats]:
    if isinstance(parameter, FloatParameter | IntParameter):
        places = 2.0 * np.array([parameter.to_unit(value) for value in values]) - 1.0
        return [places, places**2]
    listed = parameter.values or ()
    return [np.array([float(each == value) for each in values]) for value in listed[1:]]


def _normal_scores(values: Sequence[float]) -> _Floats:
    """Return the values' places in a normal distribution: a few far values count no more."""
    places = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    inverse = NormalDist().inv_cdf
    return np.array([inverse((place + 0.5) / len(values)) for place in places])


def _explained(squares: _Floats, products: _Floats, total: float) -> tuple[_Floats, float, int]:
    """Return the columns' weights, the squares that they leave, and their rank."""
    weights, _, rank, _ = np.linalg.lstsq(squares, products, rcond=1e-9)
    left = max(0.0, total - float(weights @ products))
    return weights.astype(np.float64), left, int(rank)


def _f_score(added: int, free: int, share: float) -> float:
    """Return a normal score of the F test of a partial R² (Wilson and Hilferty 1931, for F).

    >>> round(_f_score(2, 40, 0.139), 2)  # F = 3.23: one of twenty by chance
    1.65
    """
    if share >= 1.0:
        return math.inf
    root = math.pow(max(0.0, share / (1.0 - share)) * free / added, 1 / 3)
    one, other = 2.0 / (9.0 * added), 2.0 / (9.0 * free)
    return ((1.0 - other) * root - (1.0 - one)) / math.sqrt(other * root**2 + one)
