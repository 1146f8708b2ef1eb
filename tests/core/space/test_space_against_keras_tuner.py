"""Our parameters, and our HyperParameters, mean what KerasTuner's mean."""

from __future__ import annotations

import contextlib
import json
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    SearchSpace,
)
from hptune.errors import SpaceError
from hptune.training.hyperparameters import HyperParameters, make_hyperparameters
from space_strategies import spaces

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


# --- our HyperParameters ----------------------------------------------------------------------


def classes() -> list[Any]:
    """Return KerasTuner's class, ours, and ours as it is if KerasTuner is imported."""
    import keras_tuner

    return [keras_tuner.HyperParameters, HyperParameters, type(make_hyperparameters())]


def declare_one(hp: Any, parameter: Parameter) -> Any:
    with contextlib.ExitStack() as scopes:
        for each in parameter.conditions:
            scopes.enter_context(hp.conditional_scope(each.name, list(each.values)))
        match parameter:
            case FixedParameter():
                return hp.Fixed(parameter.name, parameter.value)
            case BooleanParameter():
                return hp.Boolean(parameter.name, parameter.default)
            case ChoiceParameter():
                values, ordered = list(parameter.values), parameter.ordered
                return hp.Choice(parameter.name, values, ordered, default=parameter.default)
            case FloatParameter() | IntParameter():
                method = hp.Int if isinstance(parameter, IntParameter) else hp.Float
                low, high, step = parameter.low, parameter.high, parameter.step
                default = parameter.default
                return method(parameter.name, low, high, step, str(parameter.scale), default)


def outcome(call: Callable[[], Any]) -> Any:
    """Return the result of a call, or the type of its error."""
    try:
        return call()
    except Exception as error:
        return type(error)


def behaviour(hp: Any, space: SearchSpace) -> dict[str, Any]:
    names = {parameter.name for parameter in space}
    return {
        "returned": [repr(declare_one(hp, each)) for each in [*space, *space]],
        "values": hp.values,
        "space": SearchSpace.from_json(hp.get_config()["space"]),
        "active": {name: hp.is_active(name) for name in names},
        "active declarations": [hp.is_active(each) for each in hp.space],
        "get": {name: outcome(partial(hp.get, name)) for name in {*names, "absent"}},
        "item": {name: outcome(partial(hp.__getitem__, name)) for name in {*names, "absent"}},
        "in": {name: name in hp for name in {*names, "absent"}},
        # Which of them are active is another matter: KerasTuner looks at the innermost one only.
        "scopes": sorted(
            repr([(each.name, list(each.values)) for each in scope])
            for scope in (*hp.active_scopes, *hp.inactive_scopes)
        ),
    }


@settings(deadline=None)
@given(spaces(), st.none() | st.integers(0, 2**32))
def test_declarations_behave_alike(space: SearchSpace, seed: int | None) -> None:
    """With the defaults, and with values that were suggested."""
    values = {} if seed is None else space.sample(np.random.default_rng(seed))
    found = []
    for own in classes():
        hp = own()
        hp.values = dict(values)
        found.append(behaviour(hp, space))
    assert found[1] == found[0]
    assert found[2] == found[0]


@settings(deadline=None)
@given(spaces(), st.integers(0, 2**32))
def test_configurations_are_read_alike(space: SearchSpace, seed: int) -> None:
    values = space.sample(np.random.default_rng(seed))
    found = []
    for own in classes():
        config = {"space": json.loads(json.dumps(space.to_json())), "values": values}
        hp = own.from_config(config).copy()
        found.append(behaviour(hp, space))
    assert found[1] == found[0]
    assert found[2] == found[0]


def nested_names(hp: Any) -> Any:
    with hp.name_scope("head"):
        kind = hp.Choice("kind", ["a", "b"])
        with hp.conditional_scope("kind", "a"), hp.name_scope("deep"):
            return kind, hp.Int("units", 1, 3, default=2), "units" in hp, hp.get("units")


def changed_bounds(hp: Any) -> Any:
    return hp.Int("x", 1, 5), hp.Int("x", 3, 9), hp.Choice("x", [7, 8])


def inactive(hp: Any) -> Any:
    hp.Boolean("deep")
    drop = hp.Float("drop", 0, 1, parent_name="deep", parent_values=[True])
    same = hp.Float("rate", 0.5, 1, parent_name="deep", parent_values=[False])
    return drop, same, outcome(lambda: hp.get("drop")), outcome(lambda: hp["drop"])


