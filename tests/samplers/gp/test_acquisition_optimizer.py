from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    SearchSpace,
)
from hptune.core.trial import Params
from hptune.samplers.common.encoding import Encoding, Floats
from hptune.samplers.gp.acquisition import (
    ExpectedImprovement,
    derivatives,
    log_expected_improvement,
)
from hptune.samplers.gp.acquisition_optimizer import (
    AcquisitionOptimizer,
    perturbed_rows,
    uniform_rows,
)
from hptune.samplers.gp.gaussian_process import GaussianProcess, Kernel
from hptune.samplers.gp.kernel_features import KernelFeatures
from hptune.samplers.gp.local_search import maximize
from hptune.testing.spaces import ALL_TYPES, CONDITIONAL_CONTINUUM

MIXED = SearchSpace(
    (
        ChoiceParameter("word", ("a", "b", "c", "d")),
        IntParameter("layers", 1, 5),
        BooleanParameter("deep"),
        FixedParameter("fixed", 1),
        FloatParameter("x", 0.0, 1.0),
        FloatParameter("child", 0.0, 1.0, conditions=(Condition("deep", (True,)),)),
    )
)


# --- the expected improvement -----------------------------------------------------------------


@pytest.mark.parametrize("z", [-4.0, -1.5, -1.0, -0.9, 0.0, 2.0])
def test_the_expected_improvement_is_what_its_name_says(z: float) -> None:
    from scipy.integrate import quad
    from scipy.stats import norm

    deviation, least = 0.7, 0.2
    mean = least - z * deviation
    integral, _ = quad(lambda y: (least - y) * norm.pdf(y, mean, deviation), mean - 9, least)
    (found,) = log_expected_improvement(np.array([mean]), np.array([deviation]), least)
    assert found == pytest.approx(math.log(integral), abs=1e-6)


def test_it_is_smooth_and_finite_however_hopeless_a_point_is() -> None:
    z = -np.logspace(-2, 6, 4_000)
    found = log_expected_improvement(-z, np.ones(len(z)), 0.0)
    assert np.isfinite(found).all()
    assert (np.diff(found) < 0).all()
    np.testing.assert_allclose(found[z < -1e3], -0.5 * z[z < -1e3] ** 2, rtol=1e-3)


@pytest.mark.parametrize("mean", [-2.0, 0.0, 0.5, 3.0, 40.0])
def test_its_slopes_are_those_of_finite_differences(mean: float) -> None:
    def at(mean: float, deviation: float) -> float:
        return float(log_expected_improvement(np.array([mean]), np.array([deviation]), 0.1)[0])

    (by_mean,), (by_deviation,) = derivatives(np.array([mean]), np.array([0.6]), 0.1)
    assert by_mean == pytest.approx((at(mean + 1e-5, 0.6) - at(mean - 1e-5, 0.6)) / 2e-5, rel=1e-5)
    assert by_deviation == pytest.approx(
        (at(mean, 0.6 + 1e-5) - at(mean, 0.6 - 1e-5)) / 2e-5, rel=1e-5
    )


# --- climbing ---------------------------------------------------------------------------------


def hill(points: Floats) -> tuple[Floats, Floats]:
    """A long narrow hill with its top at (0.3, 0.3), or beyond the edge in the third column."""
    weights = np.array([1.0, 300.0, 0.0])
    turned = points - np.array([0.3, 0.3, 0.0])
    mixed = turned @ np.array([[1.0, 0.7, 0.0], [-0.7, 1.0, 0.0], [0.0, 0.0, 1.0]])
    values = -(weights * mixed**2).sum(axis=1) + points[:, 2]
    slopes = -2.0 * (weights * mixed) @ np.array([[1.0, -0.7, 0], [0.7, 1.0, 0], [0, 0, 1.0]])
    slopes[:, 2] += 1.0
    return values, slopes


def test_climbs_end_at_the_top_and_at_the_edge() -> None:
    starts = np.random.default_rng(0).random((20, 3))
    points, values = maximize(hill, starts, steps=60)
    np.testing.assert_allclose(points, np.tile([0.3, 0.3, 1.0], (20, 1)), atol=1e-4)
    np.testing.assert_allclose(values, 1.0, atol=1e-6)


def test_a_climb_does_not_depend_on_those_beside_it() -> None:
    starts = np.random.default_rng(0).random((5, 3))
    together, _ = maximize(hill, starts, steps=15)
    alone = np.vstack([maximize(hill, start[None], steps=15)[0] for start in starts])
    np.testing.assert_allclose(together, alone, atol=1e-9)


def test_a_climb_never_ends_below_its_start() -> None:
    def rough(points: Floats) -> tuple[Floats, Floats]:
        return np.sin(70.0 * points).sum(axis=1), 70.0 * np.cos(70.0 * points)

    starts = np.random.default_rng(0).random((50, 2))
    for steps in (1, 2, 5, 30):
        points, values = maximize(rough, starts, steps=steps)
        assert (values >= rough(starts)[0]).all()
        np.testing.assert_array_equal(values, rough(points)[0])


# --- features ---------------------------------------------------------------------------------


