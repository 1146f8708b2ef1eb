"""Bayesian optimisation with a Gaussian process and the expected improvement."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Mapping, Sequence

import numpy as np

from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Suggestion
from ..common.encoding import Encoding, Floats
from ..common.learning import LearningSampler
from ..common.observations import Observations
from ..common.one_thread import one_thread
from ..common.untried import Keyed
from .acquisition_optimizer import AcquisitionOptimizer, perturbed_rows, uniform_rows
from .hypervolume import FrontSurrogate, fit_front
from .kernel_features import KernelFeatures
from .success import SuccessModel, success_model
from .surrogate import Surrogate, SurrogateFitter, comparable

# Measured (benchmarks/search_quality.py, benchmarks/search_with_stopping.py):
_START = 5
"""Finished trials from which on the model is used."""
_DESIGN_CHOICES = 8
"""Points of the initial design that are compared once a trial failed."""
_DESIGN_STRIDE = 1_009
"""Distance of their numbers: a prime, since points whose numbers differ by a multiple of a base are
close together in its coordinate."""
_CANDIDATES = 512
"""Random candidates in the whole space; half as many more are drawn near the best trials."""
_LOCAL_SEARCHES = 5
"""The best candidates of each kind, which start a local search."""
_MOST_OBJECTIVES = 3
"""Objectives whose hypervolume is improved at once: with more there are too many boxes."""
_RANDOM_SHARE = 0.5
"""Share of random suggestions once trials are compared at rungs."""
_FALLBACK_DRAWS = 64
"""Untried configurations that are compared if all candidates were tried."""

Model = Surrogate | FrontSurrogate


class BayesianSampler(LearningSampler):
    """Suggests the configuration with the greatest expected improvement.

    - The model: `gaussian_process` on `kernel_features`, which cover conditional parameters; the
      kernel's parameters are the most probable ones (`surrogate`).
    - The acquisition function: the logarithm of the expected improvement (`acquisition`) of valid
      configurations; steps, choices and whole numbers are rounded first. Random candidates and
      candidates near the best trials are compared, and the best start local searches
      (`acquisition_optimizer`).
    - Running trials count with the predicted value (kriging believer), so that parallel
      suggestions differ.
    - FAILED trials have no value. The expected improvement is lower where others failed
      (`success`).
    - Several objectives: each has a model, and the expected improvement is that of the
      hypervolume (`hypervolume`). Of more than three, each suggestion takes three by chance.
      One that was the same in all trials is left out.
    - Initial design: a scrambled Halton sequence.
    - With early stopping, half of the suggestions are random, as with `tpe`.
    - Of more than 1,000 finished trials the model contains 1,000: the best third, and evenly
      chosen others. So the time for a suggestion is bounded.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        directions: Sequence[Direction],
    ) -> None:
        super().__init__(space, seed, directions=directions)
        self._objectives = len(directions)
        self._kernel_features = KernelFeatures(self._encoding)
        self._fitter = SurrogateFitter(self._kernel_features)

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """Return a configuration for each number; those before it count as running."""
        seen = self._history.observations()
        if not self._is_enough(seen):
            return self._initial(numbers, seen)
        with one_thread():
            models, success = self._models(), success_model(seen, self._kernel_features)
            return self._untried.suggest(
                numbers,
                self._seed,
                "bayesian",
                lambda number, rng, pending: self._proposed(
                    models(number, pending), success, rng, pending
                ),
                random_share=_RANDOM_SHARE if self._history.has_rungs else 0.0,
            )

    def _models(self) -> Callable[[int, Mapping[Hashable, Params]], Model]:
        """Return a function from a trial number and the suggestions before it to the model."""
        seen = [self._history.of_objective(each) for each in range(self._objectives)]
        # The model of an objective that was always the same expects gains wherever no trial was.
        seen = [each for each in seen if np.ptp(comparable(each)) > 0.0] or seen[:1]
        if len(seen) > _MOST_OBJECTIVES:

            def of_some(number: int, pending: Mapping[Hashable, Params]) -> Model:
                drawn = np.random.default_rng(number).permutation(len(seen))[:_MOST_OBJECTIVES]
                return self._fantasies([seen[each] for each in drawn]).of(pending)

            return of_some
        shared = self._fantasies(seen)
        return lambda _, pending: shared.of(pending)

    def _fantasies(self, seen: Sequence[Observations]) -> _Fantasies:
        several = len(seen) > 1
        fitter, features = self._fitter, self._kernel_features
        model = fit_front(fitter, features, seen) if several else fitter.fit(seen[0])
        return _Fantasies(model, self._encoding, features)

    def _initial(self, numbers: Sequence[int], seen: Observations) -> list[Suggestion]:
        """Return suggestions of the initial design; after failures, those that likely succeed."""
        with one_thread() if seen.failed else contextlib.nullcontext():
            success = success_model(seen, self._kernel_features)
            return self._untried.suggest(
                numbers,
                self._seed,
                "bayesian (start)",
                self._start
                if success is None
                else lambda number, rng, pending: self._likely(success, number, rng, pending),
            )

    def _likely(
        self,
        success: SuccessModel,
        number: int,
        rng: np.random.Generator,
        pending: Mapping[Hashable, Params],
    ) -> Keyed | None:
        points = range(number, number + _DESIGN_CHOICES * _DESIGN_STRIDE, _DESIGN_STRIDE)
        fresh = [each for point in points if (each := self._start(point, rng, pending))]
        if not fresh:
            return None
        rows = self._encoding.rows(params for _, params in fresh)
        features = self._kernel_features.of_observed(rows)
        return fresh[int(success.log_factor(features).argmax())]

    def _is_enough(self, seen: Observations) -> bool:
        """Return whether there is enough to learn from, and something to search."""
        has_parameters = self._kernel_features.parameters > 0
        return seen.finished >= _START and seen.valued >= 2 and has_parameters

    # --- the search ---------------------------------------------------------------------------

    def _proposed(
        self,
        model: Model,
        success: SuccessModel | None,
        rng: np.random.Generator,
        pending: Mapping[Hashable, Params],
    ) -> Keyed | None:
        encoding = self._encoding
        acquisition = AcquisitionOptimizer(
            encoding,
            self._kernel_features,
            model.acquisition(),
            success,
        )
        random_rows = uniform_rows(encoding, rng, _CANDIDATES)
        near_rows = perturbed_rows(
            encoding,
            model.promising[rng.integers(len(model.promising), size=_CANDIDATES // 2)],
            rng,
        )
        drawn = np.concatenate([random_rows, near_rows])
        values = acquisition.values(drawn)
        ranked = np.argsort(-values, kind="stable")
        is_random = ranked < len(random_rows)
        starts = np.concatenate(
            [
                ranked[is_random][:_LOCAL_SEARCHES],
                ranked[~is_random][:_LOCAL_SEARCHES],
            ]
        )
        spare = rng.random(len(encoding))
        improved = self._rounded(acquisition.local_search(drawn[starts], rng)[0], spare)
        rows = np.concatenate([improved, drawn])
        order = np.argsort(-np.append(acquisition.values(improved), values), kind="stable")
        found = self._untried.first_untried(
            (encoding.decode(rows[i], spare) for i in order), pending
        )
        if found is not None or self._untried.is_infinite:
            return found
        # All candidates were tried, so few configurations are left.
        return self._best_fresh(
            rng,
            pending,
            draws=_FALLBACK_DRAWS,
            losses=lambda rows: -acquisition.values(np.nan_to_num(rows)),
        )

    def _rounded(self, rows: Floats, spare: Floats) -> Floats:
        """Return these full rows, rounded to valid values of the parameters."""
        encoded = [self._encoding.encode(self._encoding.decode(row, spare)) for row in rows]
        return np.array(
            [
                row if exact is None else np.where(np.isnan(exact), row, exact)
                for row, exact in zip(rows, encoded, strict=True)
            ]
        )


class _Fantasies:
    """The model with a fantasy for each configuration that was just suggested."""

    def __init__(self, model: Model, encoding: Encoding, kernel_features: KernelFeatures) -> None:
        self._model = model
        self._encoding = encoding
        self._kernel_features = kernel_features
        self._added = 0

    def of(self, pending: Mapping[Hashable, Params]) -> Model:
        """Return the model with fantasies of `pending`; those of the last call come first in it."""
        rows = self._encoding.rows([*pending.values()][self._added :])
        for features in self._kernel_features.of_observed(rows):
            self._model = self._model.with_fantasy(features)
        self._added = len(pending)
        return self._model
