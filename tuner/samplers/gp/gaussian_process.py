"""Gaussian process regression: what is known of a function from some of its values, and how well.

Equations are those of Rasmussen and Williams 2006, "Gaussian processes for machine learning"
(GPML). Everything is an array: there is no loop over points, and none over features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack
from scipy.optimize import minimize

from ..common.encoding import Floats, Integers

_ROOT5 = math.sqrt(5.0)
_LEAST_VARIANCE = 1e-12
_MOST_JITTER = 1e-2
_MUCH_NOISE = 0.2
_LEVEL_SPREAD = 0.3


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """The Matérn-5/2 kernel with a length for each group of features (GPML eq. 4.17), and noise.

    k(x, y) = variance (1 + a + a**2 / 3) exp(-a) with a**2 = 5 sum_j (x_j - y_j)**2 / length_j**2.

    Attributes:
        lengths: How far one must go along each group's features for the function to change.
        variance: That of the function.
        noise: The variance of its measurements, besides.
    """

    lengths: Floats
    variance: float
    noise: float

    @property
    def logs(self) -> Floats:
        """The logarithms of all of it: lengths, variance, noise."""
        found: Floats = np.log(np.append(self.lengths, [self.variance, self.noise]))
        return found

    @classmethod
    def from_logs(cls, logs: Floats) -> Kernel:
        """The kernel with these logarithms."""
        numbers = np.exp(logs)
        return cls(numbers[:-2], float(numbers[-2]), float(numbers[-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class LogNormalPrior:
    """What is believed of one of the kernel's numbers: its logarithm is normally distributed.

    Attributes:
        median: Where the number is believed to be.
        spread: The standard deviation of its natural logarithm.
        least: The number is never below.
        most: The number is never above.
    """

    median: float
    spread: float
    least: float
    most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelPriors:
    """What is believed of a kernel before there are data; targets have a variance of about 1.

    Attributes:
        length: Of each length.
        variance: Of the function's variance.
        noise: Of the noise's.
    """

    length: LogNormalPrior
    variance: LogNormalPrior = LogNormalPrior(median=1.0, spread=1.0, least=0.05, most=20.0)
    noise: LogNormalPrior = LogNormalPrior(median=1e-4, spread=2.0, least=1e-6, most=1.0)

    def starts(self, groups: int) -> tuple[Kernel, ...]:
        """Kernels to climb from: one that explains values by the function, one by noise.

        There often is a mode near each, and from one of them the other cannot be seen.
        """
        lengths, variance = np.full(groups, self.length.median), self.variance.median
        return (
            Kernel(lengths, variance, self.noise.median),
            Kernel(2.0 * lengths, variance, _MUCH_NOISE * variance),
        )

    def each(self, groups: int) -> tuple[LogNormalPrior, ...]:
        """In the order of `Kernel.logs`."""
        return (*(self.length,) * groups, self.variance, self.noise)


class Posterior:
    """How probable kernels are, given data and priors.

    Args:
        features: One point in each row.
        groups: For each feature, the number of the length that it shares with its group; every
            number from 0 is used.
        targets: The points' values, centred and scaled to a variance of about 1.
        priors: What is believed of the kernel.
        counts: Of how many measurements each value is the mean; None for 1 each.
    """

    def __init__(
        self,
        features: Floats,
        groups: Integers,
        targets: Floats,
        priors: KernelPriors,
        *,
        counts: Integers | None = None,
    ) -> None:
        self._features = features
        self._groups = groups
        self._targets = targets
        self._shares = 1.0 / (np.ones(len(targets)) if counts is None else counts)
        each = priors.each(int(groups.max()) + 1 if len(groups) else 0)
        self._medians = np.log([prior.median for prior in each])
        self._spreads = np.array([prior.spread for prior in each])
        self._bounds = [(math.log(prior.least), math.log(prior.most)) for prior in each]

    def loss(self, logs: Floats) -> tuple[float, Floats]:
        """The negative logarithm of the posterior density, up to a constant, and its gradient.

        GPML eqs. 5.8 and 5.9. The gradient with respect to all lengths costs no more than that to
        one: sum_ij C_ij (z_i - z_j)**2 = 2 (sum_i C_i z_i**2 - z'Cz) for a symmetric C with row
        sums C_i.
        """
        kernel = Kernel.from_logs(logs)
        count = len(self._targets)
        z = self._features / kernel.lengths[self._groups]
        shape, slope = _matern(_squared_distances(z, z))
        covariance = kernel.variance * shape
        covariance[np.diag_indices(count)] += kernel.noise * self._shares
        lower, failed = lapack.dpotrf(covariance, lower=1)
        if failed:
            return math.inf, np.zeros_like(logs)
        inverse, _ = lapack.dpotri(lower, lower=1)
        inverse = np.tril(inverse) + np.tril(inverse, -1).T
        level = _level(inverse.sum(axis=1), self._targets)
        alpha = inverse @ (self._targets - level)
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
        fit = 0.5 * (self._targets - level) @ alpha + 0.5 * (level / _LEVEL_SPREAD) ** 2
        loss = fit + np.log(np.diag(lower)).sum() + 0.5 * off @ off
        return float(loss), gradient + off / self._spreads

    def mode(self, starts: Sequence[Kernel], *, steps: int) -> Kernel:
        """The most probable kernel that is found from these, climbing so many steps from each."""
        lows, highs = np.array(self._bounds).T
        ends = [
            minimize(
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
    """A function known from noisy values at some points (GPML section 2.2).

    What is kept is the inverse of the Cholesky factor of the points' covariance: each prediction
    is then a product of matrices, and a further point costs a further row.

    Args:
        kernel: How values go together.
        groups: The group of each feature; see `Posterior`.
        features: The points, one in each row.
        targets: Their values.
        counts: Of how many measurements each value is the mean; None for 1 each.
    """

    def __init__(
        self,
        kernel: Kernel,
        groups: Integers,
        features: Floats,
        targets: Floats,
        *,
        counts: Integers | None = None,
    ) -> None:
        self.kernel = kernel
        self._scales = 1.0 / kernel.lengths[groups]
        self._points = features * self._scales
        shares = 1.0 / (np.ones(len(targets)) if counts is None else counts)
        self._whitener = _whitener(kernel, self._points, shares)
        self._level = _level(self._whitener.T @ self._whitener.sum(axis=1), targets)
        self._weights = self._whitener.T @ (self._whitener @ (targets - self._level))

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the function at each point, without the noise."""
        shape, _ = _matern(_squared_distances(features * self._scales, self._points))
        covariance = self.kernel.variance * shape
        white = covariance @ self._whitener.T
        variance = self.kernel.variance - np.einsum("ij,ij->i", white, white)
        return self._level + covariance @ self._weights, np.sqrt(
            np.maximum(variance, _LEAST_VARIANCE)
        )

    def predict_with_slopes(self, features: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """Mean and standard deviation, and their derivatives by each feature."""
        z = features * self._scales
        shape, slope = _matern(_squared_distances(z, self._points))
        covariance = self.kernel.variance * shape
        white = covariance @ self._whitener.T
        variance = self.kernel.variance - np.einsum("ij,ij->i", white, white)
        deviation = np.sqrt(np.maximum(variance, _LEAST_VARIANCE))
        # d shape / d z_j = 2 slope_ij (p_ij - z_j)
        slope *= 2.0 * self.kernel.variance
        for_mean = slope * self._weights
        for_variance = slope * (white @ self._whitener)
        mean_slopes = for_mean @ self._points - for_mean.sum(axis=1, keepdims=True) * z
        by_variance = for_variance @ self._points - for_variance.sum(axis=1, keepdims=True) * z
        deviation_slopes = -by_variance / deviation[:, None]
        return (
            self._level + covariance @ self._weights,
            deviation,
            mean_slopes * self._scales,
            deviation_slopes * self._scales,
        )

    def with_fantasy(self, features: Floats) -> GaussianProcess:
        """The same, had this point been measured and found as predicted.

        The means stay as they are, the deviations shrink around the point ("kriging believer",
        Ginsbourger et al. 2010, "Kriging is well-suited to parallelize optimization").

        Args:
            features: The one point.
        """
        kernel, point = self.kernel, (features * self._scales)[None]
        shape, _ = _matern(_squared_distances(point, self._points))
        white = self._whitener @ (kernel.variance * shape[0])
        left = kernel.variance + kernel.noise - white @ white
        own = 1.0 / math.sqrt(max(left, kernel.noise, _LEAST_VARIANCE))
        count = len(white)
        other = object.__new__(GaussianProcess)
        other.kernel, other._scales, other._level = kernel, self._scales, self._level
        other._points = np.concatenate([self._points, point])
        other._whitener = np.zeros((count + 1, count + 1))
        other._whitener[:count, :count] = self._whitener
        other._whitener[count, :count] = -own * (white @ self._whitener)
        other._whitener[count, count] = own
        other._weights = np.append(self._weights, 0.0)
        return other


def _level(shares: Floats, targets: Floats) -> float:
    """The most probable mean of the function far from all points, believed to be near 0.

    GPML eq. 2.42, for one constant as the basis function.

    Values of points that lie close together count little more than one of them would: a search
    leaves many where values are low, and these say nothing about the rest of the space. The
    prior pulls the other way, so that it looks better to a search the longer it stays in one
    place: with a spread of 1 searches stayed for good in the first valley, with a level of 0 they
    left too early.

    Args:
        shares: The inverse of the covariance, summed over its columns.
        targets: The points' values.
    """
    return float(shares @ targets / (shares.sum() + _LEVEL_SPREAD**-2))


def _squared_distances(left: Floats, right: Floats) -> Floats:
    squares = (left * left).sum(axis=1)[:, None] + (right * right).sum(axis=1)[None]
    squares -= 2.0 * (left @ right.T)
    found: Floats = np.maximum(squares, 0.0, out=squares)
    return found


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """The kernel's shape, 1 at 0, and minus its derivative by the squared distance."""
    a = _ROOT5 * np.sqrt(squares)
    falling = np.exp(-a)
    slope = (1.0 + a) * falling
    shape = slope + (a * a / 3.0) * falling
    slope *= 5.0 / 6.0
    return shape, slope


def _whitener(kernel: Kernel, points: Floats, shares: Floats) -> Floats:
    """The inverse of the lower Cholesky factor of the points' covariance, noise included."""
    shape, _ = _matern(_squared_distances(points, points))
    covariance = kernel.variance * shape
    noise = kernel.noise
    while True:
        covariance[np.diag_indices(len(points))] = kernel.variance + noise * shares
        lower, failed = lapack.dpotrf(covariance, lower=1)
        if not failed or noise > _MOST_JITTER:
            break
        noise *= 10.0
    inverse: NDArray[np.float64]
    inverse, _ = lapack.dtrtri(lower, lower=1)
    return np.tril(inverse)
