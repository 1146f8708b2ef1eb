from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.linalg import cho_factor, cho_solve

from hptune.samplers.common.encoding import Floats, Integers
from hptune.samplers.gp.gaussian_process import (
    GaussianProcess,
    Kernel,
    Posterior,
    kernel_priors,
    starting_kernels,
)

GROUPS: Integers = np.array([0, 1, 1, 2], dtype=np.intp)
KERNEL = Kernel(np.array([0.3, 0.7, 1.5]), 1.7, 0.01)


def points(count: int, seed: int = 0) -> Floats:
    found: Floats = np.random.default_rng(seed).random((count, len(GROUPS)))
    return found


def values(at: Floats) -> Floats:
    found: Floats = np.sin(5.0 * at[:, 0]) + at[:, 1] * at[:, 2] - at[:, 3] ** 2
    return found


def matern(left: Floats, right: Floats, kernel: Kernel) -> Floats:
    """The kernel as the books write it, pair by pair."""
    found = np.empty((len(left), len(right)))
    for i, x in enumerate(left):
        for j, y in enumerate(right):
            r = math.sqrt(sum(((x - y) / kernel.lengths[GROUPS]) ** 2))
            a = math.sqrt(5.0) * r
            found[i, j] = kernel.variance * (1.0 + a + a * a / 3.0) * math.exp(-a)
    return found


def level_of(covariance: Floats, targets: Floats) -> float:
    """GPML eq. 2.42 for a constant with a normal prior of mean 0 and deviation 0.3."""
    ones = np.linalg.solve(covariance, np.ones(len(targets)))
    return float(ones @ targets / (ones.sum() + 0.3**-2))


def by_the_book(kernel: Kernel, told: Floats, targets: Floats, at: Floats) -> tuple[Floats, Floats]:
    """GPML eqs. 2.23, 2.24 and 2.38, the last without the variance that the mean has itself."""
    covariance = matern(told, told, kernel) + kernel.noise * np.eye(len(told))
    factor = cho_factor(covariance)
    cross = matern(at, told, kernel)
    level = level_of(covariance, targets)
    variance = kernel.variance - np.einsum("ij,ji->i", cross, cho_solve(factor, cross.T))
    return level + cross @ cho_solve(factor, targets - level), np.sqrt(variance)


# --- the posterior of the function ------------------------------------------------------------


def test_predictions_are_those_of_the_book() -> None:
    told, at = points(20), points(7, seed=1)
    mean, deviation = GaussianProcess(KERNEL, GROUPS, told, values(told)).predict(at)
    book_mean, book_deviation = by_the_book(KERNEL, told, values(told), at)
    np.testing.assert_allclose(mean, book_mean, rtol=1e-9)
    np.testing.assert_allclose(deviation, book_deviation, rtol=1e-9)


def test_slopes_are_those_of_finite_differences() -> None:
    process = GaussianProcess(KERNEL, GROUPS, points(20), values(points(20)))
    at = points(6, seed=1)
    mean, deviation, mean_gradients, deviation_gradients = process.predict_with_gradients(at)
    np.testing.assert_array_equal((mean, deviation), process.predict(at))
    for feature in range(len(GROUPS)):
        step = np.zeros(len(GROUPS))
        step[feature] = 1e-5
        above, below = process.predict(at + step), process.predict(at - step)
        np.testing.assert_allclose(
            mean_gradients[:, feature], (above[0] - below[0]) / 2e-5, rtol=1e-6, atol=1e-8
        )
        np.testing.assert_allclose(
            deviation_gradients[:, feature], (above[1] - below[1]) / 2e-5, rtol=1e-6, atol=1e-8
        )


def test_it_goes_through_values_without_noise_and_is_unsure_far_away() -> None:
    told = points(15)
    process = GaussianProcess(Kernel(KERNEL.lengths, 1.7, 1e-8), GROUPS, told, values(told))
    mean, deviation = process.predict(told)
    np.testing.assert_allclose(mean, values(told), atol=1e-5)
    assert deviation.max() < 1e-3
    far_mean, far_deviation = process.predict(np.full((1, 4), 1e3))
    covariance = matern(told, told, process.kernel) + 1e-8 * np.eye(len(told))
    assert far_mean[0] == pytest.approx(level_of(covariance, values(told)), rel=1e-5)
    assert far_deviation[0] == pytest.approx(math.sqrt(1.7))


def test_many_low_values_in_one_place_say_little_about_other_places() -> None:
    told = np.vstack([points(10), 0.5 + 0.01 * points(40, seed=1)])
    targets = np.append(np.ones(10), np.full(40, -1.0))
    process = GaussianProcess(KERNEL, GROUPS, told, targets)
    assert process.predict(np.full((1, 4), 1e3))[0] > 0.0 > targets.mean()


def test_a_mean_of_many_measurements_is_trusted_more() -> None:
    told, targets = np.zeros((2, 4)), np.array([0.0, 1.0])
    kernel = Kernel(KERNEL.lengths, 1.0, 0.1)
    counts = np.array([1, 9], dtype=np.intp)
    even, _ = GaussianProcess(kernel, GROUPS, told, targets).predict(told[:1])
    weighed, _ = GaussianProcess(kernel, GROUPS, told, targets, counts=counts).predict(told[:1])
    assert even[0] == pytest.approx(0.5, abs=0.05)
    assert weighed[0] == pytest.approx(0.9, abs=0.05)


