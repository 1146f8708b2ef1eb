"""Importance of the hyperparameters: conditional PED-ANOVA, with its uncertainty.

The importance of a hyperparameter is the Pearson divergence between its distribution among the
best trials and its distribution among all trials (Watanabe et al. 2023, "PED-ANOVA", eq. 16). A
conditional hyperparameter is compared within each of its declarations, among the trials in which
that declaration is active ("Conditional PED-ANOVA", arXiv 2601.20800, theorem 4.2), so an inactive
one does not count as a value.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from ... import text
from ...core.kinds import enumerated
from ...core.space.space import FixedParameter, Parameter, SearchSpace
from ...core.trial import Direction, Params, Trial

TOP_SHARE = 0.1
"""Share of the trials that count as the best, as in the papers."""

MIN_TRIALS = 20
"""Trials below which no importance is given: one best trial alone says nothing."""

_CELLS = 50
"""Cells of the grid on which the densities of a continuous hyperparameter are compared."""

_MIN_BANDWIDTH = 0.5 / 1.64
"""Smallest bandwidth in cells: 90 % of a kernel lies within the cell of its observation."""

_INTERVAL = (10.0, 90.0)
"""Percentiles over the resampled trials (bootstrap) that bound the interval."""

_NUMBERS_AT_ONCE = 2_000_000
"""Samples times trials that are computed together: more need more memory, and are no faster."""

_ESTIMATED_TRIALS, _SHUFFLES = 400, 79
"""Trials of `estimated`, and how often they are shuffled; the live page often needs it."""

_MATTERS = 0.1
"""Share of the importance from which on a hyperparameter is named after the first one."""

_ERF = np.frompyfunc(math.erf, 1, 1)

_Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Importance:
    """The importance of one hyperparameter.

    Attributes:
        name: The hyperparameter.
        share: Its share of the sum over all hyperparameters, from 0 to 1.
        low: Lower end of the 80 % interval of the share.
        high: Upper end of that interval.
        chance: The chance that some hyperparameter looks as important if none is; 1 if unknown.
    """

    name: str
    share: float
    low: float
    high: float
    chance: float = 1.0


def importances(
    space: SearchSpace,
    results: Sequence[tuple[Params, float]],
    direction: Direction,
    *,
    resamples: int = 100,
    shuffles: int = 0,
) -> list[Importance]:
    """Return the importance of each searched hyperparameter, the largest first.

    Args:
        space: The search space.
        results: Configurations and their values; those that are not finite are left out.
        direction: Direction in which a value is better.
        resamples: Number of bootstrap samples of the trials for the intervals; with 0, which is
            faster, an interval is the share alone.
        shuffles: Number of random orders of the values for the chance.

    Returns:
        Empty with fewer than `MIN_TRIALS` results, if all values are equal, or if nothing is
        searched.
    """
    known = [(params, value) for params, value in results if math.isfinite(value)]
    regimes = _regimes(space, [params for params, _ in known])
    if len(known) < MIN_TRIALS or not regimes or len({value for _, value in known}) == 1:
        return []
    losses = direction.sign * np.array([value for _, value in known])
    names = list(dict.fromkeys(regime.name for regime in regimes))
    rng = np.random.default_rng(0)  # the same trials give the same report
    weights = [np.ones(len(known))]
    weights += [
        np.bincount(rng.integers(len(known), size=len(known)), minlength=len(known)).astype(float)
        for _ in range(resamples)
    ]
    at_once = max(1, _NUMBERS_AT_ONCE // len(known))
    shares = np.concatenate(
        [
            _shares(names, regimes, losses, np.array(weights[first : first + at_once]))
            for first in range(0, len(weights), at_once)
        ]
    )
    low, high = _interval(shares[0], shares[1:]) if resamples else shares[[0, 0]]
    chance = _chance(names, regimes, losses, shuffles)
    found = [
        Importance(name, float(shares[0, i]), float(low[i]), float(high[i]), chance)
        for i, name in enumerate(names)
    ]
    return sorted(found, key=lambda each: -each.share)


def results_of(trials: Iterable[Trial]) -> list[tuple[Params, float]]:
    """Return configurations and their values, of trials that train no other one's again."""
    return [
        (trial.used, trial.value)
        for trial in trials
        if trial.confirms is None and trial.value is not None
    ]


def estimated(
    space: SearchSpace, results: Sequence[tuple[Params, float]], direction: Direction
) -> list[Importance]:
    """Return the importance by at most 400 of the results, which is fast, and its chance."""
    some = results[:: math.ceil(len(results) / _ESTIMATED_TRIALS) or 1]
    return importances(space, some, direction, resamples=0, shuffles=_SHUFFLES)


def leaders(ranked: Sequence[Importance]) -> str:
    """Return which hyperparameters matter.

    >>> leaders([Importance("rate", 0.74, 0.6, 0.8), Importance("depth", 0.2, 0.1, 0.3)])
    'the most important is rate (74%), then depth (20%)'
    """
    first, *others = ranked
    named = [each for each in others if each.share >= _MATTERS]
    words = [f"{text.clean(each.name)} ({each.share:.0%})" for each in (first, *named)]
    then = f", then {enumerated(*words[1:])}" if named else ""
    less = f"; the others have less than {_MATTERS:.0%} each" if named != others else ""
    return f"the most important is {words[0]}{then}{less}"


