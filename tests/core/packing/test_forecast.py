"""Estimates hold for odd data, and survive the ledger."""

from __future__ import annotations

import math
import random

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from hptune.core.messages import PackingDecided
from hptune.core.packing.forecast import fit
from hptune.core.packing_plan import PackingPlan
from hptune.core.trial import Params
from hptune.storage.ledger.codec import decode_event, encode_event

VALUES = st.one_of(
    st.integers(-5, 5), st.floats(-1e3, 1e3), st.booleans(), st.sampled_from(["a", "b"]), st.none()
)
PARAMS = st.dictionaries(st.sampled_from(["units", "rate", "kind"]), VALUES)
POINTS = st.lists(st.tuples(PARAMS, st.floats(0.0, 1e12)), min_size=1, max_size=20)


@given(points=POINTS, params=PARAMS)
@settings(deadline=None, max_examples=100)
def test_an_estimate_is_positive_and_below_its_bound(
    points: list[tuple[Params, float]], params: Params
) -> None:
    estimate = fit(points)
    values = [max(1e-9, value) for _, value in points]
    assert min(values) / 4.001 <= estimate.typical(params) <= estimate.upper(params)
    assert estimate.typical(params) <= 4.001 * max(values)
    assert math.isfinite(estimate.upper(params))
    event = PackingDecided(1.0, PackingPlan(memory=estimate))
    again = decode_event(*encode_event(event))
    assert isinstance(again, PackingDecided)
    assert again.plan.memory is not None
    assert again.plan.memory.upper(params) == estimate.upper(params)


def grown(params: Params, noise: float = 0.0) -> float:
    power: float = float(params["units"] or 0) ** 0.8
    return 3.0 * power * float(params["layers"] or 0) * math.exp(noise)


def configurations(count: int) -> list[Params]:
    draw = random.Random(5)
    return [
        {"units": draw.randint(16, 512), "layers": draw.randint(1, 6), "rate": draw.random()}
        for _ in range(count)
    ]


@pytest.mark.parametrize("largest", [1e300, 1.7e308, 10**400])
def test_hyperparameters_may_span_all_that_a_float_can_hold(largest: float) -> None:
    points: list[tuple[Params, float]] = [
        ({"rate": 1e-300}, 1.0),
        ({"rate": largest}, 2.0),
        ({"rate": -largest}, 2.0),
    ]
    estimate = fit(points * 3)
    assert math.isfinite(estimate.upper({"rate": 1.0}))
    assert math.isfinite(estimate.upper({"rate": largest}))
    assert math.isfinite(fit([({"rate": largest}, 1.0)] * 6).upper({"rate": largest}))


def test_a_rate_far_above_those_seen_does_not_take_all_memory_away() -> None:
    memory = fit([({"rate": k * 1e-8}, 1e9 * math.exp(-0.1 * k)) for k in range(8)])
    assert 1e8 < memory.upper({"rate": 1.0}) < 1e9


def test_products_of_hyperparameters_are_found_among_others() -> None:
    estimate = fit([(params, grown(params)) for params in configurations(40)])
    assert set(estimate.depends_on) == {"units", "layers"}
    for params in configurations(60)[40:]:
        assert grown(params) <= estimate.upper(params) <= 1.2 * grown(params)


def test_few_trials_exceed_their_bound() -> None:
    noise = random.Random(7)
    points = [(params, grown(params, noise.gauss(0.0, 0.1))) for params in configurations(300)]
    estimate = fit(points[:96])
    exceeding = sum(value > estimate.upper(params) for params, value in points[96:])
    assert exceeding <= 0.06 * 204
    usual = sum(estimate.upper(params) / grown(params) for params, _ in points[96:]) / 204
    assert usual < 1.4


def test_a_choice_never_seen_is_given_the_most_of_all() -> None:
    points = [({**params, "kind": "a"}, grown(params)) for params in configurations(20)]
    estimate = fit(points)
    small: Params = {"units": 16, "layers": 1, "rate": 0.5, "kind": "a"}
    assert estimate.upper(small) < estimate.largest
    assert estimate.upper({**small, "kind": "b"}) >= estimate.largest
    assert estimate.upper({**small, "more": 1}) >= estimate.largest
