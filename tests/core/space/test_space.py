from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from hptune.core.space.completion import completed
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import ParamValue
from hptune.errors import SpaceError
from hptune.testing.spaces import EMPTY, FINITE, LOOKALIKES, NESTED

# --- values -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (IntParameter("p", 6, 9), [6, 7, 8, 9]),
        (IntParameter("p", 6, 13, step=3), [6, 9, 12]),
        (IntParameter("p", 2, 32, step=2, scale=Scale.LOG), [2, 4, 8, 16, 32]),
        (IntParameter("p", 10, 1000, step=10, scale=Scale.LOG), [10, 100, 1000]),
        (IntParameter("p", 1, 100, step=10, scale=Scale.REVERSE_LOG), [100, 91, 1]),
        (IntParameter("p", 3, 5, scale=Scale.LOG), [3, 4, 5]),
        (FloatParameter("p", 0, 1, step=0.25), [0.0, 0.25, 0.5, 0.75, 1.0]),
        (FloatParameter("p", 0, 0.3, step=0.1), [0.0, 0.1, 0.2, 0.3]),
        (FloatParameter("p", 0.001, 10, step=10, scale=Scale.LOG), [0.001, 0.01, 0.1, 1, 10]),
        (FloatParameter("p", 0.5, 0.5), [0.5]),
        (ChoiceParameter("p", ("b", "a", "b")), ["b", "a"]),
        (BooleanParameter("p"), [False, True]),
        (FixedParameter("p", "x"), ["x"]),
    ],
)
def test_the_values_of_a_parameter(parameter: Parameter, values: list[object]) -> None:
    assert parameter.values is not None
    assert list(parameter.values) == pytest.approx(values)
    assert all(parameter.explain(value) == "" for value in parameter.values)


@pytest.mark.parametrize("values", [(None, 5, 10), ("l2", None), (None, 0.5), (True, None)])
def test_none_may_be_among_the_choices(values: tuple[ParamValue, ...]) -> None:
    parameter = ChoiceParameter("p", values)
    child = IntParameter("deep", 1, 3, conditions=(Condition("p", (None,)),))
    space = SearchSpace((parameter, child))
    assert not parameter.ordered
    assert [parameter.from_unit(parameter.to_unit(value)) for value in values] == list(values)
    assert [parameter.read(str(value)) for value in values] == list(values)
    assert SearchSpace.from_json(json.loads(json.dumps(space.to_json()))) == space
    assert completed(space, {"p": None}) == {"p": None, "deep": 2}
    assert completed(space, {"p": "None"}) == {"p": None, "deep": 2}
    other = next(value for value in values if value is not None)
    assert completed(space, {"p": other}) == {"p": other}
    assert len({space.key(completed(space, {"p": value})) for value in values}) == len(values)


def test_a_step_of_a_tenth_reaches_one() -> None:
    values = FloatParameter("p", 0, 1, step=0.1).values
    assert values is not None
    assert len(values) == 11
    assert values[-1] == 1.0
    assert values[2:4] == (0.2, 0.30000000000000004)


def test_a_continuum_has_no_list_of_values() -> None:
    assert FloatParameter("p", 0, 1).values is None
    assert SearchSpace((FloatParameter("p", 0, 1),)).size() is None


def test_a_value_that_is_off_by_rounding_is_on_the_step() -> None:
    space = SearchSpace((FloatParameter("p", 0, 1, step=0.1),))
    assert space.contains({"p": 0.3})
    assert space.key({"p": 0.3}) == space.key({"p": 0.30000000000000004})
    assert space.key({"p": 0}) == space.key({"p": 0.0}) == space.key({"p": -0.0})


def test_log_floats_are_exact_at_both_ends() -> None:
    for low, high in ((1e-5, 0.3), (3e-7, 1.7e-2), (0.1, 0.7)):
        for scale in (Scale.LOG, Scale.REVERSE_LOG):
            parameter = FloatParameter("p", low, high, scale=scale)
            assert (parameter.from_unit(0.0), parameter.from_unit(1.0)) == (low, high)
            assert parameter.grid_values(5)[0] == low
            assert parameter.grid_values(5)[-1] == high


