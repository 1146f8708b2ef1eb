"""Importance of the hyperparameters: conditional PED-ANOVA, with its uncertainty.

The importance of a hyperparameter is the Pearson divergence between its distribution among the
best trials and its distribution among all trials (Watanabe et al. 2023, "PED-ANOVA", eq. 16). A
conditional hyperparameter is compared within each of its declarations, among the trials in which
that declaration is active ("Conditional PED-ANOVA", arXiv 2601.20800, theorem 4.2), so an inactive
one does not count as a value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...core.space.space import FixedParameter, Parameter, SearchSpace
from ...core.trial import Direction, Params

TOP_SHARE = 0.1
"""Share of the trials that count as the best, as in the papers."""

MIN_TRIALS = 20
"""Trials below which no importance is given: one best trial alone says nothing."""

_CELLS = 50
"""Cells of the grid on which the densities of a continuous hyperparameter are compared."""

_MIN_BANDWIDTH = 0.5 / 1.64
"""Smallest bandwidth in cells: 90 % of a kernel lies within the cell of its observation."""

_RESAMPLES = 100
_INTERVAL = (10.0, 90.0)
"""Percentiles over the resampled trials (bootstrap) that bound the interval."""

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of one hyperparameter.

    Attributes:
        name: The hyperparameter.
        share: Its share of the sum over all hyperparameters, from 0 to 1.
        low: Lower end of the 80 % interval of the share.
        high: Upper end of that interval.
    """

    name: str
    share: float
    low: float
    high: float


def importances(
    space: SearchSpace, results: Sequence[tuple[Params, float]], direction: Direction
) -> list[Importance]:
    """Return the importance of each searched hyperparameter, the largest first.

    Args:
        space: The search space.
        results: Configurations and their values; those that are not finite are left out.
        direction: Direction in which a value is better.

    Returns:
        Empty with fewer than `MIN_TRIALS` results, or if nothing is searched.
    """
    known = [(params, value) for params, value in results if math.isfinite(value)]
    regimes = _regimes(space, [params for params, _ in known])
    if len(known) < MIN_TRIALS or not regimes:
        return []
    sign = 1.0 if direction is Direction.MIN else -1.0
    losses = sign * np.array([value for _, value in known])
    names = list(dict.fromkeys(regime.name for regime in regimes))
    rng = np.random.default_rng(0)  # the same trials give the same report
    weights = [np.ones(len(known))]
    weights += [
        np.bincount(rng.integers(len(known), size=len(known)), minlength=len(known)).astype(float)
        for _ in range(_RESAMPLES)
    ]
    shares = np.array([_shares(names, regimes, losses, each) for each in weights])
    low, high = np.percentile(shares[1:], _INTERVAL, axis=0)
    found = [
        Importance(name, float(shares[0, i]), float(low[i]), float(high[i]))
        for i, name in enumerate(names)
    ]
    return sorted(found, key=lambda each: -each.share)


@dataclass(frozen=True, slots=True, eq=False)
class _Regime:
    """A declaration of a hyperparameter, and the trials in which it was active.

    Attributes:
        name: The hyperparameter.
        is_ordered: Whether neighbouring cells are similar.
        cells: Number of cells.
        trials: The trials in which it was active.
        cell_of: The cell of each of these trials.
    """

    name: str
    is_ordered: bool
    cells: int
    trials: NDArray[np.intp]
    cell_of: NDArray[np.intp]


def _regimes(space: SearchSpace, configurations: Sequence[Params]) -> list[_Regime]:
    places: dict[Parameter, list[tuple[int, float]]] = {}
    for number, params in enumerate(configurations):
        for parameter in space.active(params):
            if isinstance(parameter, FixedParameter) or parameter.name not in params:
                continue
            if not parameter.explain(params[parameter.name]):
                place = parameter.to_unit(params[parameter.name])
                places.setdefault(parameter, []).append((number, place))
    regimes = []
    for parameter, found in places.items():
        values = parameter.values
        is_listed = values is not None and len(values) <= _CELLS
        cells = len(values) if is_listed and values is not None else _CELLS
        if cells == 1:
            continue
        units = np.array([unit for _, unit in found])
        regimes.append(
            _Regime(
                parameter.name,
                is_ordered=getattr(parameter, "ordered", True),
                cells=cells,
                trials=np.array([number for number, _ in found], dtype=np.intp),
                cell_of=np.clip((units * cells).astype(np.intp), 0, cells - 1),
            )
        )
    return regimes


def _shares(
    names: Sequence[str], regimes: Sequence[_Regime], losses: _Floats, weights: _Floats
) -> _Floats:
    """Return the share of each name; `weights` says how often each trial counts."""
    order = np.argsort(losses, kind="stable")
    before = np.cumsum(weights[order])
    cutoff = losses[order[np.searchsorted(before, math.ceil(TOP_SHARE * before[-1]))]]
    best = np.where(losses <= cutoff, weights, 0.0)
    sums = dict.fromkeys(names, 0.0)
    for regime in regimes:
        of_all = _counts(regime, weights)
        of_best = _counts(regime, best)
        if of_all.sum() < 2.0 or not of_best.any():
            continue
        everywhere, at_best = _density(regime, of_all), _density(regime, of_best)
        divergence = float(everywhere @ (at_best / everywhere - 1.0) ** 2)
        active_share = of_all.sum() / before[-1]
        sums[regime.name] += (of_best.sum() / best.sum()) ** 2 / active_share * divergence
    found = np.array([*sums.values()])
    total = found.sum()
    return found / total if total > 0.0 else np.full(len(found), 1.0 / len(found))


def _counts(regime: _Regime, weights: _Floats) -> _Floats:
    return np.bincount(regime.cell_of, weights[regime.trials], regime.cells).astype(float)


def _density(regime: _Regime, counts: _Floats) -> _Floats:
    """Return the probability of each cell: kernels at the observations, and one broad one."""
    total = counts.sum()
    cells = np.arange(regime.cells)
    if not regime.is_ordered:
        observed = np.count_nonzero(counts)
        added = 1.0 / (observed + 1)
        kernels = (counts + total * added) / (1.0 + regime.cells * added)
        found: _Floats = (kernels + 1.0 / regime.cells) / (total + 1.0)
        return found
    # Scott's rule, with the interquartile range where that is smaller.
    mean = cells @ counts / total
    deviation = math.sqrt(((cells - mean) ** 2 @ counts) / max(1.0, total - 1.0))
    summed = np.cumsum(counts)
    lower, upper = np.searchsorted(summed, [0.25 * total, 0.75 * total])
    spread = min(deviation, (cells[min(upper, regime.cells - 1)] - cells[lower]) / 1.34)
    bandwidth = max(_MIN_BANDWIDTH, 1.059 * spread * total**-0.2)
    kernels = _kernels(regime.cells, cells.astype(float), np.full(regime.cells, bandwidth))
    broad = _kernels(
        regime.cells, np.array([(regime.cells - 1) / 2.0]), np.array([float(regime.cells)])
    )[0]
    density: _Floats = (counts @ kernels + broad) / (total + 1.0) + 1e-12
    return density


def _kernels(cells: int, centres: _Floats, bandwidths: _Floats) -> _Floats:
    """Return the probability of each cell (columns) under each truncated normal (rows)."""
    from scipy.special import ndtr

    edges = np.arange(cells + 1) - 0.5
    below = ndtr((edges[None, :] - centres[:, None]) / bandwidths[:, None])
    inside = np.diff(below, axis=1)
    found: _Floats = inside / inside.sum(axis=1, keepdims=True)
    return found
