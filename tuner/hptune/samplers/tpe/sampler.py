"""Search with the tree-structured Parzen estimator (TPE)."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ...core.trial import Params, Suggestion
from ..common.encoding import Booleans, Floats, Integers
from ..common.learning import LearningSampler
from ..common.observations import Observations
from ..common.untried import Keyed
from .parzen_estimator import ParzenEstimator

# Measured (benchmarks/search_quality.py, benchmarks/search_with_stopping.py):
_START = 5
"""Finished trials from which on the model is used."""
_CANDIDATES = 64
_GOOD_SHARE = 0.1
"""Share of the finished trials that are good (gamma)."""
_MAX_GOOD = 25
_RANDOM_SHARE = 0.5
"""Share of random suggestions once trials are compared at rungs."""
_FALLBACK_DRAWS = 16
"""Untried configurations that are compared if all candidates were tried."""
_MIN_WEIGHT = 1e-3
"""Weight of a good trial that does not improve on the others, where the mean is 1."""


class TpeSampler(LearningSampler):
    """Suggests the candidate with the highest ratio of the densities of good and bad trials.

    With l the density of the good trials and g that of the others, the expected improvement
    grows with l / g (Bergstra et al. 2011, "Algorithms for hyper-parameter optimization", eqs. 2
    and 3). Candidates are drawn from l, and the one with the greatest log l - log g is chosen.

    - Both densities are multivariate (Falkner et al. 2018; Watanabe 2023): `parzen_estimator`.
    - Good trials are weighted by their improvement on the best of the others ("EI" weights;
      Watanabe 2023, section 3.2).
    - Running trials count as bad (a constant liar), so that parallel suggestions differ. So do
      FAILED ones. PRUNED trials rank behind COMPLETE ones, by value.
    - Initial design: a scrambled Halton sequence.
    - With early stopping, half of the suggestions are random, where BOHB has a third (Falkner et
      al. 2018, algorithm 2, rho). They take less than half of the epochs, because most are
      stopped at the first rung, and they explore regions without trials.
    """

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return a configuration for each number; those before it count as running."""
        model = self._model(self._history.observations())
        if model is None:
            return self._untried.suggest(numbers, self._seed, "tpe (start)", self._start)
        return self._untried.suggest(
            numbers,
            self._seed,
            "tpe",
            lambda _, rng, pending: self._proposed(model, rng, pending),
            random_share=_RANDOM_SHARE if self._history.has_rungs else 0.0,
        )

    # --- the model ----------------------------------------------------------------------------

    def _model(self, past: Observations) -> _Model | None:
        finished, valued = past.finished, past.valued
        if finished < _START or valued < 2:
            return None
        ranked = np.lexsort((past.losses, past.tiers))
        count = min(math.ceil(_GOOD_SHARE * finished), _MAX_GOOD, valued - 1)
        best, rest = ranked[:count], ranked[count:]
        weights = _improvements(past, best, rest[0])
        return _Model(
            good=ParzenEstimator(self._encoding, past.rows[best], weights),
            others=past.rows[np.sort(rest)],
        )

    def _proposed(
        self, model: _Model, rng: np.random.Generator, pending: Mapping[Hashable, Params]
    ) -> Keyed | None:
        others = np.vstack([model.others, self._encoding.rows(pending.values())])
        bad = ParzenEstimator(self._encoding, others, np.ones(len(others)))

        def gains(rows: Floats, active: Booleans) -> Floats:
            return model.good.log(rows, active) - bad.log(rows, active)

        rows = model.good.sample(rng, _CANDIDATES)
        spare = rng.random(len(self._encoding))
        order = np.argsort(-gains(rows, self._encoding.active(rows)), kind="stable")
        found = self._untried.first_untried(
            (self._encoding.decode(rows[i], spare) for i in order), pending
        )
        if found is not None or self._untried.is_infinite:
            return found
        # All candidates were tried: few configurations are left, or the model is very narrow.
        return self._best_fresh(
            rng,
            pending,
            draws=_FALLBACK_DRAWS,
            losses=lambda rows: -gains(np.nan_to_num(rows), ~np.isnan(rows)),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """The density of the good trials, and the rows of the others."""

    good: ParzenEstimator
    others: Floats


def _improvements(past: Observations, best: Integers, threshold: np.intp) -> Floats:
    """Return by how much each of the best is better than the threshold trial; 1 on average."""
    gains = past.losses[threshold] - past.losses[best]
    gains = np.where(past.tiers[best] == past.tiers[threshold], gains, 0.0)
    mean = gains.mean()
    if not mean > 0.0 or not math.isfinite(mean):
        return np.ones(len(best))
    found: Floats = np.maximum(gains / mean, _MIN_WEIGHT)
    return found
