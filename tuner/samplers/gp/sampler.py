"""Bayesian optimisation: a Gaussian process of all trials, and where it promises improvement."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import ThreadpoolController

from ...core.sampler import Sampler
from ...core.space.space import SearchSpace
from ...core.trial import Direction, Params, Suggestion, Trial
from ..common.encoding import Encoding, Floats
from ..common.initial_design import InitialDesign
from ..common.observations import History
from ..common.untried import Keyed, Untried
from .acquisition_optimizer import AcquisitionOptimizer, anywhere, nearby
from .kernel_features import KernelFeatures
from .surrogate import Learner, Surrogate, SurrogateSettings

_PICKS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BayesianSettings:
    """What can be chosen; the defaults were measured (benchmarks/search_quality.py).

    Attributes:
        start: Finished trials before the model takes over.
        candidates: How many configurations are looked at all over the space, and half as many
            near the best ones.
        climbers: From how many of the best of both the search goes on.
        around: How many of the best trials others are looked for near to.
        worth: What counts as an improvement, in standard deviations of the (transformed) values.
            Without it, a search that has found a valley goes on to polish its lowest point.
        random_share: Which part of the suggestions is drawn at random once trials are compared
            at rungs (benchmarks/search_with_stopping.py).
        model: What can be chosen about the model.
    """

    start: int = 5
    candidates: int = 512
    climbers: int = 5
    around: int = 5
    worth: float = 0.001
    random_share: float = 0.5
    model: SurrogateSettings = field(default_factory=SurrogateSettings)


class BayesianSampler(Sampler):
    """Proposes what a Gaussian process of all trials expects to improve most on the best.

    - The model: `gaussian_process` on `kernel_features`, which cover conditional parameters; the
      kernel's parameters are the most probable ones (`surrogate`).
    - The improvement is expected of configurations that exist: steps, choices and whole numbers
      are rounded first. It is looked for in many places of the space and around the best trials,
      and from the best of these by climbing (`optimizer`).
    - Trials that run count as if they had ended as predicted, so that simultaneous suggestions
      keep apart.
    - FAILED trials count as if they had been as bad as the worst one.
    - The start: a scrambled Halton sequence.
    - With early stopping, half of the suggestions are drawn at random, as `tpe`'s are.
    - Of more than 1,000 finished trials the model knows 1,000: the best third, and of the others
      every so many-th. So the cost of a suggestion does not grow any more.

    Args:
        space: What to search.
        seed: The study's seed.
        direction: Which values are better.
        extra_directions: The same of the objectives after the first.
        settings: What to do otherwise than usual.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        direction: Direction,
        extra_directions: Sequence[Direction] = (),
        settings: BayesianSettings | None = None,
    ) -> None:
        self._seed = seed
        self._settings = BayesianSettings() if settings is None else settings
        self._encoding = Encoding(space)
        self._kernel_features = KernelFeatures(self._encoding)
        self._learner = Learner(self._kernel_features, self._settings.model)
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
        # Sums over several threads would depend on how many cores a machine has.
        with self._libraries.limit(limits=1, user_api="blas"):
            model = self._learned()
            if model is None:
                return self._untried.suggest(
                    numbers, self._seed, "bayesian (start)", self._start.propose
                )
            fantasies = _Fantasies(model, self._encoding, self._kernel_features)
            return self._untried.suggest(
                numbers,
                self._seed,
                "bayesian",
                lambda _, rng, pending: self._proposed(fantasies.of(pending), rng, pending),
                random_share=self._settings.random_share if self._history.has_rungs else 0.0,
            )

    def _learned(self) -> Surrogate | None:
        seen = self._history.observations()
        if (
            seen.finished < self._settings.start
            or seen.valued < 2
            or not self._kernel_features.parameters
        ):
            return None
        return self._learner.learn(seen)

    # --- the search ---------------------------------------------------------------------------

    def _proposed(
        self, model: Surrogate, rng: np.random.Generator, pending: Mapping[Hashable, Params]
    ) -> Keyed | None:
        settings, encoding = self._settings, self._encoding
        optimizer = AcquisitionOptimizer(
            encoding, self._kernel_features, model.process, model.least - settings.worth
        )
        best = model.best[: settings.around]
        wide = anywhere(encoding, rng, settings.candidates)
        near = nearby(encoding, best[rng.integers(len(best), size=settings.candidates // 2)], rng)
        drawn = np.concatenate([wide, near])
        values = optimizer.values(drawn)
        ranked = np.argsort(-values, kind="stable")
        is_wide = ranked < len(wide)
        starts = np.concatenate(
            [ranked[is_wide][: settings.climbers], ranked[~is_wide][: settings.climbers]]
        )
        spare = rng.random(len(encoding))
        climbed = self._rounded(optimizer.local_search(drawn[starts], rng)[0], spare)
        rows = np.concatenate([climbed, drawn])
        order = np.argsort(-np.append(optimizer.values(climbed), values), kind="stable")
        found = self._untried.first_untried(
            (encoding.decode(rows[i], spare) for i in order), pending
        )
        if found is not None or self._untried.is_infinite:
            return found
        # All candidates are known: little is left. Choose from what is new.
        picks = [self._untried.draw_uniformly(rng, pending) for _ in range(_PICKS)]
        fresh = [pick for pick in picks if pick is not None]
        if not fresh:
            return None
        rows = np.nan_to_num(encoding.rows(params for _, params in fresh))
        return fresh[int(optimizer.values(rows).argmax())]

    def _rounded(self, rows: Floats, spare: Floats) -> Floats:
        """These full rows, moved to values that the parameters can have."""
        encoded = [self._encoding.encode(self._encoding.decode(row, spare)) for row in rows]
        return np.array(
            [
                row if exact is None else np.where(np.isnan(exact), row, exact)
                for row, exact in zip(rows, encoded, strict=True)
            ]
        )


class _Fantasies:
    """The model, and what it becomes with each configuration that was just answered."""

    def __init__(
        self, model: Surrogate, encoding: Encoding, kernel_features: KernelFeatures
    ) -> None:
        self._model = model
        self._encoding = encoding
        self._kernel_features = kernel_features
        self._added = 0

    def of(self, pending: Mapping[Hashable, Params]) -> Surrogate:
        """The model that believes in all of these, which begin with those of the last call."""
        rows = self._encoding.rows([*pending.values()][self._added :])
        for features in self._kernel_features.features(np.nan_to_num(rows), ~np.isnan(rows)):
            self._model = self._model.with_fantasy(features)
        self._added = len(pending)
        return self._model
