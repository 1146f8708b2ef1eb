"""Acquisition functions; with one objective, the logarithm of the expected improvement."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import scipy  # loads its parts when they are used: a study begins without them

from ..common.encoding import Floats
from .gaussian_process import GaussianProcess

HALF_LOG_2PI = 0.5 * math.log(2.0 * math.pi)
_HALF_LOG_HALF_PI = 0.5 * math.log(0.5 * math.pi)
MIN_IMPROVEMENT = 0.001
"""Smallest improvement that counts, in standard deviations of the (transformed) values.

With 0, a search that has found a valley only refines its minimum."""
_FAR = 1e4
"""Standard deviations beyond which 1 / z**2 is exact and the general formula is not."""


class Acquisition(Protocol):
    """How much a configuration is expected to improve on what is known; a logarithm.

    Attributes:
        caution: Power of the probability of success in the factor for it, if failures depend on the
            configuration.
    """

    caution: float

    def values(self, features: Floats) -> Floats:
        """Return the value at each point."""
        ...

    def values_with_gradients(self, features: Floats) -> tuple[Floats, Floats]:
        """Return the value at each point, and its derivatives by each feature."""
        ...


class ExpectedImprovement:
    """The logarithm of the expected improvement on a value.

    Args:
        process: Model of the values; lower is better.
        incumbent: The value to improve on.
    """

    caution = 60.0
    """Near the border of what fails the expected improvement is often larger by orders of magnitude
    than elsewhere, so that a power of 1 would prevent little."""

    def __init__(self, process: GaussianProcess, incumbent: float) -> None:
        self._process = process
        self._incumbent = incumbent - MIN_IMPROVEMENT

    def values(self, features: Floats) -> Floats:
        """Return the value at each point."""
        mean, deviation = self._process.predict(features)
        return log_expected_improvement(mean, deviation, self._incumbent)

    def values_with_gradients(self, features: Floats) -> tuple[Floats, Floats]:
        """Return the value at each point, and its derivatives by each feature."""
        mean, deviation, mean_gradients, deviation_gradients = self._process.predict_with_gradients(
            features
        )
        by_mean, by_deviation = derivatives(mean, deviation, self._incumbent)
        gradients = by_mean[:, None] * mean_gradients + by_deviation[:, None] * deviation_gradients
        return log_expected_improvement(mean, deviation, self._incumbent), gradients


def log_expected_improvement(mean: Floats, deviation: Floats, incumbent: float | Floats) -> Floats:
    """Return log E[max(incumbent - f, 0)] of a normally distributed f.

    Ament et al. 2023, "Unexpected improvements to expected improvement for Bayesian optimization"
    (arXiv:2310.20708), eqs. 8 and 9. The expected improvement itself and its gradient underflow
    far from the best points.
    """
    found: Floats = np.log(deviation) + _log_h((incumbent - mean) / deviation)
    return found


def derivatives(mean: Floats, deviation: Floats, incumbent: float) -> tuple[Floats, Floats]:
    """Return the derivatives of `log_expected_improvement` by the mean and by the deviation."""
    z = (incumbent - mean) / deviation
    log_h = _log_h(z)
    by_mean = -np.exp(scipy.special.log_ndtr(z) - log_h) / deviation
    by_deviation = np.exp(-0.5 * z * z - HALF_LOG_2PI - log_h) / deviation
    return by_mean, by_deviation


def _log_h(z: Floats) -> Floats:
    """Return log(phi(z) + z Phi(z)) with the normal density phi and distribution Phi."""
    found = np.empty_like(z)
    near = z > -1.0
    close = z[near]
    found[near] = np.log(
        np.exp(-0.5 * close * close - HALF_LOG_2PI) + close * np.exp(scipy.special.log_ndtr(close))
    )
    low = -z[~near]
    # Phi(z) |z| / phi(z), which tends to 1 - 1 / z**2.
    ratio = np.log(low * scipy.special.erfcx(low / math.sqrt(2.0))) + _HALF_LOG_HALF_PI
    rest = np.where(low < _FAR, log1mexp(ratio), -2.0 * np.log(low))
    found[~near] = rest - 0.5 * low * low - HALF_LOG_2PI
    return found


def log1mexp(x: Floats) -> Floats:
    """Return log(1 - exp(x)) for x below 0, without cancellation at either end."""
    x = np.minimum(x, -1e-300)
    half = -math.log(2.0)
    far = np.log1p(-np.exp(np.minimum(x, half)))
    found: Floats = np.where(x > half, np.log(-np.expm1(x)), far)
    return found
