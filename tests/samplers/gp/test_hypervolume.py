from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hptune.core.space.space import FloatParameter, SearchSpace
from hptune.core.trial import Direction, Trial, TrialState
from hptune.samplers.common.encoding import Encoding, Floats
from hptune.samplers.common.observations import History
from hptune.samplers.gp.gaussian_process import GaussianProcess, Kernel
from hptune.samplers.gp.hypervolume import HypervolumeImprovement, boxes, fit_front
from hptune.samplers.gp.kernel_features import KernelFeatures
from hptune.samplers.gp.sampler import BayesianSampler
from hptune.samplers.gp.surrogate import SurrogateFitter

# --- the boxes --------------------------------------------------------------------------------

SIDE = 4


@given(
    st.integers(1, 4).flatmap(
        lambda objectives: st.lists(
            st.tuples(*[st.integers(0, SIDE + 1)] * objectives), min_size=1, max_size=8
        )
    )
)
def test_what_no_point_dominates_lies_in_one_box_and_all_else_in_none(
    points: list[tuple[int, ...]],
) -> None:
    objectives = len(points[0])
    found = boxes(points, [float(SIDE)] * objectives)
    for cell in itertools.product(range(-1, SIDE + 1), repeat=objectives):
        probe = [each + 0.5 for each in cell]
        is_free = max(probe) < SIDE and not any(
            all(a <= b for a, b in zip(point, probe, strict=True)) for point in points
        )
        holding = [
            box for box in found
            if all(low < at < high for low, at, high in zip(box[0], probe, box[1], strict=True))
        ]  # fmt: skip
        assert len(holding) == is_free


def test_three_objectives_need_about_twice_as_many_boxes_as_points() -> None:
    points = np.abs(np.random.default_rng(0).standard_normal((100, 3)))
    front = 1.0 - points / np.linalg.norm(points, axis=1, keepdims=True)
    assert len(boxes(front.tolist(), [1.1, 1.1, 1.1])) <= 201


# --- the expected improvement -----------------------------------------------------------------


def improvement(objectives: int) -> tuple[HypervolumeImprovement, list[GaussianProcess], Floats]:
    """The function for a front of some points, the models, and the front."""
    rng = np.random.default_rng(objectives)
    points, groups = rng.random((9, 3)), np.arange(3)
    processes = [
        GaussianProcess(Kernel(np.full(3, 0.4), 1.0, 1e-4), groups, points, rng.standard_normal(9))
        for _ in range(objectives)
    ]
    front = -np.eye(objectives)
    return HypervolumeImprovement(processes, front, np.full(objectives, 1.5)), processes, front


@pytest.mark.parametrize("objectives", [2, 3])
def test_it_is_the_mean_growth_of_the_hypervolume(objectives: int) -> None:
    from scipy.stats import norm

    function, processes, front = improvement(objectives)
    point = np.full((1, 3), 0.3)
    # The probability that a result dominates a cell, added over the cells that are free so far.
    sides = np.arange(-6.0, 1.5, 0.125) + 0.0625
    cells = np.stack(np.meshgrid(*[sides] * objectives, indexing="ij"), axis=-1)
    chances = np.ones(cells.shape[:-1])
    for k, process in enumerate(processes):
        (mean,), (deviation,) = process.predict(point)
        chances *= norm.cdf(cells[..., k], mean, deviation)
    for each in front:
        chances[(cells >= each).all(axis=-1)] = 0.0
    expected = chances.sum() * 0.125**objectives
    assert math.exp(function.values(point)[0]) == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("objectives", [2, 3])
def test_its_slopes_are_those_of_finite_differences(objectives: int) -> None:
    function, _, _ = improvement(objectives)
    points = np.random.default_rng(2).random((6, 3))
    values, slopes = function.values_with_gradients(points)
    np.testing.assert_allclose(values, function.values(points))
    for feature in range(3):
        step = 1e-6 * np.eye(3)[feature]
        by_step = (function.values(points + step) - function.values(points - step)) / 2e-6
        np.testing.assert_allclose(slopes[:, feature], by_step, rtol=1e-4, atol=1e-6)


