"""Bayesian optimisation: a Gaussian process of all trials, and where it promises improvement."""

from __future__ import annotations

import enum
import hashlib
import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from threadpoolctl import ThreadpoolController

from ..core.sampler import Sampler
from ..core.seeds import Purpose, generator
from ..core.space import SearchSpace
from ..core.trial import Direction, Params, Suggestion, Trial, TrialState
from .axes import Axes, Floats, Integers
from .embedding import Embedding
from .gaussian_process import Belief, Beliefs, GaussianProcess, Kernel, Posterior
from .halton import Halton
from .landscape import Landscape, anywhere, nearby
from .unseen import Unseen

_REDRAWS = 64
_PICKS = 64
_KERNELS_KEPT = 16
_Keyed = tuple[Hashable, Params]


class _Tier(enum.IntEnum):
    """How trials rank before their values are looked at."""

    COMPLETE = 0
    PRUNED = 1
    FAILED = 2
    UNFINISHED = 3


def _beliefs() -> Beliefs:
    return Beliefs(length=Belief(median=0.5, spread=1.0, least=0.02, most=50.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class BayesianSettings:
    """What can be chosen; the defaults were measured (benchmarks/search_quality.py).

    Attributes:
        start: Finished trials before the model takes over.
        candidates: How many configurations are looked at before the best of them are improved.
        climbers: How many of them are.
        most_fitted: The kernel is fitted on at most so many trials.
        most_modelled: The model knows at most so many finished trials.
        beliefs: What is believed of the kernel beforehand.
    """

    start: int = 5
    candidates: int = 512
    climbers: int = 10
    most_fitted: int = 400
    most_modelled: int = 1000
    beliefs: Beliefs = field(default_factory=_beliefs)
    transform: str = "yj"


class BayesianSampler(Sampler):
    """Models the values by a Gaussian process, and proposes where the expected improvement is most.

    Args:
        space: What to search.
        seed: The study's seed.
        direction: Which values are better.
        settings: What to do otherwise than usual.
    """

    def __init__(
        self,
        space: SearchSpace,
        seed: int,
        *,
        direction: Direction,
        settings: BayesianSettings | None = None,
    ) -> None:
        self._space = space
        self._seed = seed
        self._sign = 1.0 if direction is Direction.MIN else -1.0
        self._settings = BayesianSettings() if settings is None else settings
        self._axes = Axes(space)
        self._embedding = Embedding(self._axes)
        self._start = Halton(len(self._axes), generator(seed, Purpose.SUGGESTION, 0, 1))
        self._unseen = Unseen(space)
        self._libraries = ThreadpoolController()
        self._told: dict[int, _Told] = {}
        self._model: _Model | None = None
        self._kernels: dict[bytes, Kernel] = {}

    def tell(self, trial: Trial) -> None:
        """Take note of the trial; only its last standing counts."""
        self._unseen.note(trial.params)
        row = self._axes.encode(trial.params)
        if row is not None:
            self._told[trial.number] = _Told(row, *self._judge(trial))
            self._model = None

    def ask(self, numbers: Sequence[int]) -> list[Suggestion]:
        """One configuration for each number, each with those before it taken for running."""
        # Sums over several threads would depend on how many cores a machine has.
        with self._libraries.limit(limits=1, user_api="blas"):
            return self._answers(numbers)

    def _answers(self, numbers: Sequence[int]) -> list[Suggestion]:
        if self._model is None:
            self._model = self._learned()
        model, answers = self._model, []
        pending: set[Hashable] = set()
        for number in numbers:
            rng = generator(self._seed, Purpose.SUGGESTION, number)
            if model.process is None:
                found = self._first_new([self._start_params(number)], pending)
            else:
                found = self._proposed(model, rng, pending)
            found = found or self._drawn(rng, pending)
            if found is None:
                break
            key, params = found
            pending.add(key)
            row = self._axes.encode(params)
            if row is not None:
                model = self._believing(model, row)
            answers.append(Suggestion(params, "bayesian" if model.process else "bayesian (start)"))
        return answers

    def _judge(self, trial: Trial) -> tuple[_Tier, float]:
        if not trial.state.is_final:
            return _Tier.UNFINISHED, math.inf
        value = math.nan if trial.value is None else self._sign * trial.value
        if trial.state is TrialState.FAILED or not math.isfinite(value):
            return _Tier.FAILED, math.inf
        return (_Tier.PRUNED if trial.state is TrialState.PRUNED else _Tier.COMPLETE), value

    # --- the start ----------------------------------------------------------------------------

    def _start_params(self, number: int) -> Params:
        row = np.full(len(self._axes), np.nan)
        if number:
            return self._axes.decode(row, self._start.point(number))
        for i, axis in enumerate(self._axes.columns):
            default, lowest = axis.parameter.default, axis.parameter.from_unit(0.0)
            # The lowest number is what a parameter has for a default if nobody gave one.
            if not axis.ordered or default != lowest:
                row[i] = axis.encode(default)
        return self._axes.decode(row, np.full(len(self._axes), 0.5))

    # --- the model ----------------------------------------------------------------------------

    def _learned(self) -> _Model:
        settings = self._settings
        told = [self._told[number] for number in sorted(self._told)]
        finished = [each for each in told if each.tier is not _Tier.UNFINISHED]
        rows = np.array([each.row for each in finished]).reshape(len(finished), len(self._axes))
        losses = _losses(finished)
        valued = sum(each.tier < _Tier.FAILED for each in finished)
        if len(finished) < settings.start or valued < 2 or not self._embedding.parameters:
            return _Model(None, math.inf, rows[:0])
        kernel = self._kernel(rows, losses)
        kept = _kept(losses, settings.most_modelled)
        targets = _targets(losses, settings.transform)[kept]
        features = self._features(rows[kept])
        process = GaussianProcess(kernel, self._embedding.groups, features, targets)
        means, _ = process.predict(features)
        best = rows[kept][np.argsort(targets, kind="stable")]
        model = _Model(process, float(means.min()), best)
        for each in told:
            if each.tier is _Tier.UNFINISHED:
                model = self._believing(model, each.row)
        return model

    def _believing(self, model: _Model, row: Floats) -> _Model:
        if model.process is None:
            return model
        features = self._features(row[None])
        mean, _ = model.process.predict(features)
        process = model.process.believing(features[0])
        return _Model(process, min(model.least, float(mean[0])), model.best)

    def _features(self, rows: Floats) -> Floats:
        active = ~np.isnan(rows)
        return self._embedding.features(np.nan_to_num(rows), active)

    def _kernel(self, rows: Floats, losses: Floats) -> Kernel:
        """The kernel, fitted anew only when some more trials are over.

        So that a fresh sampler finds the same one, it depends on nothing but the first so many
        trials. It is fitted to half of them first, and from there to all, which is quicker than
        from nothing, and remembered.
        """
        count = _on_schedule(len(rows))
        return self._kernel_of(rows[:count], losses[:count])

    def _kernel_of(self, rows: Floats, losses: Floats) -> Kernel:
        key = hashlib.blake2b(rows.tobytes() + losses.tobytes()).digest()
        if key in self._kernels:
            return self._kernels[key]
        settings = self._settings
        kept = _kept(losses, settings.most_fitted)
        targets = _targets(losses, settings.transform)[kept]
        posterior = Posterior(
            self._features(rows[kept]), self._embedding.groups, targets, settings.beliefs
        )
        starts = settings.beliefs.starts(self._embedding.parameters)
        fewer = _on_schedule(min(len(rows) // 2, settings.most_fitted))
        if fewer >= settings.start:
            starts = (self._kernel_of(rows[:fewer], losses[:fewer]), starts[1])
        kernel = posterior.mode(starts, steps=40)
        if len(self._kernels) >= _KERNELS_KEPT:
            del self._kernels[next(iter(self._kernels))]
        self._kernels[key] = kernel
        return kernel

    # --- the search ---------------------------------------------------------------------------

    def _proposed(
        self, model: _Model, rng: np.random.Generator, pending: set[Hashable]
    ) -> _Keyed | None:
        if model.process is None:
            return None
        settings, axes = self._settings, self._axes
        landscape = Landscape(axes, self._embedding, model.process, model.least)
        around = model.best[rng.integers(min(len(model.best), 5), size=settings.candidates // 2)]
        wide = anywhere(axes, rng, settings.candidates)
        near = nearby(axes, around, rng)
        share = settings.climbers // 2
        drawn = np.concatenate([wide, near])
        heights = landscape.heights(drawn)
        starts = np.concatenate(
            [
                np.argsort(-heights[: len(wide)], kind="stable")[:share],
                len(wide) + np.argsort(-heights[len(wide) :], kind="stable")[:share],
            ]
        )
        spare = rng.random(len(axes))
        climbed = self._rounded(landscape.climbed(drawn[starts], rng)[0], spare)
        rows = np.concatenate([climbed, drawn])
        order = np.argsort(-np.append(landscape.heights(climbed), heights), kind="stable")
        found = self._first_new((axes.decode(rows[i], spare) for i in order), pending)
        if found is not None or self._unseen.endless:
            return found
        # All candidates are known: little is left. Choose from what is new.
        picks = [self._unseen.pick(rng, pending) for _ in range(_PICKS)]
        fresh = [pick for pick in picks if pick is not None]
        if not fresh:
            return None
        encoded = [axes.encode(params) for _, params in fresh]
        rows = np.nan_to_num([row for row in encoded if row is not None])
        return fresh[int(landscape.heights(rows).argmax())]

    def _rounded(self, rows: Floats, spare: Floats) -> Floats:
        """These full rows, moved to values that the parameters can have."""
        encoded = [self._axes.encode(self._axes.decode(row, spare)) for row in rows]
        return np.array(
            [
                row if exact is None else np.where(np.isnan(exact), row, exact)
                for row, exact in zip(rows, encoded, strict=True)
            ]
        )

    # --- nothing twice ------------------------------------------------------------------------

    def _first_new(self, configurations: Iterable[Params], pending: set[Hashable]) -> _Keyed | None:
        for params in configurations:
            key = self._space.key(params)
            if key not in pending and not self._unseen.is_tried(key):
                return key, params
        return None

    def _drawn(self, rng: np.random.Generator, pending: set[Hashable]) -> _Keyed | None:
        """A random configuration, new if there is one (or if luck has it, in an endless space)."""
        found = self._first_new((self._space.sample(rng) for _ in range(_REDRAWS)), pending)
        if found is not None:
            return found
        if not self._unseen.endless:
            return self._unseen.pick(rng, pending)
        params = self._space.sample(rng)
        return self._space.key(params), params


@dataclass(frozen=True, slots=True, eq=False)
class _Told:
    """What is known of one trial."""

    row: Floats
    tier: _Tier
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """What one question to the sampler rests on."""

    process: GaussianProcess | None
    least: float
    best: Floats


def _on_schedule(count: int) -> int:
    """The last number of trials up to this one for which a kernel is fitted, ever more rarely."""
    return count - count % (1 << max(0, count.bit_length() - 6))


def _losses(finished: Sequence[_Told]) -> Floats:
    complete = [each.loss for each in finished if each.tier is _Tier.COMPLETE]
    valued = [each.loss for each in finished if each.tier < _Tier.FAILED]
    middle = float(np.median(complete)) if complete else -math.inf
    worst = max(valued, default=0.0)
    return np.array(
        [
            each.loss
            if each.tier is _Tier.COMPLETE
            else max(each.loss, middle)
            if each.tier is _Tier.PRUNED
            else worst
            for each in finished
        ]
    )


_POWERS = np.linspace(-2.0, 4.0, 61)


def _targets(losses: Floats, kind: str = "yj") -> Floats:
    """The losses with a mean of 0 and a variance of 1, and nearly normal."""
    if kind == "halfrank":
        return _standard(_half_ranked(losses))
    if kind == "plain":
        return _standard(losses)
    return _standard(_powered(_standard(losses)))


def _half_ranked(losses: Floats) -> Floats:
    from scipy.special import ndtri

    middle = np.median(losses)
    good = losses <= middle
    scale = math.sqrt(float(((losses[good] - middle) ** 2).mean()))
    if not scale > 0:
        return losses
    ranks = (losses[:, None] > losses[None]).sum(1) + 0.5 * (losses[:, None] == losses[None]).sum(1)
    return np.where(good, losses, middle + scale * ndtri(ranks / len(losses)))


def _standard(numbers: Floats) -> Floats:
    centred = numbers - numbers.mean()
    spread = centred.std()
    found: Floats = centred / spread if spread > 0.0 else centred
    return found


def _powered(numbers: Floats) -> Floats:
    """Yeo and Johnson's transformation (2000, eq. 3.1) under which they look most normal."""
    size, up = np.log1p(np.abs(numbers))[:, None], (numbers >= 0.0)[:, None]
    power = np.where(up, _POWERS, 2.0 - _POWERS)
    safe = np.where(np.abs(power) < 1e-9, 1.0, power)
    changed = np.where(np.abs(power) < 1e-9, size, np.expm1(size * safe) / safe)
    changed = np.where(up, changed, -changed)
    stretch = np.where(up, size, -size).sum()
    spread = np.maximum(changed.var(axis=0), 1e-300)
    likelihood = -0.5 * len(numbers) * np.log(spread) + (_POWERS - 1.0) * stretch
    found: Floats = changed[:, likelihood.argmax()]
    return found


def _kept(losses: Floats, most: int) -> Integers:
    if len(losses) <= most:
        return np.arange(len(losses))
    ranked = np.argsort(losses, kind="stable")
    best = ranked[: most // 3]
    rest = np.sort(ranked[most // 3 :])
    chosen = np.linspace(0, len(rest) - 1, most - len(best)).round().astype(np.intp)
    return np.sort(np.concatenate([best, rest[chosen]]))