@pytest.mark.parametrize(
    "use",
    [
        nested_names,
        changed_bounds,
        inactive,
        lambda hp: hp.Choice("x", [True, False]),
        lambda hp: hp.Choice("x", [True, False], default=False),
        lambda hp: hp.Choice("x", (1, 1, 2)),
        lambda hp: hp.Int("x", 2.0, 4.0),
        lambda hp: hp.Int("x", 1, 8, sampling=None),
        lambda hp: hp.Float("x", 1, 8, sampling="LOG"),
        lambda hp: hp.Boolean("x", 1),
        lambda hp: hp.Int(name=3, min_value=1, max_value=2),
        lambda hp: hp.get("absent"),
        # and what is wrong
        lambda hp: hp.Int("x", 10, 1),
        lambda hp: hp.Int("x", 1.5, 3),
        lambda hp: hp.Int("x", 1, 8, step=0.5),
        lambda hp: hp.Int("x", 1, 8, step=1, sampling="log"),
        lambda hp: hp.Int("x", 0, 8, sampling="log"),
        lambda hp: hp.Float("x", -1, 1, sampling="reverse_log"),
        lambda hp: hp.Float("x", 0, 1, sampling="cubic"),
        lambda hp: hp.Float("x", None, 1),
        lambda hp: hp.Choice("x", []),
        lambda hp: hp.Choice("x", ["a", 1]),
        lambda hp: hp.Choice("x", [1, 1.0]),
        lambda hp: hp.Choice("x", [None, None]),
        lambda hp: hp.Choice("x", [(1, 2), (3, 4)]),
        lambda hp: hp.Choice("x", 3),
        lambda hp: hp.Choice("x", {"a", "b"}),
        lambda hp: hp.Choice("x", ["a", "b"], default="c"),
        lambda hp: hp.Choice("x", ["a", "b"], ordered=True),
        lambda hp: hp.Boolean("x", "yes"),
        lambda hp: hp.Fixed("x", None),
        lambda hp: hp.Fixed("x", [1]),
        lambda hp: hp.Int("x", 1, 2, parent_name="absent", parent_values=[1]),
        lambda hp: (hp.Boolean("a"), hp.Int("a", 1, 2, parent_name="a", parent_values=[True])),
        lambda hp: (hp.Int("a", 1, 2), hp.Int("x", 1, 2, parent_name="a", parent_values=[])),
    ],
)
def test_uses_have_the_same_result_or_fail_alike(use: Callable[[Any], Any]) -> None:
    """Errors of ours in a declaration are SpaceErrors, whatever they are in KerasTuner."""
    results = []
    for own in classes():
        hp = own()
        result = outcome(partial(use, hp))
        is_error = isinstance(result, type)
        if is_error and own is classes()[0] and result is not KeyError:
            assert issubclass(result, ValueError | TypeError | IndexError)
            result = SpaceError
        results.append((result, {} if is_error else hp.values))
    assert results[1] == results[0]
    assert results[2] == results[0]


@pytest.mark.parametrize(
    "declare",
    [
        lambda hp: hp.Int("x", 1, 3, default=7),
        lambda hp: hp.Float("x", 0, 1, step=0),
        lambda hp: hp.Float("x", 0, float("inf")),
        lambda hp: hp.Int("x", 0, 2**60),
        lambda hp: hp.Fixed("", 3),
        lambda hp: hp.Choice("x", "abc"),  # which KerasTuner takes for a choice of three letters
    ],
)
def test_what_a_search_space_cannot_hold_or_cannot_mean_is_refused(
    declare: Callable[[Any], Any],
) -> None:
    theirs, *ours = (own() for own in classes())
    declare(theirs)
    for hp in ours:
        with pytest.raises(SpaceError):
            declare(hp)


def test_numpy_scalars_become_plain_numbers() -> None:
    hp = HyperParameters()
    low: Any = np.float32(0.5)
    values = [hp.Choice("x", [np.int64(1), np.int64(2)]), hp.Float("y", low, 1)]
    assert list(map(type, values)) == [int, float]


def test_it_is_an_instance_of_keras_tuners_class_where_that_is_imported() -> None:
    import keras_tuner

    hp = make_hyperparameters([{"class_name": "Boolean", "config": {"name": "x"}}], {"x": True})
    assert isinstance(hp, keras_tuner.HyperParameters)
    assert isinstance(hp, HyperParameters)
    assert hp.get("x") is True


def test_it_can_be_pickled_also_where_keras_tuner_is_imported() -> None:
    """As for the processes of a data loader."""
    import keras_tuner

    hp = make_hyperparameters((), {"n": 3})
    hp.Int("n", 1, 5)
    found = pickle.loads(pickle.dumps(hp))
    assert isinstance(found, keras_tuner.HyperParameters)
    assert (found.values, found.space) == ({"n": 3}, hp.space)


def test_a_value_that_is_missing_becomes_the_default_only_where_it_is_active() -> None:
    """As for a hyperparameter that joined the space after the trial was suggested."""
    hp = HyperParameters()
    declare(hp)
    late = HyperParameters.from_config({"space": hp.get_config()["space"], "values": {}})
    declare(late)
    assert late.values == {"cell": "lstm", "units": 1, "peephole": False}