@pytest.mark.filterwarnings("error")
def test_it_is_finite_and_has_slopes_however_hopeless_a_point_is() -> None:
    points, groups = np.array([[0.0], [1.0]]), np.zeros(1, dtype=np.intp)
    kernel = Kernel(np.array([3.0]), 1e-4, 1e-6)
    process = GaussianProcess(kernel, groups, points, np.array([0.0, 0.01]))
    front = np.array([[-9.0, -8.0], [-8.0, -9.0]])
    function = HypervolumeImprovement([process, process], front, np.array([-7.0, -7.0]))
    values, slopes = function.values_with_gradients(np.linspace(0.1, 0.9, 5)[:, None])
    assert (values < -1_000.0).all()
    assert np.isfinite(values).all()
    assert np.isfinite(slopes).all()
    assert (slopes != 0.0).all()


@pytest.mark.filterwarnings("error")
def test_points_of_the_front_that_differ_by_rounding_only_are_one_point() -> None:
    points, groups = np.array([[0.0], [0.5], [1.0]]), np.zeros(1, dtype=np.intp)
    kernel = Kernel(np.array([0.5]), 1.0, 1e-12)
    process = GaussianProcess(kernel, groups, points, np.array([0.0, 0.5, 1.0]))
    near = 0.3 + 1e-16 * np.array([[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]])
    assert len(np.unique(near)) == 3
    one, three = (
        HypervolumeImprovement([process, process], front, np.array([1.1, 1.1]))
        for front in (near[:1], near)
    )
    probes = np.array([[0.0], [0.25], [0.5], [0.75], [1.0]])
    for found, expected in zip(
        three.values_with_gradients(probes), one.values_with_gradients(probes), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-4)


# --- the search -------------------------------------------------------------------------------

SPACE = SearchSpace((FloatParameter("width", 1.0, 128.0), FloatParameter("depth", 1.0, 8.0)))


def asked(sampler: BayesianSampler, numbers: range) -> list[float]:
    """Return the sizes of the models that are asked for at once; then tell error and size."""
    sizes = []
    for number, suggestion in zip(numbers, sampler.ask(numbers), strict=True):
        width, depth = (float(str(suggestion.params[name])) for name in ("width", "depth"))
        sizes.append(width * (width + depth))
        error = 0.05 + 0.6 / (1.0 + sizes[-1] / 500.0)
        state, more = TrialState.COMPLETE, (sizes[-1],)
        sampler.tell(Trial(number, suggestion.params, "test", state, error, extra_values=more))
    return sizes


def test_most_trials_lie_between_the_ends_of_the_front() -> None:
    """A rank by fronts and crowding distance sends nearly all to the ends."""
    sizes = []
    for seed in range(3):
        sampler = BayesianSampler(SPACE, seed, directions=(Direction.MIN, Direction.MIN))
        asked(sampler, range(5))
        for number in range(5, 20):
            sizes += asked(sampler, range(number, number + 1))
    assert sum(20.0 < size < 10_000.0 for size in sizes) > 30  # of 45


def test_a_batch_covers_the_front() -> None:
    sampler = BayesianSampler(SPACE, 0, directions=(Direction.MIN, Direction.MIN))
    asked(sampler, range(8))
    sizes = asked(sampler, range(8, 16))
    assert min(sizes) < 1_000.0
    assert max(sizes) > 5_000.0
    assert sum(1_000.0 < size < 5_000.0 for size in sizes) >= 3


def test_suggestions_do_not_depend_on_the_order_of_the_results() -> None:
    rng = np.random.default_rng(0)
    trials = [
        Trial(n, SPACE.sample(rng), "test", TrialState.COMPLETE, each, extra_values=(rng.random(),))
        for n, each in enumerate(rng.random(12).tolist())
    ]
    trials.append(Trial(12, SPACE.sample(rng), "test", TrialState.FAILED))
    trials.append(Trial(13, SPACE.sample(rng), "test", TrialState.RUNNING))
    suggestions = []
    for told in (trials, trials[::-1]):
        sampler = BayesianSampler(SPACE, 0, directions=(Direction.MIN, Direction.MAX))
        for trial in told:
            sampler.tell(trial)
        suggestions.append(sampler.ask(range(20, 23)))
    assert suggestions[0] == suggestions[1]


