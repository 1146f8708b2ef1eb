"""The search space of a study that programs ask: its forms, and what trials declare."""

from __future__ import annotations

import enum
import json
from pathlib import Path

import pytest

import hptune
from asked_studies import opened
from hptune.errors import NoTrialError, UsageError
from hptune.master.replay import replay
from hptune.storage.directory import StudyDirectory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


TOML = """
units = {type = "int", min_value = 16, max_value = 256, sampling = "log"}
act = ["relu", "tanh"]
depth = 3
"""
JSON = {
    "units": {"type": "int", "min_value": 16, "max_value": 256, "sampling": "log"},
    "act": ["relu", "tanh"],
    "depth": 3,
}


def declared(hp: hptune.HyperParameters) -> None:
    hp.Int("units", 16, 256, sampling="log")
    hp.Choice("act", ["relu", "tanh"])
    hp.Fixed("depth", 3)


@pytest.mark.parametrize("form", ["object", "toml", "json", "entries", "function"])
def test_all_forms_of_a_space_are_equal(tmp_path: Path, form: str) -> None:
    objects = {
        "units": hptune.Int(16, 256, sampling="log"),
        "act": hptune.Choice(["relu", "tanh"]),
        "depth": 3,
    }
    (tmp_path / "space.toml").write_text(TOML)
    (tmp_path / "space.json").write_text(json.dumps(JSON))
    wanted = hptune.open_study(tmp_path / "wanted", objects, "loss:min").space
    space = {
        "object": objects,
        "toml": tmp_path / "space.toml",
        "json": str(tmp_path / "space.json"),
        "entries": wanted.to_json(),
        "function": declared,
    }[form]
    assert hptune.open_study(tmp_path / "study", space, "loss:min").space == wanted


class Word(enum.StrEnum):
    ADAM = "adam"
    SGD = "sgd"


class Whole(enum.IntEnum):
    ONE = 1
    TWO = 2


@pytest.mark.parametrize("kind", [Word, Whole])
def test_the_members_of_an_enum_are_its_values(path: Path, kind: type[enum.Enum]) -> None:
    study = hptune.open_study(path, lambda hp: hp.Choice("p", [*kind]), "loss:min", trials=2)
    assert {repr(study.ask()["p"]) for _ in kind} == {repr(each.value) for each in kind}


@pytest.mark.parametrize(
    ("choices", "active_for"),
    [
        (["a", "b", None], ["a", None]),
        ([1, 2, None], [1, None]),
        ([None, "a", "b"], [None, "a"]),
        ([*Word], [Word.SGD]),
        ([True, False], [True]),
    ],
)
def test_a_condition_holds_for_each_of_its_values(
    path: Path, choices: list[object], active_for: list[object]
) -> None:
    def space(hp: hptune.HyperParameters) -> None:
        hp.Choice("p", choices)
        with hp.conditional_scope("p", active_for):
            hp.Boolean("q")

    found = hptune.open_study(path, space, "loss:min").space.configurations()
    assert found is not None
    assert {each["p"] for each in found if "q" in each} == {*active_for}


def test_a_space_grows_by_its_use(path: Path) -> None:
    study = hptune.open_study(path, objective="loss:min", search="random", trials=6)
    first = study.ask()
    with pytest.raises(NoTrialError):
        study.ask()  # nothing is known that could differ
    assert first.hp.Float("x", 0.0, 1.0, default=0.5) == 0.5
    assert first["x"] == study.asked_trial(first.number)["x"] == 0.5
    second = study.ask()
    assert 0.0 <= second["x"] <= 1.0
    second.hp.Float("x", 0.0, 1.0)
    first.tell(loss=1.0)
    second.tell(loss=0.5)
    for trial in study.trials_to_run():
        with trial:
            x = trial.hp.Float("x", 0.0, 1.0)
            y = trial.hp.Int("y", 1, 9) if trial.number > 3 else 0
            trial.tell(loss=x + y)
    assert [each.name for each in study.space] == ["x", "y"]
    assert study.trials[3].unused == ()
    assert replay(StudyDirectory(path)).difference is None


def declared_in_part(hp: hptune.HyperParameters) -> None:
    hp.Choice("act", ["relu", "tanh"])


@pytest.mark.parametrize("space", [None, declared_in_part])
def test_what_trials_declare_is_searched(path: Path, space: object) -> None:
    """A space that is finite only because it is not known yet is not gone through as a grid."""
    study = hptune.open_study(path, space, "loss:min", trials=5, seed=1)
    for trial in study.trials_to_run():
        with trial:
            study.tell(trial, loss=trial.hp.Float("x", 0.0, 1.0))
    assert len({trial.params["x"] for trial in study.trials}) == 5
    assert study.trials[0].params["x"] == 0.5, "what `hptune space` says is tried first"


def test_what_a_trial_did_not_use_is_named_also_if_it_declared_something_new(path: Path) -> None:
    study = hptune.open_study(path, {"x": [1, 2], "y": [3, 4]}, "loss:min", trials=1)
    trial = study.ask()
    trial.hp.Choice("x", [1, 2])
    trial.hp.Int("new", 1, 9)
    assert trial.tell(loss=1.0).unused == ("y",)


def test_a_model_file_declares_space_objective_and_epochs(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        "OBJECTIVE = 'cost:min'\nEPOCHS = 7\n"
        "def objective(hp, trial):\n    return {'cost': hp.Float('lr', 0.1, 0.9)}\n"
    )
    study = hptune.open_study(tmp_path / "study", model, trials=2, search="random")
    trial = study.ask()
    assert (trial.epochs, trial.goals.goal.metric) == (7, "cost")
    assert 0.1 <= trial["lr"] <= 0.9


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (3, "space is 3; allowed are a mapping"),
        ({"x": {"type": "double"}}, "type of x is 'double'; allowed are float, int"),
        (
            {"x": {"type": "float", "low": 1, "high": 2}},
            "allowed for type float are min_value, max_",
        ),
        *(
            ({"x": value}, r"x is .*; allowed are a range such as hptune.Float\(0, 1\), a table")
            for value in ((0, 1), range(3), {1, 2}, hptune.Float, None)
        ),
        ({1: hptune.Float(0, 1)}, "a hyperparameter has the name 1; allowed are texts"),
        ({"x": hptune.Float(2.0, 1.0)}, "x"),
        ([1, 2], "1 is not a known hyperparameter; allowed are Float, Int"),
        ("gone.toml", r"the search space in gone\.toml cannot be read"),
        ("space.yaml", r"space is 'space\.yaml'; allowed are"),
    ],
)
def test_a_wrong_space_makes_no_study(path: Path, space: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        hptune.open_study(path, space, "loss:min")
    assert not path.exists()


def test_a_wrong_setting_makes_no_study(path: Path) -> None:
    with pytest.raises(UsageError, match="hyperband needs the length of a full training"):
        opened(path, pruner="hyperband")
    assert not path.exists()
