"""From told trials to a model of what an untried configuration would give."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np

from ..common.encoding import Floats, Integers
from ..common.observations import Observations, Tier
from .gaussian_process import GaussianProcess, Kernel, KernelPriors, LogNormalPrior, Posterior
from .kernel_features import KernelFeatures

_POWERS = np.linspace(-2.0, 4.0, 61)
_STEPS = 40
_SURE = 64
_KERNELS_KEPT = 16


def _kernel_priors() -> KernelPriors:
    return KernelPriors(length=LogNormalPrior(median=0.5, spread=1.0, least=0.02, most=50.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class SurrogateSettings:
    """What can be chosen about the model.

    Attributes:
        most_fitted: The kernel is fitted to at most so many configurations.
        most_known: The model knows at most so many finished configurations.
        priors: What is believed of the kernel beforehand.
    """

    most_fitted: int = 400
    most_known: int = 1000
    priors: KernelPriors = field(default_factory=_kernel_priors)


@dataclass(frozen=True, slots=True, eq=False)
class Surrogate:
    """What is believed of the space.

    Attributes:
        process: The model of the targets, of which lower ones are better.
        least: What is to be improved on: the least of the means at what was tried or runs.
        best: The rows of what was tried, best first.
    """

    process: GaussianProcess
    least: float
    best: Floats

    def with_fantasy(self, features: Floats) -> Surrogate:
        """The same while a configuration with these features runs."""
        mean, _ = self.process.predict(features[None])
        least = min(self.least, float(mean[0]))
        return Surrogate(self.process.with_fantasy(features), least, self.best)


class Learner:
    """Makes surrogates; it depends on nothing but the observations, and remembers some work.

    Args:
        kernel_features: The features of the space's rows.
        settings: What can be chosen.
    """

    def __init__(self, kernel_features: KernelFeatures, settings: SurrogateSettings) -> None:
        self._kernel_features = kernel_features
        self._settings = settings
        self._kernels: dict[bytes, Kernel] = {}

    def learn(self, seen: Observations) -> Surrogate:
        """The surrogate of these observations, of which at least one must be finished."""
        over = seen.tiers != Tier.UNFINISHED
        rows, losses, counts = seen.rows[over], comparable(seen), seen.counts[over]
        until = _on_schedule(len(rows))
        kernel = self._kernel(rows[:until], losses[:until], counts[:until])
        targets = standardised(losses)
        kept = _telling(losses, self._settings.most_known)
        rows, targets = rows[kept], targets[kept]
        features = self._features(rows)
        process = GaussianProcess(
            kernel,
            self._kernel_features.groups,
            features,
            targets,
            counts=counts[kept],
        )
        best = rows[np.argsort(targets, kind="stable")]
        found = Surrogate(process, float(process.predict(features)[0].min()), best)
        for running in self._features(seen.rows[~over]):
            found = found.with_fantasy(running)
        return found

    def _features(self, rows: Floats) -> Floats:
        return self._kernel_features.features(np.nan_to_num(rows), ~np.isnan(rows))

    def _kernel(self, rows: Floats, losses: Floats, counts: Integers) -> Kernel:
        """The most probable kernel.

        It is sought from where half of the observations had it, which is quicker than from
        nowhere, and yet the same for whoever was told the same.
        """
        data = b"".join(array.tobytes() for array in (rows, losses, counts))
        key = hashlib.blake2b(data).digest()
        if key in self._kernels:
            return self._kernels[key]
        kept = _telling(losses, self._settings.most_fitted)
        priors = self._settings.priors
        posterior = Posterior(
            self._features(rows[kept]),
            self._kernel_features.groups,
            standardised(losses)[kept],
            priors,
            counts=counts[kept],
        )
        starts = priors.starts(self._kernel_features.parameters)
        half = _on_schedule(min(len(rows) // 2, self._settings.most_fitted))
        if half > 2:
            known = self._kernel(rows[:half], losses[:half], counts[:half])
            starts = (known, *starts[1:]) if half < _SURE else (known,)
        kernel = posterior.mode(starts, steps=_STEPS)
        if len(self._kernels) >= _KERNELS_KEPT:
            del self._kernels[next(iter(self._kernels))]
        self._kernels[key] = kernel
        return kernel


def _on_schedule(count: int) -> int:
    """The last number of observations up to this one to which a kernel is fitted: ever rarer."""
    return count - count % (1 << max(0, count.bit_length() - 5))


def _telling(losses: Floats, most: int) -> Integers:
    """The numbers of the observations to keep: a third are the best, the others are any."""
    if len(losses) <= most:
        return np.arange(len(losses))
    ranked = np.argsort(losses, kind="stable")
    best, others = ranked[: most // 3], np.sort(ranked[most // 3 :])
    chosen = np.linspace(0, len(others) - 1, most - len(best)).round().astype(np.intp)
    return np.sort(np.concatenate([best, others[chosen]]))


def comparable(seen: Observations) -> Floats:
    """The losses of all that is finished, made comparable.

    Those of PRUNED trials are of an earlier step, and these trials were stopped for being poor:
    they are taken for no better than the median of the complete ones. FAILED trials are as bad as
    the worst.
    """
    over = seen.tiers != Tier.UNFINISHED
    tiers = seen.tiers[over]
    losses: Floats = seen.losses[over].copy()
    complete = losses[tiers == Tier.COMPLETE]
    if len(complete):
        early = tiers == Tier.PRUNED
        losses[early] = np.maximum(losses[early], np.median(complete))
    failed = tiers == Tier.FAILED
    losses[failed] = 0.0 if failed.all() else losses[~failed].max()
    return losses


def standardised(losses: Floats) -> Floats:
    """Targets with a mean of 0 and a variance of 1, in the order of the losses, nearly normal.

    Losses of poor trials often are higher by orders of magnitude, and would be all that a model
    of them explains. Yeo and Johnson's transformation (2000, "A new family of power
    transformations to improve normality or symmetry", eq. 3.1) with the most likely power makes
    them comparable.
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
    largest = np.abs(numbers).max()  # its square may be beyond what a float can hold
    centred = numbers / largest if largest > 0.0 else numbers
    centred = centred - centred.mean()
    spread = centred.std()
    found: Floats = centred / spread if spread > 0.0 else np.zeros_like(centred)
    return found
