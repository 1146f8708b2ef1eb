"""Gaussian process regression.

Equation numbers refer to Rasmussen and Williams 2006, "Gaussian processes for machine learning"
(GPML). All computations are vectorised over points and features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy  # loads its parts when they are used: a study begins without them
from numpy.typing import NDArray

from ..common.encoding import Floats, Integers

_ROOT5 = math.sqrt(5.0)
_MIN_VARIANCE = 1e-12
_MAX_JITTER = 1e-2
"""Noise up to which the Cholesky factorisation is tried again with ten times the noise."""
_NOISY_START = 0.2
"""Noise of the second starting kernel, as a part of the function's variance."""
_MEAN_SPREAD = 0.3
"""Standard deviation of the prior on the constant mean (see `_constant_mean`)."""


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """Matérn-5/2 kernel with a length scale for each group of features (GPML eq. 4.17), and noise.

    k(x, y) = variance (1 + a + a**2 / 3) exp(-a) with a**2 = 5 sum_j (x_j - y_j)**2 / length_j**2.
    """

    lengths: Floats
    variance: float
    noise: float

    @property
    def logs(self) -> Floats:
        """Logarithms of the lengths, the variance and the noise."""
        found: Floats = np.log(np.append(self.lengths, [self.variance, self.noise]))
        return found

    @classmethod
    def from_logs(cls, logs: Floats) -> Kernel:
        """Return the kernel with these logarithms."""
        numbers = np.exp(logs)
        return cls(numbers[:-2], float(numbers[-2]), float(numbers[-1]))


class LogNormalPrior(NamedTuple):
    """Log-normal prior on one of the kernel's parameters, which lies within bounds.

    The spread is the standard deviation of the natural logarithm.
    """

    median: float
    spread: float
    lower: float
    upper: float


# For targets with a variance of about 1.
_LENGTH = LogNormalPrior(median=0.5, spread=1.0, lower=0.02, upper=50.0)
"""Of one or two groups; see `_length_prior`."""
_VARIANCE = LogNormalPrior(median=1.0, spread=1.0, lower=0.05, upper=20.0)
_NOISE = LogNormalPrior(median=1e-4, spread=2.0, lower=1e-6, upper=1.0)


def kernel_priors(groups: int) -> tuple[LogNormalPrior, ...]:
    """Return the priors in the order of `Kernel.logs`."""
    return (*(_length_prior(groups),) * groups, _VARIANCE, _NOISE)


def _length_prior(groups: int) -> LogNormalPrior:
    """Return the prior of a length scale: its median grows with the root of the number of groups.

    Distances in the unit cube grow so, and the prior then expects functions of the same
    complexity (Hvarfner et al. 2024, arXiv 2402.02229, section 4).
    """
    return _LENGTH._replace(median=_LENGTH.median * math.sqrt(max(1.0, groups / 2)))


def starting_kernels(groups: int) -> tuple[Kernel, ...]:
    """Return a kernel that explains the values by the function, and one by noise.

    The posterior often has a mode near each, and an optimiser that starts at one does not find the
    other.
    """
    lengths, variance = np.full(groups, _length_prior(groups).median), _VARIANCE.median
    return (
        Kernel(lengths, variance, _NOISE.median),
        Kernel(2.0 * lengths, variance, _NOISY_START * variance),
    )


