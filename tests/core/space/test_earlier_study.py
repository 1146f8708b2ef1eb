from __future__ import annotations

import json

from hptune.core.space.earlier_study import EarlierStudy, EarlierTrial
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    SearchSpace,
)
from hptune.core.trial import Direction, Params

NOW = SearchSpace(
    (
        FloatParameter("lr", 0.0, 1.0),
        ChoiceParameter("word", ("relu", "tanh")),
        IntParameter("new", 1, 9),
        BooleanParameter("deep"),
        IntParameter("layers", 1, 5, default=4, conditions=(Condition("deep", (True,)),)),
    )
)


def study(*trials: Params, direction: Direction = Direction.MIN) -> EarlierStudy:
    measured = tuple(EarlierTrial(params, float(value)) for value, params in enumerate(trials))
    return EarlierStudy("old", direction, is_same_metric=True, trials=measured)


def within(params: Params) -> list[Params]:
    return [trial.params for trial in study(params).within(NOW)]


def test_what_fits_is_taken_and_what_was_unknown_has_its_default() -> None:
    old: Params = {"lr": 1, "word": "relu", "deep": False, "gone": "x"}
    assert within(old) == [{"lr": 1.0, "word": "relu", "new": 5, "deep": False}]
    assert within({"lr": 0.5, "deep": True}) == [
        {"lr": 0.5, "word": "relu", "new": 5, "deep": True, "layers": 4}
    ]


def test_what_is_not_active_any_more_is_dropped() -> None:
    assert "layers" not in within({"lr": 0.5, "deep": False, "layers": 99})[0]


def test_what_lies_outside_the_bounds_is_left_out() -> None:
    assert within({"lr": 1.5}) == within({"word": "gelu"}) == within({"new": 2.5}) == []
    assert within({"deep": True, "layers": 6}) == []


def test_the_best_is_the_best_of_what_fits() -> None:
    trials = [{"lr": 2.0}, {"lr": 0.1}, {"lr": 0.2}, {"lr": 3.0}]
    low, high = study(*trials), study(*trials, direction=Direction.MAX)
    best = [each.best_within(NOW) for each in (low, high)]
    assert [params and params["lr"] for params in best] == [0.1, 0.2]
    assert study({"lr": 2.0}).best_within(NOW) is None


def test_what_breaks_a_constraint_is_the_best_only_where_all_do() -> None:
    trials = (
        EarlierTrial({"lr": 0.1}, 1.0, violation=2.0),
        EarlierTrial({"lr": 0.2}, 3.0),
        EarlierTrial({"lr": 0.3}, 2.0),
    )
    old = EarlierStudy("old", Direction.MIN, is_same_metric=True, trials=trials)
    best = old.best_within(NOW)
    assert best is not None
    assert best["lr"] == 0.3


def test_the_json_form_keeps_everything() -> None:
    old = study({"lr": 0.5, "word": "relu"}, {"lr": 1})
    several = (EarlierTrial({"lr": 0.5}, 1.0, (2.0, 3.0), 0.5),)
    for each in (old, EarlierStudy("old", Direction.MAX, is_same_metric=True, trials=several)):
        assert EarlierStudy.from_json(json.loads(json.dumps(each.to_json()))) == each