def squared_distances(space: SearchSpace, configurations: Sequence[Params]) -> Floats:
    encoding = Encoding(space)
    rows = [encoding.encode(params) for params in configurations]
    told = np.array([row for row in rows if row is not None])
    assert len(told) == len(configurations)
    features = KernelFeatures(encoding).features(np.nan_to_num(told), ~np.isnan(told))
    found: Floats = ((features[:, None] - features[None]) ** 2).sum(axis=2)
    return found


def test_words_are_equally_far_from_each_other_and_numbers_are_not() -> None:
    words = SearchSpace((ChoiceParameter("word", ("a", "b", "c", "d")),))
    found = squared_distances(words, [{"word": word} for word in "abcd"])
    np.testing.assert_allclose(found, 1.0 - np.eye(4))
    numbers = SearchSpace((IntParameter("layers", 1, 5),))
    found = squared_distances(numbers, [{"layers": n} for n in (1, 2, 5)])
    np.testing.assert_allclose(np.sqrt(found[0]), [0.0, 0.25, 1.0])


def test_what_is_not_active_makes_no_difference() -> None:
    base: Params = {"word": "a", "layers": 1, "deep": False, "fixed": 1, "x": 0.5}
    deep: Params = {**base, "deep": True}
    found = squared_distances(MIXED, [base, {**deep, "child": 0.5}, {**deep, "child": 0.9}])
    np.testing.assert_allclose(found[0, 1:], [1.0, 1.0 + 0.4**2])
    np.testing.assert_allclose(found[1, 2], 0.4**2)


def test_many_words_need_few_features() -> None:
    space = SearchSpace((ChoiceParameter("word", tuple(f"w{i}" for i in range(2_000))),))
    kernel_features = KernelFeatures(Encoding(space))
    assert len(kernel_features.groups) == 64
    features = kernel_features.features(
        np.arange(2_000.0)[:, None], np.ones((2_000, 1), dtype=np.bool_)
    )
    apart = ((features[:1] - features[1:]) ** 2).sum(axis=1)
    assert apart.mean() == pytest.approx(1.0, abs=0.05)
    assert apart.min() > 0.4


def test_only_what_can_vary_has_features() -> None:
    kernel_features = KernelFeatures(Encoding(MIXED))
    assert kernel_features.parameters == 5
    assert kernel_features.groups.tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
    assert kernel_features.positions.tolist() == [4, 5]
    assert kernel_features.places.tolist() == [6, 7]


# --- the acquisition optimiser ----------------------------------------------------------------


def acquisition_optimizer(
    space: SearchSpace, best: Params
) -> tuple[Encoding, AcquisitionOptimizer]:
    """The optimiser of a model that was fitted to distances from one configuration."""
    encoding = Encoding(space)
    kernel_features = KernelFeatures(encoding)
    rows = uniform_rows(encoding, np.random.default_rng(0), 150)
    features = kernel_features.features(rows, encoding.active(rows))
    goal = encoding.encode(best)
    assert goal is not None
    point = kernel_features.features(np.nan_to_num(goal)[None], ~np.isnan(goal)[None])
    targets = ((features - point) ** 2).sum(axis=1)
    targets = (targets - targets.mean()) / targets.std()
    kernel = Kernel(np.full(kernel_features.parameters, 1.5), 4.0, 1e-6)
    process = GaussianProcess(kernel, kernel_features.groups, features, targets)
    improvement = ExpectedImprovement(process, float(targets.min()))
    return encoding, AcquisitionOptimizer(encoding, kernel_features, improvement)


def test_a_local_search_finds_words_numbers_and_children() -> None:
    best: Params = {
        "word": "c", "layers": 4, "deep": True, "fixed": 1, "x": 0.62, "child": 0.27,
    }  # fmt: skip
    encoding, optimiser = acquisition_optimizer(MIXED, best)
    rng = np.random.default_rng(1)
    rows, values = optimiser.local_search(uniform_rows(encoding, rng, 20), rng)
    top = encoding.decode(rows[values.argmax()], np.zeros(len(encoding)))
    assert {name: top[name] for name in ("word", "layers", "deep")} == {
        name: best[name] for name in ("word", "layers", "deep")
    }
    assert top["x"] == pytest.approx(0.62, abs=0.1)
    assert top["child"] == pytest.approx(0.27, abs=0.1)
    assert values.max() >= optimiser.values(uniform_rows(encoding, rng, 3_000)).max()


@pytest.mark.parametrize("space", [ALL_TYPES, CONDITIONAL_CONTINUUM])
def test_rows_drawn_anywhere_and_nearby_are_full_and_in_the_space(space: SearchSpace) -> None:
    encoding = Encoding(space)
    rng = np.random.default_rng(2)
    told = [encoding.encode(space.sample(rng)) for _ in range(200)]
    rows = np.array([row for row in told if row is not None])
    for full in (uniform_rows(encoding, rng, 200), perturbed_rows(encoding, rows, rng)):
        assert not np.isnan(full).any()
        for row in full:
            assert space.contains(encoding.decode(row, np.zeros(len(encoding))))


def test_rows_nearby_keep_most_of_what_they_come_from() -> None:
    encoding = Encoding(ALL_TYPES)
    rng = np.random.default_rng(2)
    rows = uniform_rows(encoding, rng, 500)
    near = perturbed_rows(encoding, rows, rng)
    assert 0.3 < (near == rows).mean() < 0.9
    assert np.median(np.abs(near - rows).max(axis=1)) > 0.0