@pytest.mark.parametrize("same", [(0,), (1,), (0, 2), (1, 2, 3)])
def test_an_objective_that_was_always_the_same_has_no_influence(same: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    objectives = len(same) + 1
    alone, among = (
        BayesianSampler(SPACE, 0, directions=(Direction.MIN,) * count) for count in (1, objectives)
    )
    for number in range(12):
        params = SPACE.sample(rng)
        value = abs(float(str(params["width"])) - 40.0)
        values = [7.0 if place in same else value for place in range(objectives)]
        for sampler, (first, *more) in ((alone, [value]), (among, values)):
            state = TrialState.COMPLETE
            sampler.tell(Trial(number, params, "test", state, first, extra_values=tuple(more)))
    assert among.ask(range(12, 15)) == alone.ask(range(12, 15))


def test_of_many_trials_the_front_is_modelled_and_not_what_was_stopped() -> None:
    """A stopped trial may lack an objective; it is no better there than usual."""
    encoding = Encoding(SPACE)
    history = History(encoding, directions=(Direction.MIN,) * 3)
    for number in range(28):
        width, depth = 4.0 * number + 1.0, 1.0 if number % 7 == 0 else 2.0 + number % 7
        first, second = width / 128.0 + depth, 1.0 - width / 128.0 + depth
        is_stopped = depth > 1.0 and number % 2 == 1
        state = TrialState.PRUNED if is_stopped else TrialState.COMPLETE
        more = (second,) if is_stopped else (second, depth)
        params = {"width": width, "depth": depth}
        history.tell(Trial(number, params, "test", state, first, extra_values=more))
    features = KernelFeatures(encoding)
    seen = [history.of_objective(each) for each in range(3)]
    found = fit_front(SurrogateFitter(features, max_modelled=12), features, seen)
    best = encoding.rows({"width": 28.0 * k + 1.0, "depth": 1.0} for k in range(4)).tolist()
    assert all(row in found.promising.tolist() for row in best)


CORNERS = ((0.2, 0.2), (0.2, 0.8), (0.8, 0.2), (0.8, 0.8))


def test_four_objectives_lead_to_the_configurations_that_are_good_in_some() -> None:
    """Each objective is the distance from a corner of a square; the square is the front."""
    square = SearchSpace((FloatParameter("x", -5.0, 6.0), FloatParameter("y", -5.0, 6.0)))
    sampler = BayesianSampler(square, 0, directions=(Direction.MIN,) * 4)
    inside = 0
    for number in range(30):
        (suggestion,) = sampler.ask([number])
        x, y = (float(str(suggestion.params[name])) for name in ("x", "y"))
        first, *more = (math.dist((x, y), corner) for corner in CORNERS)
        state = TrialState.COMPLETE
        ended = Trial(number, suggestion.params, "test", state, first, extra_values=tuple(more))
        sampler.tell(ended)
        inside += number >= 10 and max(abs(x - 0.5), abs(y - 0.5)) < 0.8
    assert inside > 10  # of 20; 2 % of the space


def test_the_front_is_followed_to_where_trials_fail() -> None:
    cube = SearchSpace(tuple(FloatParameter(name, 0.0, 1.0) for name in ("width", "depth", "rate")))
    sampler = BayesianSampler(cube, 2, directions=(Direction.MIN,) * 2)
    largest = 0.0
    for number in range(30):
        ((params, origin),) = [(each.params, each.origin) for each in sampler.ask([number])]
        width, depth, rate = (float(str(params[name])) for name in ("width", "depth", "rate"))
        size, error = width + depth, (rate - 0.4) ** 2 - width - depth
        if size > 1.2:
            sampler.tell(Trial(number, params, origin, TrialState.FAILED))
            continue
        largest = max(largest, size)
        state = TrialState.COMPLETE
        sampler.tell(Trial(number, params, origin, state, error, extra_values=(size,)))
    assert largest > 0.7  # as careful as with one objective: 0.44