class Posterior:
    """Posterior distribution of the kernel, given data and its priors.

    Args:
        features: The points (n x features).
        groups: For each feature, the index of its length scale; all indices from 0 are used.
        targets: The points' values (n), with a mean of 0 and a variance of about 1.
        counts: Number of measurements that each value is the mean of; None for 1 each.
    """

    def __init__(
        self,
        features: Floats,
        groups: Integers,
        targets: Floats,
        *,
        counts: Integers | None = None,
    ) -> None:
        self._features = features
        self._groups = groups
        self._targets = targets
        self._shares = 1.0 / (np.ones(len(targets)) if counts is None else counts)
        each = kernel_priors(int(groups.max()) + 1 if len(groups) else 0)
        self._medians = np.log([prior.median for prior in each])
        self._spreads = np.array([prior.spread for prior in each])
        self._bounds = [(math.log(prior.lower), math.log(prior.upper)) for prior in each]

    def loss(self, logs: Floats) -> tuple[float, Floats]:
        """Return the negative log posterior density, up to a constant, and its gradient.

        GPML eqs. 5.8 and 5.9. The gradient by all lengths costs no more than that by one:
        sum_ij C_ij (z_i - z_j)**2 = 2 (sum_i C_i z_i**2 - z'Cz) for a symmetric C with row
        sums C_i.
        """
        kernel = Kernel.from_logs(logs)
        count = len(self._targets)
        z = self._features / kernel.lengths[self._groups]
        shape, slope = _matern(_squared_distances(z, z))
        covariance = kernel.variance * shape
        covariance[np.diag_indices(count)] += kernel.noise * self._shares
        lower, failed = scipy.linalg.lapack.dpotrf(covariance, lower=1)
        if failed:
            return math.inf, np.zeros_like(logs)
        inverse, _ = scipy.linalg.lapack.dpotri(lower, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        constant = _constant_mean(inverse.sum(axis=1), self._targets)
        alpha = inverse @ (self._targets - constant)
        excess = inverse - np.outer(alpha, alpha)
        weighted = excess * slope
        per_feature = np.einsum("i,ij->j", weighted.sum(axis=1), z * z) - np.einsum(
            "ij,ij->j", z, weighted @ z
        )
        gradient = np.empty_like(logs)
        gradient[:-2] = (
            2.0
            * kernel.variance
            * np.bincount(self._groups, per_feature, minlength=len(kernel.lengths))
        )
        gradient[-2] = 0.5 * kernel.variance * np.einsum("ij,ij->", excess, shape)
        gradient[-1] = 0.5 * kernel.noise * (np.diag(excess) @ self._shares)
        off = (logs - self._medians) / self._spreads
        fit = 0.5 * (self._targets - constant) @ alpha + 0.5 * (constant / _MEAN_SPREAD) ** 2
        loss = fit + np.log(np.diag(lower)).sum() + 0.5 * off @ off
        return float(loss), gradient + off / self._spreads

    def mode(self, starts: Sequence[Kernel], *, steps: int) -> Kernel:
        """Return the most probable kernel, found by L-BFGS from each start."""
        lows, highs = np.array(self._bounds).T
        ends = [
            scipy.optimize.minimize(
                self.loss,
                np.clip(start.logs, lows, highs),
                jac=True,
                method="L-BFGS-B",
                bounds=self._bounds,
                options={"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-6},
            )
            for start in starts
        ]
        return Kernel.from_logs(min(ends, key=lambda end: float(end.fun)).x)


class GaussianProcess:
    """Prediction of a function from noisy values at some points (GPML section 2.2).

    It keeps the inverse of the Cholesky factor of the points' covariance, so that a prediction is
    a matrix product and another point adds a row.

    Args:
        kernel: The kernel.
        groups: The group of each feature (see `Posterior`).
        features: The points (n x features).
        targets: Their values (n).
        counts: Number of measurements that each value is the mean of; None for 1 each.
    """

    def __init__(
        self,
        kernel: Kernel,
        groups: Integers,
        features: Floats,
        targets: Floats,
        *,
        counts: Integers | Floats | None = None,
    ) -> None:
        self.kernel = kernel
        self._scales = 1.0 / kernel.lengths[groups]
        self._points = features * self._scales
        shares = 1.0 / (np.ones(len(targets)) if counts is None else counts)
        self._whitener = _whitener(kernel, self._points, shares)
        self._constant_mean = _constant_mean(self._whitener.T @ self._whitener.sum(axis=1), targets)
        self._weights = self._whitener.T @ (self._whitener @ (targets - self._constant_mean))

    @property
    def log_determinant(self) -> float:
        """Logarithm of the determinant of the points' covariance with noise."""
        return -2.0 * float(np.log(np.diag(self._whitener)).sum())

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of the function at each point, without the noise."""
        mean, deviation, _, _ = self._predicted(features * self._scales)
        return mean, deviation

    def predict_with_gradients(self, features: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return mean and standard deviation, and their derivatives by each feature."""
        z = features * self._scales
        mean, deviation, slope, white = self._predicted(z)
        # d shape / d z_j = 2 slope_ij (p_ij - z_j)
        slope *= 2.0 * self.kernel.variance
        for_mean = slope * self._weights
        for_variance = slope * (white @ self._whitener)
        mean_gradients = for_mean @ self._points - for_mean.sum(axis=1, keepdims=True) * z
        by_variance = for_variance @ self._points - for_variance.sum(axis=1, keepdims=True) * z
        deviation_gradients = -by_variance / deviation[:, None]
        return mean, deviation, mean_gradients * self._scales, deviation_gradients * self._scales

    def _predicted(self, z: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Return mean and deviation at scaled points, the kernel's slope, and white covariances."""
        shape, slope = _matern(_squared_distances(z, self._points))
        covariance = self.kernel.variance * shape
        white = covariance @ self._whitener.T
        variance = self.kernel.variance - np.einsum("ij,ij->i", white, white)
        mean = self._constant_mean + covariance @ self._weights
        return mean, np.sqrt(np.maximum(variance, _MIN_VARIANCE)), slope, white

    def with_fantasy(self, features: Floats) -> GaussianProcess:
        """Return the process with a fantasy: this point measured with the predicted value.

        The means do not change; the deviations shrink around the point ("kriging believer",
        Ginsbourger et al. 2010, "Kriging is well-suited to parallelize optimization").
        """
        kernel, point = self.kernel, (features * self._scales)[None]
        shape, _ = _matern(_squared_distances(point, self._points))
        white = self._whitener @ (kernel.variance * shape[0])
        left = kernel.variance + kernel.noise - white @ white
        own = 1.0 / math.sqrt(max(left, kernel.noise, _MIN_VARIANCE))
        count = len(white)
        other = object.__new__(GaussianProcess)
        other.kernel, other._scales, other._constant_mean = (
            kernel,
            self._scales,
            self._constant_mean,
        )
        other._points = np.concatenate([self._points, point])
        other._whitener = np.zeros((count + 1, count + 1))
        other._whitener[:count, :count] = self._whitener
        other._whitener[count, :count] = -own * (white @ self._whitener)
        other._whitener[count, count] = own
        other._weights = np.append(self._weights, 0.0)
        return other


def _constant_mean(shares: Floats, targets: Floats) -> float:
    """Return the posterior mean of the constant that the function tends to far from all points.

    GPML eq. 2.42 with a constant basis function and a normal prior around 0.

    Points that are close together count little more than one of them, because a search leaves
    many points where values are low. The prior has the opposite effect: the rest of the space
    looks better the longer a search stays in one place. With a spread of 1 searches stayed in the
    first valley forever; with a constant of 0 they left too early.

    Args:
        shares: Inverse of the covariance, summed over its columns.
        targets: The points' values.
    """
    return float(shares @ targets / (shares.sum() + _MEAN_SPREAD**-2))


def _squared_distances(left: Floats, right: Floats) -> Floats:
    squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None]
    squares -= 2.0 * (left @ right.T)
    found: Floats = np.maximum(squares, 0.0, out=squares)
    return found


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Return the kernel divided by its variance, and minus its derivative by squared distance."""
    a = _ROOT5 * np.sqrt(squares)
    falling = np.exp(-a)
    slope = (1.0 + a) * falling
    shape = slope + (a * a / 3.0) * falling
    slope *= 5.0 / 6.0
    return shape, slope


def _whitener(kernel: Kernel, points: Floats, shares: Floats) -> Floats:
    """Return the inverse of the lower Cholesky factor of the points' covariance with noise."""
    shape, _ = _matern(_squared_distances(points, points))
    covariance = kernel.variance * shape
    noise = kernel.noise
    while True:
        covariance[np.diag_indices(len(points))] = kernel.variance + noise * shares
        lower, failed = scipy.linalg.lapack.dpotrf(covariance, lower=1)
        if not failed or noise > _MAX_JITTER:
            break
        noise *= 10.0
    inverse: NDArray[np.float64]
    inverse, _ = scipy.linalg.lapack.dtrtri(lower, lower=1)
    return np.tril(inverse)
