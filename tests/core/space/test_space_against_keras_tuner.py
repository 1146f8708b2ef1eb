"""Our parameters mean what KerasTuner's mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tuner.core.space.space import Parameter, SearchSpace

UNITS = [k / 97 for k in range(97)] + [0.999999]

DECLARATIONS = [
    ("Int", {"min_value": 1, "max_value": 10}),
    ("Int", {"min_value": -7, "max_value": 20, "step": 4}),
    ("Int", {"min_value": 32, "max_value": 512, "step": 32, "default": 100}),
    ("Int", {"min_value": 1, "max_value": 1000, "sampling": "log"}),
    ("Int", {"min_value": 5, "max_value": 5, "sampling": "log"}),
    ("Int", {"min_value": 2, "max_value": 100, "step": 2, "sampling": "log"}),
    ("Int", {"min_value": 10, "max_value": 1000, "step": 10, "sampling": "log"}),
    ("Int", {"min_value": 3, "max_value": 700, "sampling": "reverse_log"}),
    ("Int", {"min_value": 1, "max_value": 100, "step": 3, "sampling": "reverse_log"}),
    ("Float", {"min_value": 0, "max_value": 1}),
    ("Float", {"min_value": -2.5, "max_value": 7.25, "default": 1}),
    ("Float", {"min_value": 0, "max_value": 2, "step": 0.25}),
    ("Float", {"min_value": 0.0, "max_value": 0.95, "step": 0.1}),
    ("Float", {"min_value": 1e-5, "max_value": 1e-1, "sampling": "log"}),
    ("Float", {"min_value": 1e-4, "max_value": 0.5, "step": 10, "sampling": "log"}),
    ("Float", {"min_value": 0.9, "max_value": 0.999, "sampling": "reverse_log"}),
    ("Float", {"min_value": 1, "max_value": 500, "step": 7, "sampling": "reverse_log"}),
    ("Float", {"min_value": 0.5, "max_value": 0.5}),
    ("Choice", {"values": ["relu", "tanh", "gelu"], "default": "tanh"}),
    ("Choice", {"values": [16, 32, 64]}),
    ("Choice", {"values": [0.1, 0.2], "ordered": False}),
    ("Choice", {"values": [True, False]}),
    ("Boolean", {"default": True}),
    ("Fixed", {"value": 3}),
    ("Fixed", {"value": "adam"}),
]


@pytest.mark.parametrize(("kind", "config"), DECLARATIONS)
def test_units_and_values_are_mapped_alike(kind: str, config: dict[str, object]) -> None:
    import keras_tuner

    hp = keras_tuner.HyperParameters()
    getattr(hp, kind)("p", **config)
    theirs = hp.space[0]
    ours: Parameter = SearchSpace.from_json(hp.get_config()["space"]).parameters[0]
    assert ours.default == theirs.default
    for u in UNITS:
        value, expected = ours.from_unit(u), theirs.prob_to_value(u)
        assert type(value) is type(expected)
        if isinstance(value, float):
            expected = pytest.approx(expected, rel=1e-12)
        assert value == expected, f"at {u}"
    if "step" in config:
        assert list(ours.values or ()) == pytest.approx(list(theirs.values), rel=1e-12)
    if "step" not in config:  # with a step, KerasTuner's inverse is off by rounding
        for u in UNITS[1:]:
            value = ours.from_unit(u)
            assert ours.to_unit(value) == pytest.approx(theirs.value_to_prob(value), abs=1e-9)


def declare(hp: Any) -> None:
    cell = hp.Choice("cell", ["lstm", "dense"])
    with hp.conditional_scope("cell", ["lstm"]):
        hp.Int("units", 1, 8)
        hp.Boolean("peephole")
    with hp.conditional_scope("cell", ["dense"]):
        units = hp.Int("units", 16, 64, step=2, sampling="log")
        hp.Int("layers", 1, 3)
        with hp.conditional_scope("layers", [2, 3]):
            hp.Float("skip", 0, 1, step=0.5)
    assert (units is not None) == (cell == "dense")


def test_a_space_with_scopes_travels_there_and_back() -> None:
    import keras_tuner

    hp = keras_tuner.HyperParameters()
    declare(hp)
    space = SearchSpace.from_json(hp.get_config()["space"])
    assert space.size() == 8 * 2 + 3 * (1 + 2 * 3)
    assert space.defaults() == hp.values
    for params in space.grid(2):
        there = keras_tuner.HyperParameters.from_config(
            {"space": json.loads(json.dumps(space.to_json())), "values": dict(params)}
        )
        assert {p.name for p in there.space if there.is_active(p)} == set(params)
        declare(there)  # as building the model does: no value is missing, none is overruled
        assert there.values == params
        assert SearchSpace.from_json(there.get_config()["space"]) == space
