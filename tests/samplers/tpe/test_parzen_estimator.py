from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hptune.core.space.space import Condition, FloatParameter, IntParameter, Scale, SearchSpace
from hptune.samplers.common.encoding import Encoding, Floats
from hptune.samplers.common.learning import Halton
from hptune.samplers.tpe.parzen_estimator import ParzenEstimator, Smoothing
from hptune.testing.spaces import FINITE, SPACES

each_space = pytest.mark.parametrize("name", SPACES)
each_finite_space = pytest.mark.parametrize("name", FINITE)


def rows_of(encoding: Encoding, space: SearchSpace, count: int, seed: int = 0) -> Floats:
    rng = np.random.default_rng(seed)
    rows = [encoding.encode(space.sample(rng)) for _ in range(count)]
    return np.array([row for row in rows if row is not None]).reshape(count, len(encoding))


def density_of(encoding: Encoding, space: SearchSpace, count: int) -> ParzenEstimator:
    weights = np.linspace(0.2, 2.0, count)
    return ParzenEstimator(encoding, rows_of(encoding, space, count), weights, Smoothing())


# --- the table --------------------------------------------------------------------------------


@each_space
def test_a_row_says_all_about_a_configuration(name: str) -> None:
    space = SPACES[name]
    encoding = Encoding(space)
    rng = np.random.default_rng(1)
    for _ in range(50):
        params = space.sample(rng)
        row = encoding.encode(params)
        assert row is not None
        back = encoding.decode(row, np.full(len(encoding), np.nan))
        assert list(back) == list(params)
        for parameter in space.active(params):
            there, here = back[parameter.name], params[parameter.name]
            assert np.isclose(parameter.to_unit(there), parameter.to_unit(here), atol=1e-12)


@each_space
def test_the_table_knows_what_is_active(name: str) -> None:
    space = SPACES[name]
    encoding = Encoding(space)
    full = density_of(encoding, space, 5).sample(np.random.default_rng(2), 60)
    active = encoding.active(full)
    for row, flags in zip(full, active, strict=True):
        params = encoding.decode(row, np.full(len(encoding), 0.5))
        encoded = encoding.encode(params)
        assert encoded is not None
        assert (~np.isnan(encoded)).tolist() == flags.tolist()


def test_the_table_knows_what_is_active_below_a_number_of_many_values() -> None:
    many = IntParameter("many", 1, 100)
    below = FloatParameter("x", 0.0, 1.0, conditions=(Condition("many", tuple(range(31, 101))),))
    encoding = Encoding(SearchSpace((many, below)))
    full = np.random.default_rng(0).random((200, 2))
    decoded = [encoding.decode(row, np.full(2, 0.5)) for row in full]
    assert encoding.active(full)[:, 1].tolist() == ["x" in params for params in decoded]
    assert 120 < sum("x" in params for params in decoded) < 160


def test_whole_numbers_on_a_log_scale_are_drawn_as_the_space_draws_them() -> None:
    space = SearchSpace((IntParameter("units", 1, 64, scale=Scale.LOG),))
    encoding = Encoding(space)
    uniform = ParzenEstimator(encoding, np.empty((0, 1)), np.empty(0))
    rng, count = np.random.default_rng(4), 4_000
    drawn = [encoding.decode(row, row)["units"] for row in uniform.sample(rng, count)]
    small = [float(units or 0) < 8 for units in drawn]
    expected = np.log(8) / np.log(65)
    assert np.mean(small) == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize("params", [{"x": 2.0}, {"x": "far"}, {"x": 0.5, "y": 1}])
def test_what_lies_outside_the_space_has_no_row(params: dict[str, Any]) -> None:
    encoding = Encoding(SearchSpace((FloatParameter("x", 0.0, 1.0),)))
    assert encoding.encode({"x": 0.5}) is not None
    assert encoding.encode(params) is None


def test_a_parameter_that_came_later_is_unknown_to_earlier_rows() -> None:
    encoding = Encoding(
        SearchSpace((FloatParameter("x", 0.0, 1.0), FloatParameter("late", 0.0, 1.0)))
    )
    np.testing.assert_array_equal(encoding.encode({"x": 0.5}), [0.5, np.nan])


# --- the density ------------------------------------------------------------------------------


@each_finite_space
@pytest.mark.parametrize("count", [0, 1, 12])
def test_probabilities_add_up_to_one(name: str, count: int) -> None:
    space = FINITE[name]
    encoding = Encoding(space)
    rows = [encoding.encode(params) for params in space.configurations() or ()]
    table = np.array([row for row in rows if row is not None])
    logs = density_of(encoding, space, count).log(np.nan_to_num(table), ~np.isnan(table))
    assert np.isclose(np.exp(logs).sum(), 1.0)


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.0, 1.0), max_size=12),
    st.floats(0.03, 2.0),
)
def test_a_density_over_a_line_has_area_one(places: list[float], magnitude: float) -> None:
    encoding = Encoding(SearchSpace((FloatParameter("x", 0.0, 1.0),)))
    rows = np.array(places).reshape(-1, 1)
    density = ParzenEstimator(encoding, rows, np.ones(len(rows)), Smoothing(magnitude=magnitude))
    grid = (np.arange(4_000)[:, None] + 0.5) / 4_000
    area = np.exp(density.log(grid, np.ones(grid.shape, dtype=np.bool_))).mean()
    assert np.isclose(area, 1.0, atol=1e-4)


@pytest.mark.parametrize("name", ["plain", "nested", "steps"])
def test_it_draws_what_it_calls_likely(name: str) -> None:
    space = FINITE[name]
    encoding = Encoding(space)
    density = density_of(encoding, space, 6)
    draws = 20_000
    drawn = density.sample(np.random.default_rng(3), draws)
    spare = np.full(len(encoding), 0.5)
    counts = Counter(space.key(encoding.decode(row, spare)) for row in drawn)
    for params in space.configurations() or ():
        row = encoding.encode(params)
        assert row is not None
        log = density.log(np.nan_to_num(row)[None], ~np.isnan(row)[None])
        expected = draws * float(np.exp(log[0]))
        assert abs(counts[space.key(params)] - expected) < 5 * np.sqrt(expected) + 5


# --- the start --------------------------------------------------------------------------------


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 5))
def test_every_coordinate_of_the_sequence_is_even(seed: int, block: int) -> None:
    sequence = Halton(4, np.random.default_rng(seed))
    for coordinate, (base, power) in enumerate([(2, 5), (3, 3), (5, 2), (7, 2)]):
        count = base**power
        numbers = range(block * count, (block + 1) * count)
        cells = [int(sequence.point(number)[coordinate] * count + 1e-6) for number in numbers]
        assert sorted(cells) == list(range(count))
