"""Probability that a configuration succeeds, learned from the trials that failed.

Models that need more memory than there is, and trainings that diverge, fail in a part of the space.
A Gaussian process that counts failures as poor values learns wrong values near that part. A
classifier learns where it is, and searches avoid it by the probabilities.

Some failures have nothing to do with the configuration. They must not keep a search away from good
values. So the classifier expects a few, and it counts the more, the better it explains the failures
than a constant rate of failure does.
"""

from __future__ import annotations

import math

import numpy as np
import scipy  # loads its parts when they are used: a study begins without them

from ..common.encoding import Booleans, Floats
from ..common.observations import Observations, Tier
from .gaussian_process import GaussianProcess, Kernel
from .kernel_features import KernelFeatures

# Measured (benchmarks/search_quality.py with benchmarks/memory_limits):
_DEPENDENT_ODDS = 10.0
"""Prior odds that failures depend on the configuration."""
_INDEPENDENT_RATE = (1.0, 9.0)
"""Beta prior of the rate of failures that do not."""
_CHANCE = 0.03
"""Probability of an end other than the configuration's."""
_VARIANCE = 1000.0
_LENGTH = 3.0
"""Length scale with one or two parameters. With this length and variance the latent function is
nearly a plane, as the logarithm of a model's memory is."""
_MEAN = 1.0
"""Latent value far from all trials: most configurations succeed."""
_MAX_OBSERVATIONS = 200
_STEPS = 12
"""Newton steps for the latent values."""
_MAX_STEP = 2.0
_NO_STEP = 1e-3
"""Largest change of a latent value in a step, and the one after which no step follows."""
_MIN_CURVATURE = 1e-3


class SuccessModel:
    """Binary classification by a Gaussian process (GPML sections 3.4, 3.5 and 3.9).

    The link is the probit function, with `_CHANCE` at both ends. Laplace's approximation is a
    regression with pseudo-targets, whose noise is the inverse curvature of the log likelihood.

    Args:
        kernel_features: Features of the space's rows.
        rows: Rows of the finished configurations (n x columns); NaN for inactive parameters.
        succeeded: Which of them succeeded (n).
    """

    def __init__(
        self,
        kernel_features: KernelFeatures,
        rows: Floats,
        succeeded: Booleans,
    ) -> None:
        features = kernel_features.of_observed(rows)
        scale = math.sqrt(max(1.0, kernel_features.parameters / 2))
        lengths = np.full(kernel_features.parameters, _LENGTH * scale)
        kernel = Kernel(lengths, _VARIANCE, 1.0)
        signs = np.where(succeeded, 1.0, -1.0)
        latent = np.zeros(len(signs))
        for _ in range(_STEPS):
            fit, slope, curvature = _likelihood(latent, signs)
            self._process = GaussianProcess(
                kernel,
                kernel_features.groups,
                features,
                latent + slope / curvature,
                counts=curvature,
            )
            mean, _ = self._process.predict(features)
            change = np.clip(mean - latent, -_MAX_STEP, _MAX_STEP)
            if np.abs(change).max() < _NO_STEP:
                break
            latent = latent + change
        volume = self._process.log_determinant + float(np.log(curvature).sum())
        evidence = fit - 0.5 * float(latent @ slope) - 0.5 * volume
        odds = math.log(_DEPENDENT_ODDS) + evidence - _independent_evidence(succeeded)
        self._dependence = float(scipy.special.expit(odds))

    def log_factor(self, features: Floats, caution: float = 1.0) -> Floats:
        """Return the logarithm of the factor for the gain expected at each point."""
        mean, deviation = self._process.predict(features)
        z = (mean + _MEAN) / np.hypot(1.0, deviation)
        found: Floats = caution * self._dependence * scipy.special.log_ndtr(z)
        return found

    def log_factor_with_gradients(self, features: Floats, caution: float) -> tuple[Floats, Floats]:
        """Return the logarithms of the factors, and their derivatives by each feature."""
        mean, deviation, by_mean, by_deviation = self._process.predict_with_gradients(features)
        scale = np.hypot(1.0, deviation)
        z = (mean + _MEAN) / scale
        logs = scipy.special.log_ndtr(z)
        slopes = np.exp(-0.5 * z * z - logs) / math.sqrt(2.0 * math.pi)
        gradients = (by_mean - (z * deviation / scale)[:, None] * by_deviation) / scale[:, None]
        power = caution * self._dependence
        return power * logs, (power * slopes)[:, None] * gradients


def success_model(seen: Observations, kernel_features: KernelFeatures) -> SuccessModel | None:
    """Return the model of these observations; None if nothing failed or there is no parameter."""
    if not seen.failed or not kernel_features.parameters:
        return None
    finished = np.flatnonzero(seen.tiers != Tier.UNFINISHED)
    if len(finished) > _MAX_OBSERVATIONS:
        places = np.linspace(0, len(finished) - 1, _MAX_OBSERVATIONS)
        finished = finished[places.round().astype(np.intp)]
    return SuccessModel(
        kernel_features,
        seen.rows[finished],
        seen.tiers[finished] < Tier.FAILED,
    )


def _likelihood(latent: Floats, signs: Floats) -> tuple[float, Floats, Floats]:
    """Return the log likelihood, its derivatives by the latent values and minus the second ones."""
    z = signs * (latent + _MEAN)
    reach = 1.0 - 2.0 * _CHANCE
    chances = _CHANCE + reach * scipy.special.ndtr(z)
    shares = reach * np.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi) / chances
    curvature = np.maximum(shares * (shares + z), _MIN_CURVATURE)
    return float(np.log(chances).sum()), signs * shares, curvature


def _independent_evidence(succeeded: Booleans) -> float:
    """Return the log probability of these results if each fails at the same rate."""
    failures, successes = _INDEPENDENT_RATE
    failed = np.count_nonzero(~succeeded)
    after = scipy.special.betaln(failures + failed, successes + len(succeeded) - failed)
    return float(after - scipy.special.betaln(failures, successes))