def _interval(shares: _Floats, resampled: _Floats) -> _Floats:
    """Return both ends of the intervals around the shares, in two rows.

    Resampled trials are fewer different ones, in which chance weighs more: they understate what is
    important. So their spread is taken around the share, and not where it lies.
    """
    spread = np.percentile(resampled, _INTERVAL, axis=0) - np.median(resampled, axis=0)
    found: _Floats = np.clip(shares + spread, 0.0, 1.0)
    return found


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
    """Return the share of each name (columns) in each sample of the trials (rows).

    Args:
        names: The hyperparameters.
        regimes: Their declarations.
        losses: The trials' values; less is better.
        weights: How often each trial (columns) counts in each sample (rows).
    """
    sums = _divergences(names, regimes, weights, _best(losses, weights))
    all_of = sums.sum(axis=1, keepdims=True)
    return np.where(all_of > 0.0, sums / np.where(all_of > 0.0, all_of, 1.0), 1.0 / len(names))


def _best(losses: _Floats, weights: _Floats) -> _Floats:
    """Return how often each trial counts among the best, in each sample of the trials (rows)."""
    order = np.argsort(losses, kind="stable")
    before = np.cumsum(weights[:, order], axis=1)
    totals = before[:, -1]
    last_best = (before < np.ceil(TOP_SHARE * totals)[:, None]).sum(axis=1)
    cutoffs = losses[order[last_best]]
    return np.where(losses <= cutoffs[:, None], weights, 0.0)


def _chance(
    names: Sequence[str], regimes: Sequence[_Regime], losses: _Floats, shuffles: int
) -> float:
    """Return the chance of a divergence as large as the largest one if nothing matters."""
    if not shuffles:
        return 1.0
    rng, weights = np.random.default_rng(0), np.ones((1, len(losses)))
    (is_best,) = _best(losses, weights)
    best = np.array([is_best, *(rng.permutation(is_best) for _ in range(shuffles))])
    largest = _divergences(names, regimes, weights, best).max(axis=1)
    return float(np.mean(largest >= largest[0]))


def _divergences(
    names: Sequence[str], regimes: Sequence[_Regime], weights: _Floats, best: _Floats
) -> _Floats:
    """Return the divergence of each name (columns) between the best and all trials (rows).

    One row of weights counts for all rows of the best.
    """
    totals = weights.sum(axis=1)
    sums = np.zeros((len(best), len(names)))
    for regime in regimes:
        of_all, of_best = _counts(regime, weights), _counts(regime, best)
        rows = (of_all.sum(axis=1) >= 2.0) & of_best.any(axis=1)
        of_best, known = of_best[rows], rows if len(weights) > 1 else slice(None)
        of_all = of_all[known]
        everywhere, at_best = _densities(regime, of_all), _densities(regime, of_best)
        divergences = (everywhere * (at_best / everywhere - 1.0) ** 2).sum(axis=1)
        active_shares = of_all.sum(axis=1) / totals[known]
        best_shares = of_best.sum(axis=1) / best.sum(axis=1)[rows]
        sums[rows, names.index(regime.name)] += best_shares**2 / active_shares * divergences
    return sums


def _counts(regime: _Regime, weights: _Floats) -> _Floats:
    """Return how many trials lie in each cell (columns), for each sample (rows)."""
    is_in = regime.cell_of[:, None] == np.arange(regime.cells)
    found: _Floats = weights[:, regime.trials] @ is_in.astype(float)
    return found


def _densities(regime: _Regime, counts: _Floats) -> _Floats:
    """Return the probability of each cell, for each sample (rows).

    There is a kernel at each observation, and a broad one.
    """
    total = counts.sum(axis=1, keepdims=True)
    cells = np.arange(regime.cells, dtype=float)
    if not regime.is_ordered:
        observed = np.count_nonzero(counts, axis=1)[:, None]
        added = 1.0 / (observed + 1)
        kernels = (counts + total * added) / (1.0 + regime.cells * added)
        found: _Floats = (kernels + 1.0 / regime.cells) / (total + 1.0)
        return found
    # Scott's rule, with the interquartile range where that is smaller.
    mean = counts @ cells[:, None] / total
    variance = ((cells - mean) ** 2 * counts).sum(axis=1) / np.maximum(1.0, total[:, 0] - 1.0)
    summed = np.cumsum(counts, axis=1)
    lower, upper = ((summed < share * total).sum(axis=1) for share in (0.25, 0.75))
    spread = np.minimum(np.sqrt(variance), (np.minimum(upper, regime.cells - 1) - lower) / 1.34)
    bandwidths = np.maximum(_MIN_BANDWIDTH, 1.059 * spread * total[:, 0] ** -0.2)
    kernels = _smoothed(counts, bandwidths) + _broad_kernel(regime.cells)
    densities: _Floats = kernels / (total + 1.0) + 1e-12
    return densities


@functools.cache
def _broad_kernel(cells: int) -> _Floats:
    """Return the probability of each cell under a normal distribution as broad as all cells."""
    inside = np.diff(_normal((np.arange(cells + 1) - cells / 2.0) / cells))
    found: _Floats = inside / inside.sum()
    return found


def _smoothed(counts: _Floats, bandwidths: _Floats) -> _Floats:
    """Return the sum of a truncated normal distribution around each count, for each sample (rows).

    Each row has its own bandwidth.
    """
    cells = counts.shape[1]
    # Up to each edge around the centre of a cell, and in each cell between them.
    above = _normal((np.arange(cells) + 0.5) / bandwidths[:, None])
    edges = np.hstack([1.0 - above[:, ::-1], above])
    around = np.diff(edges, axis=1)
    inside = (edges[:, cells:] - edges[:, :cells])[:, ::-1]
    kernels = sliding_window_view(around, cells, axis=1)[:, ::-1]
    found: _Floats = np.einsum("sc,scx->sx", counts / inside, kernels)
    return found


def _normal(points: _Floats) -> _Floats:
    """Return the normal distribution function; importing SciPy for it would take longer."""
    return 0.5 + 0.5 * np.asarray(_ERF(points / math.sqrt(2.0)), dtype=float)
