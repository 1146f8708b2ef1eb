"""benchmarks/quality/configspaces.py: spaces of ConfigSpace, as carps' tasks describe them."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hptune.core.space.space import SearchSpace

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

Entry = dict[str, Any]
Convert = Callable[[Entry], SearchSpace]


@pytest.fixture
def convert(monkeypatch: pytest.MonkeyPatch) -> Convert:
    monkeypatch.syspath_prepend(BENCHMARKS)
    found: Convert = importlib.import_module("quality.configspaces").search_space
    return found


def number(kind: str, name: str, low: float, high: float, *, log: bool = False) -> Entry:
    return {"type": f"uniform_{kind}", "name": name, "lower": low, "upper": high, "log": log}


def choice(name: str, *choices: object) -> Entry:
    return {"type": "categorical", "name": name, "choices": list(choices), "weights": None}


def equal(child: str, parent: str, value: object) -> Entry:
    return {"type": "EQ", "child": child, "parent": parent, "value": value}


def serialized(*parameters: Entry, conditions: tuple[Entry, ...] = ()) -> Entry:
    return {"hyperparameters": parameters, "conditions": conditions, "forbiddens": []}


def test_each_kind_keeps_its_range_and_scale(convert: Convert) -> None:
    space = convert(
        serialized(
            number("float", "rate", 1e-4, 1.0, log=True),
            number("float", "share", 0.0, 1.0),
            number("int", "rounds", 7, 2981, log=True),
            number("int", "depth", 1, 15),
            choice("impute", "mean", "median"),
            choice("bootstrap", True, False),
            {"type": "ordinal", "name": "width", "sequence": [512, 16, 32]},
            {"type": "ordinal", "name": "size", "sequence": ["small", "large"]},
            {"type": "constant", "name": "task", "value": "42"},
        )
    )
    middle = space.configure(lambda parameter: parameter.from_unit(0.5))
    assert middle["rate"] == pytest.approx(1e-2)
    assert middle["share"] == pytest.approx(0.5)
    assert middle["rounds"] == pytest.approx(np.sqrt(7 * 2981), abs=1)
    assert middle["depth"] == 8
    assert middle["width"] == 16, "ordered as they are given, not by size"
    ends = [space.configure(lambda p, u=u: p.from_unit(u)) for u in (0.0, 1.0)]  # type: ignore[misc]
    assert [(p["rounds"], p["depth"], p["bootstrap"]) for p in ends] == [
        (7, 1, True),
        (2981, 15, False),
    ]
    assert [type(middle[name]) for name in ("rounds", "bootstrap", "task")] == [int, bool, str]
    ordered = {p.name: getattr(p, "ordered", None) for p in space}
    assert ordered["width"] is True
    assert [ordered[name] for name in ("impute", "bootstrap", "size")] == [False] * 3


def test_children_that_come_before_their_parents(convert: Convert) -> None:
    parts = [equal("degree", "shrink", True), equal("degree", "kernel", "poly")]
    space = convert(
        serialized(
            number("int", "degree", 2, 5),
            number("int", "trees", 1, 9),
            choice("kernel", "linear", "poly"),
            choice("learner", "svm", "forest", "boost"),
            choice("shrink", True, False),
            conditions=(
                {"type": "AND", "child": "degree", "conditions": parts},
                equal("kernel", "learner", "svm"),
                {
                    "type": "IN",
                    "child": "trees",
                    "parent": "learner",
                    "values": ["forest", "boost"],
                },
            ),
        )
    )
    assert space.contains({"learner": "svm", "shrink": True, "kernel": "poly", "degree": 3})
    assert space.contains({"learner": "svm", "shrink": False, "kernel": "poly"})
    assert space.contains({"learner": "svm", "shrink": True, "kernel": "linear"})
    assert space.contains({"learner": "boost", "shrink": True, "trees": 4})
    rng = np.random.default_rng(0)
    children = {frozenset(space.sample(rng)) - {"learner", "shrink"} for _ in range(500)}
    assert children == {
        frozenset({"kernel", "degree"}),
        frozenset({"kernel"}),
        frozenset({"trees"}),
    }


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"forbiddens": [{"type": "EQUALS"}]}, "forbidden"),
        ({"conditions": [{"type": "OR", "child": "x", "conditions": []}]}, "OR"),
        ({"hyperparameters": [number("float", "x", 0, 1) | {"type": "normal_float"}]}, "normal"),
        ({"hyperparameters": [choice("x", "a", "b") | {"weights": [1, 2]}]}, "x have weights"),
    ],
)
def test_what_a_space_cannot_say_is_refused(convert: Convert, changed: Entry, named: str) -> None:
    with pytest.raises(ValueError, match=named):
        convert(serialized(number("float", "x", 0.0, 1.0)) | changed)
