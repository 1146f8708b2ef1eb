"""Adapter of scikit-optimize's `Optimizer`."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Suggestion
from ..common.encoding import Column, Floats
from ..common.learning import LearningSampler
from ..common.observations import Observations, Tier
from ..common.one_thread import one_thread
from ..common.untried import Keyed
from ..gp.surrogate import comparable, limited

_START = 10
"""Finished trials from which on the model is used, as in scikit-optimize."""
_FALLBACK_DRAWS = 64
"""Random configurations that are compared if the suggestion is a repetition."""
_LARGEST = 1e100
"""Largest loss that scikit-optimize is told, which squares losses."""
_KAPPA = 1.96
"""Deviations below the mean in the lower confidence bound, as in scikit-optimize."""


class SkoptSampler(LearningSampler):
    """Asks a new `skopt.Optimizer` with all trials for each suggestion.

    - Parameters with many values are positions on their own scale (Real), steps and ordered
      choices are indices (Integer), unordered choices and booleans are categories (Categorical).
    - The model is the Gaussian process, and the acquisition function the expected improvement.
      Scikit-optimize's default needs state from earlier suggestions.
    - Inactive parameters have their defaults, because scikit-optimize has no conditions.
    - Running trials count with the best value so far (a constant liar, its `cl_min`), FAILED ones
      with the worst, and PRUNED ones with their last value, but at best the median.
    - Initial design: ten trials (scikit-optimize's default) of a Halton sequence.
    - A repeated suggestion is replaced by the one of several random untried configurations with
      the lowest confidence bound.

    A suggestion takes one fit of the model to all trials: about a second at 100 trials and minutes
    at 1,000.

    Args:
        space: The search space.
        seed: The study's seed.
        directions: Directions of the objectives.
        candidates: Number of configurations at which the acquisition function is evaluated.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        directions: Sequence[Direction],
        candidates: int = 10_000,
    ) -> None:
        super().__init__(space, seed, directions=directions)
        self._candidates = candidates
        self._searched = [i for i, column in enumerate(self._encoding.columns) if column.count != 1]
        self._defaults = np.array(
            [column.encode(column.parameter.default) for column in self._encoding.columns]
        )

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return a configuration for each number; those before it count as running."""
        seen = self._history.observations()
        has_model = bool(self._searched) and seen.finished >= _START and seen.valued > 1

        def propose(
            number: int, rng: np.random.Generator, pending: Mapping[Hashable, Params]
        ) -> Keyed | None:
            if has_model:
                return self._proposed(seen, rng, pending)
            return self._start(number, rng, pending)

        return self._untried.suggest(numbers, self._seed, "skopt", propose)

    def _proposed(
        self, seen: Observations, rng: np.random.Generator, pending: Mapping[Hashable, Params]
    ) -> Keyed | None:
        measured, failed = seen.tiers < Tier.FAILED, seen.tiers == Tier.FAILED
        known = np.clip(limited(comparable(seen)), -_LARGEST, _LARGEST)
        worst = np.full(seen.failed, known.max())
        running = np.vstack(
            [seen.rows[seen.tiers == Tier.UNFINISHED], self._encoding.rows(pending.values())]
        )
        rows = np.vstack([seen.rows[measured], seen.rows[failed], running])
        losses = np.concatenate([known, worst, np.full(len(running), known.min())])
        with warnings.catch_warnings(), one_thread():
            warnings.simplefilter("ignore")
            optimizer = self._optimizer(rng)
            optimizer.tell(self._points(rows), losses.tolist())
            row = np.full(len(self._encoding), np.nan)
            row[self._searched] = optimizer.ask()
            middle = np.full(len(self._encoding), 0.5)
            found = self._untried.first_untried([self._encoding.decode(row, middle)], pending)
            return found or self._best_fresh(
                rng,
                pending,
                draws=_FALLBACK_DRAWS,
                losses=lambda rows: self._lower_bounds(optimizer, rows),
            )

    def _lower_bounds(self, optimizer: Any, rows: Floats) -> Floats:
        points = optimizer.space.transform(self._points(rows))
        means, spreads = optimizer.models[-1].predict(points, return_std=True)
        found: Floats = means - _KAPPA * spreads
        return found

    def _optimizer(self, rng: np.random.Generator) -> Any:
        import skopt

        return skopt.Optimizer(
            [_dimension(self._encoding.columns[i]) for i in self._searched],
            "GP",
            n_initial_points=0,
            acq_func="EI",
            acq_optimizer_kwargs={"n_points": self._candidates},
            random_state=int(rng.integers(2**31)),
        )

    def _points(self, rows: Floats) -> list[list[float]]:
        """Return rows in scikit-optimize's form, with indices as int."""
        full = np.where(np.isnan(rows), self._defaults, rows)
        columns = []
        for i in self._searched:
            listed = self._encoding.columns[i].values is not None
            columns.append(full[:, i].astype(np.intp if listed else np.float64).tolist())
        return [list(point) for point in zip(*columns, strict=True)]


def _dimension(column: Column) -> Any:
    from skopt.space import Categorical, Integer, Real

    if column.values is None:
        return Real(0.0, 1.0)
    return Integer(0, column.count - 1) if column.ordered else Categorical(range(column.count))