def test_grid_points_lie_evenly_on_the_parameters_own_scale() -> None:
    assert FloatParameter("p", 0, 1).grid_values(3) == (0.0, 0.5, 1.0)
    assert IntParameter("p", 1, 10_000, scale=Scale.LOG).grid_values(5) == (
        1,
        10,
        100,
        1_000,
        10_000,
    )
    logarithms = [
        math.log10(v) for v in FloatParameter("p", 1e-4, 1, scale=Scale.LOG).grid_values(5)
    ]
    assert logarithms == pytest.approx([-4, -3, -2, -1, 0])


# --- what is refused --------------------------------------------------------------------------

SCOPE = (Condition("a", (1,)),)
NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: IntParameter("units", 9, 3), "units: the lower bound 9 is above the upper bound"),
        (lambda: FloatParameter("rate", 0, 1, scale=Scale.LOG), "rate: the lower bound is 0.0 on"),
        (lambda: FloatParameter("rate", NAN, 1), "rate: the lower bound is nan; give a finite"),
        (lambda: FloatParameter("rate", 0, INF), "rate: the upper bound is inf; give a finite"),
        (lambda: FloatParameter("rate", -1e308, 1e308), "too wide for floating point"),
        (lambda: FloatParameter("rate", 0, 1, step=0), "the step is 0.0; .* must be above 0"),
        (lambda: FloatParameter("rate", 0, 1, step=-1), "the step is -1.0; .* must be above 0"),
        (lambda: IntParameter("n", 1, 9, step=1, scale=Scale.LOG), "step is 1; .* above 1"),
        (lambda: FloatParameter("rate", 1, 2, step=1e-17), "the step 1e-17 is too fine"),
        (lambda: FloatParameter("rate", 0, 1, default=2), "rate: the default 2.0 lies outside"),
        (lambda: IntParameter("units", 1, 4, default=9), "units: the default 9 lies outside"),
        (lambda: IntParameter("units", cast(Any, 1.5), 4), "the lower bound is 1.5; give a whole"),
        (lambda: IntParameter("seed", 0, 2**60), r"allowed are whole numbers from -2\*\*53"),
        (lambda: ChoiceParameter("act", ()), "act: there are no choices; give at least one"),
        (lambda: ChoiceParameter("act", (None,)), "act: there are no choices but None; give at"),
        (lambda: ChoiceParameter("act", (None, 1), ordered=True), "have None and cannot be ord"),
        (lambda: ChoiceParameter("act", ((1, 2),)), r"look up what it stands for: {\"a\": …}\[hp"),  # type: ignore[arg-type]
        (lambda: ChoiceParameter("act", ("\ud800",)), "'act': '.ud800' is not valid text"),
        (lambda: FixedParameter("act", None), "act: None is not allowed as a value"),
        (lambda: ChoiceParameter("act", (1, "a")), "act: the choices .* mix int and str"),
        (lambda: ChoiceParameter("act", (1.0, NAN)), "act: nan is not allowed"),
        (
            lambda: ChoiceParameter("act", ("a",), default="b"),
            "default 'b' is not among the choices",
        ),
        (lambda: ChoiceParameter("act", ("a",), ordered=True), "are texts and cannot be ordered"),
        (lambda: BooleanParameter("flag", default=cast(Any, "no")), "flag: the default is 'no'"),
        (lambda: FixedParameter("epochs", INF), "epochs: inf is not allowed"),
        (lambda: Condition("a", ()), "a condition on a has no values"),
        (
            lambda: SearchSpace(
                (IntParameter("b", 1, 2, conditions=SCOPE), IntParameter("a", 1, 2))
            ),
            "b depends on a, which is not declared before it .*; declare a first",
        ),
        (
            lambda: SearchSpace((IntParameter("a", 1, 2), IntParameter("a", 1, 3))),
            r"a is declared twice: as Int 1..2 .* and as Int 1..3 .*; give one of them",
        ),
        (
            lambda: SearchSpace(
                (IntParameter("a", 1, 2), IntParameter("a", 1, 3, conditions=SCOPE))
            ),
            "a depends on itself",
        ),
        (lambda: SearchSpace((BooleanParameter(""),)), "has no name; give it one"),
        (
            lambda: SearchSpace.from_json([{"class_name": "Magic", "config": {}}]),
            "allowed are Float",
        ),
        (
            lambda: SearchSpace.from_json([{"class_name": "Int", "config": {"name": "a"}}]),
            "a: `min_value` is missing",
        ),
        (lambda: SearchSpace((BooleanParameter("a"),)).grid(1), "resolution is 1; allowed are 2"),
    ],
)
def test_what_makes_no_sense_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SpaceError, match=message):
        make()


