"""scikit-optimize's Optimizer behind the contract of our samplers."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from ...core.sampler import Sampler
from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Suggestion, Trial
from ..common.encoding import Column, Encoding, Floats
from ..common.initial_design import InitialDesign
from ..common.observations import History, Observations, Tier
from ..common.untried import Keyed, Untried
from ..gp.surrogate import comparable

_MODELS = {"gp": "GP", "forest": "RF", "extra-trees": "ET"}
"""Our names of scikit-optimize's models, and its own."""

SURROGATES: tuple[str, ...] = (*_MODELS, "gbrt")
"""What `--surrogate` accepts."""

_START = 10
_PICKS = 64
_CAUTION = 1.96


class SkoptSampler(Sampler):
    """Asks an `skopt.Optimizer` that is made anew for each suggestion and told all trials.

    - Parameters with many values are positions on their own scale (Real), steps and ordered
      choices are numbered (Integer), words and truth values are categories (Categorical).
    - The expected improvement decides, as for scikit-optimize's forests; its default for the
      Gaussian process remembers how earlier suggestions fared, and nothing is remembered here.
    - Inactive parameters stand at their defaults, for scikit-optimize knows no conditions.
    - Trials that run are told with the best value so far (a constant liar, its `cl_min`); FAILED
      ones with the worst, and PRUNED ones with what they had reached, but at best the median.
    - The first ten trials, its own number, are spread by a Halton sequence.
    - What it proposes a second time is replaced by the new configuration, of some drawn at
      random, whose lower confidence bound is least.

    A suggestion costs one fit of the model to all trials: with the Gaussian process about a second
    at 100 trials, and minutes at 1,000.

    Args:
        space: What to search.
        seed: The study's seed.
        direction: Which values are better.
        extra_directions: The same of the objectives after the first.
        surrogate: The model, one of `SURROGATES`.
        candidates: How many configurations the acquisition function is worked out for.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        direction: Direction,
        extra_directions: Sequence[Direction] = (),
        surrogate: str = "gp",
        candidates: int = 10_000,
    ) -> None:
        self._seed = seed
        self._surrogate = surrogate
        self._encoding = Encoding(space)
        self._candidates = candidates
        self._searched = [i for i, column in enumerate(self._encoding.columns) if column.count != 1]
        self._defaults = np.array(
            [column.encode(column.parameter.default) for column in self._encoding.columns]
        )
        self._untried = Untried(space)
        self._start = InitialDesign(self._encoding, seed, self._untried)
        self._history = History(self._encoding, directions=(direction, *extra_directions))
        self._libraries = ThreadpoolController()

    def tell(self, trial: Trial) -> None:
        """Take note of the trial; only its last standing counts."""
        self._untried.mark_tried(trial)
        self._history.tell(trial)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """One configuration for each number, each with those before it taken for running."""
        seen = self._history.observations()
        has_model = bool(self._searched) and seen.finished >= _START and seen.valued > 1

        def propose(
            number: int, rng: np.random.Generator, pending: Mapping[Hashable, Params]
        ) -> Keyed | None:
            if has_model:
                return self._proposed(seen, rng, pending)
            return self._start.propose(number, rng, pending)

        return self._untried.suggest(numbers, self._seed, f"skopt {self._surrogate}", propose)

    def _proposed(
        self, seen: Observations, rng: np.random.Generator, pending: Mapping[Hashable, Params]
    ) -> Keyed | None:
        over = seen.tiers != Tier.UNFINISHED
        known = comparable(seen)
        taken = self._encoding.rows(pending.values())
        rows = np.vstack([seen.rows[over], seen.rows[~over], taken])
        lies = np.full(len(rows) - len(known), known.min())
        losses = np.concatenate([known, lies])
        # Sums over several threads would depend on how many cores a machine has.
        with warnings.catch_warnings(), self._libraries.limit(limits=1, user_api="blas"):
            warnings.simplefilter("ignore")
            optimizer = self._optimizer(rng)
            optimizer.tell(self._points(rows), losses.tolist())
            row = np.full(len(self._encoding), np.nan)
            row[self._searched] = optimizer.ask()
            middle = np.full(len(self._encoding), 0.5)
            found = self._untried.first_untried([self._encoding.decode(row, middle)], pending)
            return found or self._most_promising(optimizer, rng, pending)

    def _most_promising(
        self, optimizer: Any, rng: np.random.Generator, pending: Mapping[Hashable, Params]
    ) -> Keyed | None:
        drawn = [self._untried.draw(rng, pending) for _ in range(_PICKS)]
        fresh = [each for each in drawn if each is not None]
        if not fresh:
            return None
        points = self._points(self._encoding.rows(params for _, params in fresh))
        means, spreads = optimizer.models[-1].predict(
            optimizer.space.transform(points), return_std=True
        )
        return fresh[int(np.argmin(means - _CAUTION * spreads))]

    def _optimizer(self, rng: np.random.Generator) -> Any:
        import skopt

        from .gbrt import QuantileGBRT

        seed = int(rng.integers(2**31))
        return skopt.Optimizer(
            [_dimension(self._encoding.columns[i]) for i in self._searched],
            _MODELS.get(self._surrogate) or QuantileGBRT(seed),
            n_initial_points=0,
            acq_func="EI",
            acq_optimizer="auto" if self._surrogate in _MODELS else "sampling",
            acq_optimizer_kwargs={"n_points": self._candidates},
            random_state=seed,
        )

    def _points(self, rows: Floats) -> list[list[float]]:
        """These rows as scikit-optimize takes them: whole numbers as int."""
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
