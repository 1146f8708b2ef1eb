from __future__ import annotations

import enum

import numpy as np
import pytest

from hptune.core.space.completion import completed
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    FixedParameter,
    FloatParameter,
    IntParameter,
    Parameter,
    Scale,
    SearchSpace,
)
from hptune.core.trial import ParamValue, Trial, TrialState
from hptune.errors import UsageError
from hptune.samplers.common.encoding import Encoding
from hptune.samplers.random_search import RandomSampler
from hptune.testing.spaces import NESTED, SPACES

SPACE = SearchSpace(
    (
        FloatParameter("given", 1e-4, 1.0, scale=Scale.LOG, default=0.003),
        FloatParameter("lr", 1e-4, 1.0, scale=Scale.LOG),
        IntParameter("units", 16, 512, step=16),
        ChoiceParameter("word", ("relu", "tanh", "1", "True", " selu "), default="tanh"),
        ChoiceParameter("number", (0.5, 1.0, 2.0)),
        BooleanParameter("flag"),
        FixedParameter("epochs", 3),
    )
)


def test_defaults_that_somebody_gave_and_the_middle_of_all_else() -> None:
    found = dict(completed(SPACE, {}))
    assert found.pop("lr") == pytest.approx(0.01)
    assert found == {
        "given": 0.003, "units": 256 + 16, "word": "tanh", "number": 1.0, "flag": False, "epochs": 3
    }  # fmt: skip


def test_a_default_that_somebody_gave_may_be_the_lowest_value() -> None:
    space = SearchSpace(
        (
            IntParameter("layers", 1, 9, default=1),
            FloatParameter("rate", 0.0, 1.0, default=0.0),
            ChoiceParameter("size", (16, 32, 64), default=16),
        )
    )
    lowest = {"layers": 1, "rate": 0.0, "size": 16}
    assert completed(space, {}) == lowest
    assert completed(SearchSpace.from_json(space.to_json()), {}) == lowest


@pytest.mark.parametrize("name", SPACES)
def test_the_defaults_lie_in_the_space(name: str) -> None:
    assert SPACES[name].explain(completed(SPACES[name], {})) == ""


@pytest.mark.parametrize(
    ("given", "name", "value"),
    [
        ("0.01", "lr", 0.01),
        ("1e-3", "lr", 0.001),
        (1, "lr", 1.0),
        ("1", "lr", 1.0),
        (np.float64(0.5), "lr", 0.5),
        ("64", "units", 64),
        ("6.4e1", "units", 64),
        ("64.0", "units", 64),
        (64.0, "units", 64),
        (np.float64(64), "units", 64),
        (np.int64(64), "units", 64),
        ("relu", "word", "relu"),
        ("selu", "word", " selu "),
        ("1", "word", "1"),
        ("True", "word", "True"),
        ("2", "number", 2.0),
        ("0.50", "number", 0.5),
        ("yes", "flag", True),
        ("False", "flag", False),
        (True, "flag", True),
        ("3", "epochs", 3),
    ],
)
def test_text_is_read_as_the_parameters_kind(given: object, name: str, value: object) -> None:
    found = completed(SPACE, {name: given})[name]
    assert (type(found), found) == (type(value), value)


class Word(str, enum.Enum):  # noqa: UP042 - of which `str` returns the name
    ADAM = "adam"


class Whole(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    ("parameter", "given", "own"),
    [
        (ChoiceParameter("p", (16, 32)), 16.0, 16),
        (ChoiceParameter("p", (16, 32)), "16.0", 16),
        (ChoiceParameter("p", (None, 16)), np.float64(16), 16),
        (ChoiceParameter("p", (1, 0)), True, 1),
        (ChoiceParameter("p", (1, 0)), "True", 1),
        (ChoiceParameter("p", (0.5, 1.0)), 1, 1.0),
        (ChoiceParameter("p", ("adam", "sgd")), Word.ADAM, "adam"),
        (BooleanParameter("p"), 1, True),
        (BooleanParameter("p"), "1.0", True),
        (IntParameter("p", 1, 9), 1.0, 1),
        (IntParameter("p", 1, 9), Whole.ONE, 1),
        (FloatParameter("p", 0, 1), -0.0, 0.0),
        (FloatParameter("p", 0, 1), Whole.ONE, 1.0),
        (FixedParameter("p", 3), 3.0, 3),
    ],
)
def test_an_equal_value_of_another_type_becomes_the_parameters_own(
    parameter: Parameter, given: object, own: ParamValue
) -> None:
    found = completed(SearchSpace((parameter,)), {"p": given})
    assert repr(found) == repr({"p": own})


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (ChoiceParameter("p", (True, False)), ChoiceParameter("p", (1, 0))),
        (ChoiceParameter("p", (1, 0)), BooleanParameter("p")),
        (FloatParameter("p", 1, 2, step=1), IntParameter("p", 1, 2)),
        (FloatParameter("p", 1, 2, step=1), ChoiceParameter("p", (1, 2))),
        (IntParameter("p", 1, 2), FloatParameter("p", 1, 2, step=1)),
    ],
)
def test_a_changed_kind_keeps_what_was_tried_and_learned(before: Parameter, now: Parameter) -> None:
    sampler, encoding = RandomSampler(SearchSpace((now,)), 0), Encoding(SearchSpace((now,)))
    for number, value in enumerate(before.values or ()):
        sampler.tell(Trial(number, {"p": value}, "random", TrialState.COMPLETE, value=0.0))
        assert encoding.encode({"p": value}) is not None
    assert sampler.ask([2]) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"lr": "2"}, "lr is 2; allowed is 0.0001..1.0"),
        ({"lr": "fast"}, "lr is 'fast'; it must be a finite number"),
        ({"lr": "nan"}, "lr is nan; it must be a finite number"),
        ({"units": "65"}, "units is 65, which lies between two steps; the nearest step is 64"),
        ({"units": 65.0}, "units is 65, which lies between two steps; the nearest step is 64"),
        ({"units": "6.5"}, "units is 6.5; it must be a whole number"),
        ({"word": "gelu"}, "word is 'gelu'; allowed are 'relu', 'tanh', '1', 'True', ' selu '"),
        ({"number": "3"}, "number is '3'; allowed are 0.5, 1.0, 2.0"),
        ({"flag": "maybe"}, "flag is 'maybe'; give True or False"),
        ({"epochs": "4"}, "epochs is '4'; it is fixed to 3"),
        ({"unit": "4"}, "unit is unknown; .* Did you mean 'units'?"),
        ({"zzz": "4"}, "zzz is unknown; the space has given, lr, "),
        ({"lr": [1]}, r"lr is \[1\]; it must be Float"),
        ({"lr": None}, "lr is None; it must be a finite number"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        completed(SPACE, given)


def test_a_value_belongs_to_the_declaration_that_is_active() -> None:
    assert completed(NESTED, {"cell": "gru", "units": "6"})["units"] == 6
    assert completed(NESTED, {"units": "1"})["units"] == 1
    with pytest.raises(UsageError, match=r"units is 6; allowed is 1\.\.4"):
        completed(NESTED, {"units": "6"})
    with pytest.raises(UsageError, match=r"needs cell is lstm .here cell is 'gru'."):
        completed(NESTED, {"cell": "gru", "peephole": "yes"})