def test_believing_changes_no_mean_and_shrinks_deviations_as_a_measurement_does() -> None:
    told, believed, at = points(20), points(3, seed=2), points(8, seed=1)
    process = GaussianProcess(KERNEL, GROUPS, told, values(told))
    before, _ = process.predict(at)
    for point in believed:
        process = process.with_fantasy(point)
    mean, deviation = process.predict(at)
    np.testing.assert_allclose(mean, before, rtol=1e-12)
    measured = GaussianProcess(KERNEL, GROUPS, np.vstack([told, believed]), np.zeros(23))
    np.testing.assert_allclose(deviation, measured.predict(at)[1], rtol=1e-8)


def test_believing_leaves_the_process_as_it_was() -> None:
    at = points(8, seed=1)
    process = GaussianProcess(KERNEL, GROUPS, points(20), values(points(20)))
    before = process.predict(at)
    process.with_fantasy(at[0])
    np.testing.assert_array_equal(process.predict(at), before)


def test_the_same_point_many_times_does_no_harm() -> None:
    told = np.repeat(points(2), 30, axis=0)
    process = GaussianProcess(Kernel(KERNEL.lengths, 20.0, 1e-12), GROUPS, told, values(told))
    mean, deviation = process.predict(told)
    np.testing.assert_allclose(mean, values(told), atol=1e-3)
    assert np.isfinite(deviation).all()


# --- the posterior of the kernel --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_the_gradient_of_the_kernels_posterior_is_that_of_finite_differences(seed: int) -> None:
    told = points(25)
    counts = np.random.default_rng(seed).integers(1, 4, size=len(told))
    posterior = Posterior(told, GROUPS, 1.0 + values(told), counts=counts)
    logs = starting_kernels(3)[0].logs + np.random.default_rng(seed).normal(size=5)
    _, gradient = posterior.loss(logs)
    for number in range(len(logs)):
        step = np.zeros(len(logs))
        step[number] = 1e-5
        difference = (posterior.loss(logs + step)[0] - posterior.loss(logs - step)[0]) / 2e-5
        assert gradient[number] == pytest.approx(difference, rel=1e-5, abs=1e-6)


def test_longer_length_scales_are_expected_of_more_parameters() -> None:
    """Distances grow with the root of their number; one and two are alike."""
    medians = [kernel_priors(number)[0].median for number in (1, 2, 8, 18)]
    assert medians == pytest.approx([0.5, 0.5, 1.0, 1.5])
    assert starting_kernels(8)[0].lengths == pytest.approx([1.0] * 8)


def test_the_kernels_posterior_is_that_of_the_book() -> None:
    told = points(12)

    def book(kernel: Kernel) -> float:
        covariance = matern(told, told, kernel) + kernel.noise * np.eye(len(told))
        level = level_of(covariance, values(told))
        fit = (values(told) - level) @ np.linalg.solve(covariance, values(told) - level)
        off = [
            (log - math.log(prior.median)) / prior.spread
            for log, prior in zip(kernel.logs, kernel_priors(3), strict=True)
        ]
        return 0.5 * float(
            fit + (level / 0.3) ** 2 + np.linalg.slogdet(covariance)[1] + np.dot(off, off)
        )

    posterior = Posterior(told, GROUPS, values(told))
    other = Kernel(np.array([1.0, 0.2, 0.4]), 0.8, 0.1)
    ours = posterior.loss(KERNEL.logs)[0] - posterior.loss(other.logs)[0]
    assert ours == pytest.approx(book(KERNEL) - book(other))


def test_the_mode_tells_what_matters_from_what_does_not() -> None:
    told = points(60)
    targets = np.sin(9.0 * told[:, 0])
    kernel = Posterior(told, GROUPS, targets).mode(starting_kernels(3), steps=60)
    assert kernel.lengths[0] < 0.3 * kernel.lengths[1:].min()
    assert kernel.noise < 1e-3


def test_the_mode_finds_the_noise() -> None:
    told = points(150)
    noise = np.random.default_rng(3).normal(size=len(told))
    targets = values(told) / values(told).std() + 0.3 * noise
    kernel = Posterior(told, GROUPS, targets).mode(starting_kernels(3), steps=60)
    assert 0.05 < kernel.noise < 0.15


def test_the_mode_is_no_worse_than_where_it_started() -> None:
    told = points(30)
    posterior = Posterior(told, GROUPS, values(told))
    kernel = posterior.mode([KERNEL], steps=40)
    assert posterior.loss(kernel.logs)[0] < posterior.loss(KERNEL.logs)[0]


def test_a_kernel_is_found_again_in_its_logarithms() -> None:
    again = Kernel.from_logs(KERNEL.logs)
    np.testing.assert_allclose(again.lengths, KERNEL.lengths)
    assert (again.variance, again.noise) == pytest.approx((KERNEL.variance, KERNEL.noise))