# --- conditions -------------------------------------------------------------------------------


def test_a_name_has_the_bounds_of_the_scope_that_is_open() -> None:
    assert NESTED.contains({"cell": "lstm", "peephole": True, "units": 4, "bias": False})
    assert NESTED.contains({"cell": "gru", "units": 5, "bias": False})
    assert NESTED.explain({"cell": "gru", "units": 4, "bias": False}) == (
        "units is 4; allowed is 5..6"
    )


def test_an_inner_scope_is_closed_with_the_outer_one() -> None:
    outer, inner = Condition("a", (True,)), Condition("b", (1,))
    space = SearchSpace(
        (
            BooleanParameter("a"),
            IntParameter("b", 1, 2, conditions=(outer,)),
            BooleanParameter("c", conditions=(outer, inner)),
        )
    )
    assert [p.name for p in space.active({"a": False, "b": 1})] == ["a"]
    assert [p.name for p in space.active({"a": True})] == ["a", "b"]
    assert [p.name for p in space.active({"a": True, "b": 1})] == ["a", "b", "c"]
    assert space.size() == 4


def test_of_two_open_declarations_of_a_name_the_first_counts() -> None:
    space = SearchSpace(
        (
            BooleanParameter("a"),
            IntParameter("n", 1, 2, conditions=(Condition("a", (True,)),)),
            IntParameter("n", 7, 9),
        )
    )
    assert space.size() == 2 + 3
    assert space.contains({"a": True, "n": 2})
    assert not space.contains({"a": True, "n": 8})


def test_conditions_compare_as_python_does_because_kerastuner_does() -> None:
    space = SearchSpace(
        (
            ChoiceParameter("flag", (1, 0)),
            IntParameter("n", 1, 5, conditions=(Condition("flag", (True,)),)),
        )
    )
    assert space.contains({"flag": 1, "n": 3})
    assert space.size() == 6


def test_an_explanation_names_every_fault() -> None:
    fault = NESTED.explain({"cell": "lstm", "units": 4, "layers": 1, "depth": 3, "bias": 1})
    assert "peephole is missing; it is Boolean" in fault
    assert "bias is 1; give True or False" in fault
    assert "layers is given but not active: it needs cell is dense" in fault
    assert "depth is unknown; the space has cell, peephole, units" in fault


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"n": 2.0}, "must be a whole number"),
        ({"n": True}, "must be a whole number"),
        ({"n": 6}, "allowed is 1..5"),
        ({"n": 2}, "lies between two steps; the nearest step is"),
        ({"x": "1"}, "must be a finite number"),
        ({"x": math.nan}, "must be a finite number"),
        ({"x": 10**400}, "must be a finite number"),
        ({"c": "z"}, "allowed are 'a', 'b'"),
        ({"f": 4}, "it is fixed to 3"),
    ],
)
def test_a_wrong_value_is_explained(params: dict[str, Any], fault: str) -> None:
    space = SearchSpace(
        (
            IntParameter("n", 1, 5, step=2),
            FloatParameter("x", 0, 1),
            ChoiceParameter("c", ("a", "b")),
            FixedParameter("f", 3),
        )
    )
    given = {"n": 1, "x": 0.5, "c": "a", "f": 3, **params}
    assert fault in space.explain(given)


# --- identity ---------------------------------------------------------------------------------


def test_values_that_look_alike_make_different_keys() -> None:
    space = SearchSpace()
    keys = {space.key({"p": value}) for value in (1, 1.0, True, "1", "True", None)}
    assert len(keys) == 6


def test_a_key_does_not_depend_on_the_order_of_names() -> None:
    params = LOOKALIKES.defaults()
    assert LOOKALIKES.key(params) == LOOKALIKES.key(dict(reversed(list(params.items()))))


def test_an_int_for_a_float_parameter_is_the_same_configuration() -> None:
    space = SearchSpace((FloatParameter("x", 0, 2), ChoiceParameter("c", (0.5, 1.0))))
    assert space.contains({"x": 1, "c": 1})
    assert space.key({"x": 1, "c": 1}) == space.key({"x": 1.0, "c": 1.0})


