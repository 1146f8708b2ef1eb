"""Properties of every search space and every parameter."""

from __future__ import annotations

import itertools
import json
import math
import pickle
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hptune.core.space.space import FloatParameter, Parameter, SearchSpace
from hptune.core.trial import ParamValue
from space_strategies import parameters, small_parameters, spaces

UNIT = st.floats(0.0, 1.0)
no_deadline = settings(deadline=None)  # machines that build and test are busy


@no_deadline
@given(parameters(), UNIT)
def test_every_unit_gives_an_allowed_plain_value(parameter: Parameter, u: float) -> None:
    value = parameter.from_unit(u)
    assert parameter.explain(value) == ""
    assert type(value) in (bool, int, float, str)
    assert 0.0 <= parameter.to_unit(value) <= 1.0


@no_deadline
@given(parameters(), UNIT)
def test_discrete_values_survive_the_unit_cube(parameter: Parameter, u: float) -> None:
    value = parameter.from_unit(u)
    back = parameter.from_unit(parameter.to_unit(value))
    if parameter.values is None:
        assert isinstance(back, float)
        assert isinstance(value, float)
        assert isinstance(parameter, FloatParameter)
        assert math.isclose(back, value, rel_tol=1e-6, abs_tol=abs(parameter.high) * 1e-9)
    else:
        assert back == value
        assert value in parameter.values


@no_deadline
@given(parameters())
def test_both_ends_of_a_continuum_are_exact(parameter: Parameter) -> None:
    if isinstance(parameter, FloatParameter) and parameter.values is None:
        assert parameter.from_unit(0.0) == parameter.low
        assert parameter.from_unit(1.0) == parameter.high


@no_deadline
@given(small_parameters("p"))
def test_a_fine_comb_of_units_finds_every_value(parameter: Parameter) -> None:
    assert parameter.values is not None
    found = {repr(parameter.from_unit(k / 500)) for k in range(501)}
    assert found == {repr(value) for value in parameter.values}


@no_deadline
@given(spaces())
def test_the_json_form_keeps_everything(space: SearchSpace) -> None:
    written = json.loads(json.dumps(space.to_json(), allow_nan=False))
    assert SearchSpace.from_json(written) == space
    assert SearchSpace.from_json(written).to_json() == space.to_json()
    assert space.differences(SearchSpace.from_json(written)) == []


@no_deadline
@given(spaces())
def test_a_space_survives_pickling(space: SearchSpace) -> None:
    assert pickle.loads(pickle.dumps(space)) == space


@no_deadline
@given(spaces(), st.integers(0, 2**32))
def test_samples_and_defaults_are_contained(space: SearchSpace, seed: int) -> None:
    for params in (space.sample(np.random.default_rng(seed)), space.defaults()):
        assert space.explain(params) == ""
        assert [p.name for p in space.active(params)] == list(params)
        assert space.key(params) == space.key(dict(reversed(list(params.items()))))


def by_hand(space: SearchSpace, resolution: int) -> list[dict[str, ParamValue]]:
    """Return those combinations of all declarations' values that the space contains."""
    names = list(dict.fromkeys(p.name for p in space))
    values: dict[str, list[ParamValue]] = {name: [] for name in names}
    for parameter in space:
        values[parameter.name] += [
            value
            for value in parameter.grid_values(resolution)
            if not any(type(value) is type(v) and value == v for v in values[parameter.name])
        ]
    missing: Any = object()
    found = []
    for combination in itertools.product(*([missing, *values[name]] for name in names)):
        params = {k: v for k, v in zip(names, combination, strict=True) if v is not missing}
        if space.contains(params):
            found.append(params)
    return found


@no_deadline
@given(spaces(small=True, most=5))
def test_size_and_grid_agree_with_counting_by_hand(space: SearchSpace) -> None:
    expected = {space.key(params) for params in by_hand(space, resolution=9)}
    every = space.configurations()
    assert every is not None
    keys = [space.key(params) for params in every]
    assert len(keys) == len(set(keys)) == every.count == space.size()
    assert set(keys) == expected
    assert [every.at(k) for k in range(every.count)] == list(every)


@no_deadline
@given(spaces(largest=500, most=4), st.integers(2, 5))
def test_grids_are_contained_distinct_and_as_many_as_said(
    space: SearchSpace, resolution: int
) -> None:
    size = space.grid(resolution).count
    head = list(itertools.islice(space.grid(resolution), 300))
    assert len(head) == min(size, 300)
    assert len({space.key(params) for params in head}) == len(head)
    assert all(space.contains(params) for params in head)
    last = space.grid(resolution).at(size - 1)
    assert space.contains(last)
    whole = space.size()
    assert whole is None or size <= whole


@no_deadline
@given(spaces(), spaces())
def test_growing_keeps_ours_and_adds_theirs(ours: SearchSpace, theirs: SearchSpace) -> None:
    more = ours.extended(theirs.to_json())
    assert more.parameters[: len(ours)] == ours.parameters
    assert more.extended(theirs.to_json()) == more
    assert all(line.endswith(" was added") for line in ours.differences(more))
    assert not any("was added" in line for line in more.differences(theirs))
