"""Fit of a Gaussian process to the observed trials."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np

from ..common.encoding import Floats, Integers
from ..common.observations import Observations, Tier
from .acquisition import ExpectedImprovement
from .gaussian_process import GaussianProcess, Kernel, Posterior, starting_kernels
from .kernel_features import KernelFeatures

_POWERS = np.linspace(-2.0, 4.0, 61)
"""Candidates for the power of Yeo and Johnson's transformation."""
_STEPS = 40
"""L-BFGS iterations from each starting kernel."""
_SINGLE_START = 64
"""Number of observations from which the fit starts only at the kernel of the first half of them."""
_PROMISING = 5
"""The best configurations, near which a search draws candidates."""
_MAX_CACHED_KERNELS = 64
_FARTHEST = 30.0
"""Largest loss that is modelled, above the median, in distances of the median from the best.

Of losses beyond it, such as 1e12 of a training that diverged, a model would learn nothing else: all
others would be equal in comparison."""


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """Model of the targets.

    Attributes:
        process: The Gaussian process; lower values are better.
        incumbent: The value to improve on: the lowest predicted mean at the finished and running
            configurations.
        best: Rows of the measured configurations, best first.
    """

    process: GaussianProcess
    incumbent: float
    best: Floats

    @property
    def promising(self) -> Floats:
        """Rows near which the search draws candidates."""
        return self.best[:_PROMISING]

    def acquisition(self) -> ExpectedImprovement:
        """Return the acquisition function."""
        return ExpectedImprovement(self.process, self.incumbent)

    def with_fantasy(self, features: Floats) -> Surrogate:
        """Return the surrogate while a configuration with these features runs."""
        mean, _ = self.process.predict(features[None])
        incumbent = min(self.incumbent, float(mean[0]))
        return replace(self, process=self.process.with_fantasy(features), incumbent=incumbent)