# --- all of them ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("empty", 1),
        ("singletons", 1),
        ("plain", 54),
        ("steps", 108),
        ("lookalikes", 72),
        ("nested", 48),
        ("lopsided", 62),
    ],
)
def test_sizes(name: str, size: int) -> None:
    assert FINITE[name].size() == len(list(FINITE[name].grid(9))) == size


def test_huge_conditional_spaces_are_counted_at_once() -> None:
    layers = IntParameter("layers", 1, 100)
    units = [
        IntParameter(f"units{i}", 1, 1_000, conditions=(Condition("layers", tuple(range(i, 101))),))
        for i in range(1, 101)
    ]
    space = SearchSpace((layers, *units))
    assert space.size() == sum(1_000**i for i in range(1, 101))
    every = space.configurations()
    assert every is not None
    assert every.at(1_000) == {"layers": 2, "units1": 1, "units2": 1}
    assert len(every.at(every.count - 1)) == 101


def test_a_long_chain_of_scopes_needs_no_deep_stack() -> None:
    space = SearchSpace(tuple(BooleanParameter(f"p{i}") for i in range(1_200)))
    assert space.size() == 2**1_200
    assert len(next(iter(space.grid(2)))) == 1_200


def test_a_huge_grid_is_gone_through_lazily() -> None:
    space = SearchSpace((IntParameter("a", 0, 2**50), IntParameter("b", 0, 2**50)))
    assert space.grid(2).count == (2**50 + 1) ** 2
    assert [p["b"] for p in itertools.islice(space.grid(2), 3)] == [0, 1, 2]
    with pytest.raises(IndexError, match="there is no configuration"):
        space.grid(2).at(space.grid(2).count)


# --- two spaces, and people -------------------------------------------------------------------


def test_differences_in_words() -> None:
    old = SearchSpace(
        (
            IntParameter("units", 32, 512, step=32),
            FloatParameter("dropout", 0, 0.5),
            FloatParameter("rate", 1e-4, 1e-1, scale=Scale.LOG),
            ChoiceParameter("act", ("relu", "tanh")),
        )
    )
    new = SearchSpace(
        (
            IntParameter("units", 32, 256, step=32),
            FloatParameter("rate", 1e-4, 1e-1, scale=Scale.LOG, default=1e-3),
            ChoiceParameter("act", ("relu", "gelu")),
            IntParameter("kernel", 3, 5, conditions=(Condition("act", ("relu",)),)),
        )
    )
    assert old.differences(new) == [
        "units: Int 32..512, step 32 became Int 32..256, step 32",
        "dropout was removed",
        "rate: default 0.0001 became 0.001",
        "act: Choice of 'relu', 'tanh' became Choice of 'relu', 'gelu'",
        "kernel (when act is relu) was added",
    ]


def test_an_empty_space_has_one_configuration() -> None:
    assert list(EMPTY.grid(2)) == [{}]
    assert EMPTY.sample(np.random.default_rng(0)) == EMPTY.defaults() == {}
    assert len(EMPTY) == 0
    assert EMPTY.to_json() == []


def test_a_declaration_given_twice_is_taken_once() -> None:
    assert len(SearchSpace((BooleanParameter("a"), BooleanParameter("a")))) == 1


def test_numpy_numbers_become_plain() -> None:
    entry = {
        "class_name": "Choice",
        "config": {"name": "c", "values": [np.int64(3), np.int64(5)], "default": np.int64(5)},
    }
    (parameter,) = SearchSpace.from_json([entry])
    assert [type(value) for value in parameter.values or ()] == [int, int]
    assert type(parameter.default) is int


def test_the_space_loads_no_framework() -> None:
    program = (
        "import sys, hptune.core.space.space; "
        "sys.exit(any(name.startswith(('keras', 'tensorflow')) for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_space_grows_by_what_depends_on_it() -> None:
    """A trial may find parameters in a branch that no earlier call reached."""
    whole = NESTED.to_json()
    for known in range(len(whole) + 1):
        space = SearchSpace.from_json(whole[:known])
        assert space.extended(whole[known:]) == NESTED
        assert space.extended(whole) == NESTED
    inner = next(i for i, parameter in enumerate(NESTED) if parameter.conditions)
    with pytest.raises(SpaceError, match="not declared before"):
        EMPTY.extended(whole[inner:])
