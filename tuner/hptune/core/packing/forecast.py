"""Least squares on logarithms, with the features chosen one by one.

Each step takes the feature that explains most of the rest (orthogonal matching pursuit; Pati et
al. 1993), as long as it improves the prediction of each observation from all others (PRESS; Allen
1974). The same errors give the margin.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..packing_plan import Estimate, Term, TermKind, as_number, traits
from ..trial import Params

_MIN_OBSERVATIONS = 5
"""Observations needed for a regression."""

_MAX_TERMS = 6
_WORTHWHILE = 0.9
"""A feature is taken if it reduces the squared errors to this share or less."""

_EXACT = 1e-6
"""A mean squared error (a thousandth of the value, squared) that needs no further feature."""

_NOTHING = 1e-9
"""A feature whose unexplained part is below this share adds nothing to the others."""

_SMALLEST = 1e-9

_Array = NDArray[np.float64]


def fit(points: Sequence[tuple[Params, float]]) -> Estimate:
    """Return the estimate of a positive quantity from its values for one or more configurations.

    With few observations the bound is more than the largest one: twice as much with two, half as
    much again with four.

    Worked example: memory that grows with `units`, whatever the `rate`::

        >>> seen = [(16, 3.0), (32, 1.0), (64, 2.0), (128, 1.0), (256, 5.0), (48, 4.0)]
        >>> memory = fit([({"units": units, "rate": rate}, 2.0 * units) for units, rate in seen])
        >>> round(memory.typical({"units": 100, "rate": 2.0})), memory.depends_on
        (200, ('units',))
        >>> 200 <= memory.upper({"units": 100, "rate": 2.0}) < 220
        True
    """
    count = len(points)
    configurations = [params for params, _ in points]
    values = [max(_SMALLEST, value) for _, value in points]
    seen = tuple(sorted(set[str]().union(*map(traits, configurations))))
    smallest, median, largest = min(values), statistics.median(values), max(values)
    if count < _MIN_OBSERVATIONS:
        above_all = largest * (1.0 + 2.0 / count)
        margin = math.log(above_all / median)
        return Estimate(math.log(median), margin, smallest, median, largest, seen=seen)
    logarithms: _Array = np.log(np.array(values))
    terms, columns = _candidates(configurations)
    taken = list[int]()
    errors, weights = _solve(columns[:, taken], logarithms)
    while len(taken) < min(_MAX_TERMS, count // 3) and np.mean(errors**2) > _EXACT:
        best = _best_column(columns, taken, logarithms)
        if best is None:
            break
        new_errors, new_weights = _solve(columns[:, [*taken, best]], logarithms)
        if np.mean(new_errors**2) > _WORTHWHILE * np.mean(errors**2):
            break
        taken, errors, weights = [*taken, best], new_errors, new_weights
    freedom = count - len(taken) - 1
    # With few observations, the best of many features does well by chance.
    optimism = 1.0 + 3.0 / count
    return Estimate(
        float(weights[0]),
        optimism * _student(freedom) * math.sqrt(np.mean(errors**2)),
        smallest,
        median,
        largest,
        tuple(
            replace(terms[i], weight=float(weight))
            for i, weight in zip(taken, weights[1:], strict=True)
        ),
        seen,
    )


def _solve(columns: _Array, values: _Array) -> tuple[_Array, _Array]:
    """Return the error of predicting each value from all others, and the intercept and weights."""
    design = np.column_stack([np.ones(len(values)), columns])
    q, r = np.linalg.qr(design)
    rest = values - q @ (q.T @ values)
    free = 1.0 - np.sum(q**2, axis=1)
    # Others say nothing of an observation that alone determines a weight.
    alone = free < 1e-6
    errors = np.where(alone, values - values.mean(), rest / np.where(alone, 1.0, free))
    return errors, np.linalg.solve(r, q.T @ values)


def _best_column(columns: _Array, taken: list[int], values: _Array) -> int | None:
    """Return the column that explains most of what the taken ones leave; None if none does."""
    basis, _ = np.linalg.qr(np.column_stack([np.ones(len(values)), columns[:, taken]]))
    rest = values - basis @ (basis.T @ values)
    left = columns - basis @ (basis.T @ columns)
    lengths = np.linalg.norm(left, axis=0)
    is_new = lengths > _NOTHING * np.maximum(1.0, np.linalg.norm(columns, axis=0))
    if not is_new.any():
        return None
    explained = np.where(is_new, (left.T @ rest) / np.where(is_new, lengths, 1.0), 0.0)
    return int(np.argmax(np.abs(explained)))


def _candidates(configurations: Sequence[Params]) -> tuple[list[Term], _Array]:
    """Return numbers, their logarithms, choices and presences as terms, and a column of each.

    The columns are those of `Term.feature`, computed for all configurations at once.
    """
    terms, columns = list[Term](), list[_Array]()
    for name in dict.fromkeys(name for params in configurations for name in params):
        has = np.array([name in params for params in configurations])
        values = [params[name] for params in configurations if name in params]
        numbers = [number for each in values if (number := as_number(each)) is not None]
        if len(numbers) == len(values):
            usual = statistics.fmean(map(abs, numbers))
            column = np.full(len(has), usual)
            column[has] = numbers
            terms.append(Term(name, TermKind.LINEAR, usual))
            columns.append(column / (usual or 1.0))
            if min(numbers) > 0.0:
                terms.append(Term(name, TermKind.LOG, usual))
                columns.append(np.log(column) - math.log(usual))
        else:
            for choice in dict.fromkeys(values):
                column = np.zeros(len(has))
                column[has] = [value == choice for value in values]
                terms.append(Term(name, TermKind.CHOICE, choice=choice))
                columns.append(column)
        if not has.all():
            terms.append(Term(name, TermKind.PRESENCE))
            columns.append(has.astype(np.float64))
    return terms, np.array(columns).reshape(len(terms), len(configurations)).T


def _student(freedom: int) -> float:
    """Return the 97.5 % quantile of Student's distribution, approximately.

    >>> round(_student(3), 1), round(_student(10), 1), round(_student(1000), 1)
    (3.1, 2.2, 2.0)
    """
    return 1.96 + 2.4 / freedom + 3.0 / freedom**2