class SurrogateFitter:
    """Fits surrogates, with a cache of kernels that does not change the results.

    Args:
        kernel_features: Features of the space's rows.
        max_fitted: Maximum number of configurations for fitting the kernel.
        max_modelled: Maximum number of finished configurations in the process.
    """

    def __init__(
        self, kernel_features: KernelFeatures, *, max_fitted: int = 400, max_modelled: int = 1000
    ) -> None:
        self._kernel_features = kernel_features
        self._max_fitted = max_fitted
        self.max_modelled = max_modelled
        self._kernels: dict[bytes, Kernel] = {}

    def fit(self, seen: Observations) -> Surrogate:
        """Return the surrogate of these observations, at least one of which has a loss."""
        over = seen.tiers < Tier.FAILED
        rows, losses, counts = seen.rows[over], comparable(seen), seen.counts[over]
        until = _on_schedule(len(rows))
        kernel = self._kernel(rows[:until], losses[:until], counts[:until])
        targets = standardised(limited(losses))
        kept = subset(losses, self.max_modelled)
        rows, targets = rows[kept], targets[kept]
        features = self._kernel_features.of_observed(rows)
        process = GaussianProcess(
            kernel,
            self._kernel_features.groups,
            features,
            targets,
            counts=counts[kept],
        )
        best = rows[np.argsort(targets, kind="stable")]
        incumbent = float(process.predict(features)[0].min())
        found = Surrogate(process, incumbent, best)
        for running in self._kernel_features.of_observed(seen.rows[seen.tiers == Tier.UNFINISHED]):
            found = found.with_fantasy(running)
        return found

    def _kernel(self, rows: Floats, losses: Floats, counts: Integers) -> Kernel:
        """Return the most probable kernel.

        The fit starts at the kernel of the first half of the observations. This is faster than
        the default start, and the result still depends only on the observations.
        """
        # The losses without their limit, which changes with each new best one.
        data = b"".join(array.tobytes() for array in (rows, losses, counts))
        key = hashlib.blake2b(data).digest()
        if key in self._kernels:
            return self._kernels[key]
        kept = subset(losses, self._max_fitted)
        posterior = Posterior(
            self._kernel_features.of_observed(rows[kept]),
            self._kernel_features.groups,
            standardised(limited(losses))[kept],
            counts=counts[kept],
        )
        starts = starting_kernels(self._kernel_features.parameters)
        half = _on_schedule(min(len(rows) // 2, self._max_fitted))
        if half > 2:
            known = self._kernel(rows[:half], losses[:half], counts[:half])
            starts = (known, *starts[1:]) if half < _SINGLE_START else (known,)
        kernel = posterior.mode(starts, steps=_STEPS)
        if len(self._kernels) >= _MAX_CACHED_KERNELS:
            del self._kernels[next(iter(self._kernels))]
        self._kernels[key] = kernel
        return kernel


def _on_schedule(count: int) -> int:
    """Return how many of `count` observations the kernel is fitted to; refits become rarer."""
    return count - count % _refit_interval(count)


def _refit_interval(count: int) -> int:
    """Return after how many more observations the kernel of `count` of them is fitted again."""
    return 1 << max(0, count.bit_length() - 5)


def subset(losses: Floats, most: int) -> Integers:
    """Return indices of at most `most` observations: the best third, and evenly chosen others."""
    if len(losses) <= most:
        return np.arange(len(losses))
    ranked = np.argsort(losses, kind="stable")
    best, others = ranked[: most // 3], np.sort(ranked[most // 3 :])
    chosen = np.linspace(0, len(others) - 1, most - len(best)).round().astype(np.intp)
    return np.sort(np.concatenate([best, others[chosen]]))


def comparable(seen: Observations) -> Floats:
    """Return comparable losses of all measured observations.

    The losses of PRUNED trials are of an earlier step, and these trials were stopped because they
    were poor: they count as no better than the median of the complete ones. FAILED trials have
    none.
    """
    over = seen.tiers < Tier.FAILED
    tiers = seen.tiers[over]
    losses: Floats = seen.losses[over].copy()
    complete = losses[tiers == Tier.COMPLETE]
    if len(complete):
        early = tiers == Tier.PRUNED
        losses[early] = np.maximum(losses[early], np.median(complete))
    return losses


def limited(losses: Floats) -> Floats:
    """Return the losses; those far beyond all others (`_FARTHEST`) are the limit."""
    median = np.median(losses)
    distance = median - losses.min()
    return np.minimum(losses, median + _FARTHEST * distance) if distance > 0.0 else losses


def standardised(losses: Floats) -> Floats:
    """Return nearly normal targets with mean 0 and variance 1, in the order of the losses.

    Losses of poor trials are often higher by orders of magnitude and would dominate the model.
    Yeo and Johnson's transformation (2000, "A new family of power transformations to improve
    normality or symmetry", eq. 3.1) with the most likely power reduces the skew.
    """
    numbers = _scaled(losses)
    size, up = np.log1p(np.abs(numbers))[:, None], (numbers >= 0.0)[:, None]
    power = np.where(up, _POWERS, 2.0 - _POWERS)
    safe = np.where(np.abs(power) < 1e-9, 1.0, power)
    changed = np.where(np.abs(power) < 1e-9, size, np.expm1(size * safe) / safe)
    changed = np.where(up, changed, -changed)
    spread = np.maximum(changed.var(axis=0), 1e-300)
    stretch = np.where(up, size, -size).sum()
    likelihood = -0.5 * len(numbers) * np.log(spread) + (_POWERS - 1.0) * stretch
    return _scaled(changed[:, likelihood.argmax()])


def _scaled(numbers: Floats) -> Floats:
    largest = np.abs(numbers).max()  # its square may overflow
    centred = numbers / largest if largest > 0.0 else numbers
    centred = centred - centred.mean()
    spread = centred.std()
    found: Floats = centred / spread if spread > 0.0 else np.zeros_like(centred)
    return found
