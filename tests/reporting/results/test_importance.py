"""Importance of hyperparameters: known functions, conditions, and Optuna's figures."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import Direction, Params
from hptune.reporting.results.importance import MIN_TRIALS, importances

SPACE = SearchSpace(
    (
        FloatParameter("rate", 1e-4, 1e-1, scale=Scale.LOG),
        FloatParameter("noise", 0.0, 1.0),
        IntParameter("units", 16, 128, step=16),
        ChoiceParameter("kind", ("relu", "tanh", "gelu")),
        FloatParameter("slope", 0.0, 1.0, conditions=(Condition("kind", ("relu",)),)),
        FixedParameter("batch", 32),
    )
)


def results(count: int, seed: int = 0) -> list[tuple[Params, float]]:
    rng = np.random.default_rng(seed)
    return [(params, loss(params)) for params in (SPACE.sample(rng) for _ in range(count))]


def loss(params: Params) -> float:
    rate, units, slope = (params.get(name, 0.0) for name in ("rate", "units", "slope"))
    assert isinstance(rate, float)
    assert isinstance(units, int | float)
    assert isinstance(slope, float)
    far = (math.log10(rate) + 2.5) ** 2 + 0.4 * (units / 128 - 0.5) ** 2
    return far + (0.3 if params["kind"] == "tanh" else 0.0) + 0.2 * slope


def test_the_order_of_a_known_function() -> None:
    found = importances(SPACE, results(400), Direction.MIN)
    assert found[0].name == "rate"
    shares = {each.name: each.share for each in found}
    assert shares["rate"] > 0.6
    assert shares["noise"] < 0.03
    assert sum(shares.values()) == pytest.approx(1.0)
    assert "batch" not in shares  # it is not searched
    for each in found:
        assert 0.0 <= each.low <= each.high <= 1.0
    assert found[0].low <= found[0].share <= found[0].high


def test_the_direction_and_equal_runs() -> None:
    points = results(200)
    mirrored = [(params, -value) for params, value in points]
    lowest = importances(SPACE, points, Direction.MIN)
    assert importances(SPACE, mirrored, Direction.MAX) == lowest
    assert importances(SPACE, points, Direction.MIN) == lowest


def test_more_trials_narrow_the_intervals() -> None:
    few, many = (importances(SPACE, results(count), Direction.MIN) for count in (40, 1000))
    widths = [max(each.high - each.low for each in found) for found in (few, many)]
    assert widths[1] < widths[0]


@pytest.mark.parametrize("count", [20, 40, 200])
def test_an_estimate_lies_within_its_interval(count: int) -> None:
    for each in importances(SPACE, results(count), Direction.MIN):
        assert 0.0 <= each.low <= each.share <= each.high <= 1.0


def test_too_few_trials_and_values_that_are_not_finite() -> None:
    assert importances(SPACE, results(MIN_TRIALS - 1), Direction.MIN) == []
    points = results(MIN_TRIALS)
    nothing = [(params, math.nan) for params, _ in points]
    assert importances(SPACE, [*points, *nothing], Direction.MIN) == importances(
        SPACE, points, Direction.MIN
    )
    assert (
        importances(SearchSpace((FixedParameter("x", 1),)), [({"x": 1}, 1.0)] * 30, Direction.MIN)
        == []
    )
    equal = [(params, 1.0) for params, _ in results(50)]
    assert importances(SPACE, equal, Direction.MIN) == []


@pytest.mark.parametrize("count", [60, 500])
def test_as_optuna_finds_it(count: int) -> None:
    optuna = pytest.importorskip("optuna", minversion="5.0")
    space = SearchSpace((*SPACE.parameters[:5], BooleanParameter("flag")))
    kinds = optuna.distributions
    distributions = {
        "rate": kinds.FloatDistribution(1e-4, 1e-1, log=True),
        "noise": kinds.FloatDistribution(0.0, 1.0),
        "units": kinds.IntDistribution(16, 128, step=16),
        "kind": kinds.CategoricalDistribution(("relu", "tanh", "gelu")),
        "slope": kinds.FloatDistribution(0.0, 1.0),
        "flag": kinds.CategoricalDistribution((False, True)),
    }
    rng = np.random.default_rng(count)
    points = [(params, loss(params)) for params in (space.sample(rng) for _ in range(count))]
    study = optuna.create_study()
    for params, value in points:
        given = {name: distributions[name] for name in params}
        study.add_trial(optuna.create_trial(params=dict(params), distributions=given, value=value))
    theirs = optuna.importance.get_param_importances(study)
    ours = {each.name: each.share for each in importances(space, points, Direction.MIN)}
    assert ours == pytest.approx(theirs, abs=0.02)
