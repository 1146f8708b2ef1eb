"""Past trials from every kind of source, as a new study takes them."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from exported_study import SPACE as VARIED_SPACE
from exported_study import varied
from fake_study import trial
from hptune.config.objectives import goals_to_json
from hptune.core.goals import Goals
from hptune.core.space.space import (
    BooleanParameter,
    ChoiceParameter,
    Condition,
    FloatParameter,
    IntParameter,
    SearchSpace,
)
from hptune.core.trial import Direction, Goal, TrialState
from hptune.errors import UsageError
from hptune.master.earlier.keras_tuner_project import notes_on_project
from hptune.master.earlier.read import Earlier, read_earlier
from hptune.master.earlier.sources import check_source
from hptune.storage.directory import StudyDirectory
from hptune.study.study import Study
from optuna_storage import storage
from requirements import require
from stored_study import stored

SPACE = SearchSpace(
    (
        FloatParameter("lr", 0.0, 1.0),
        IntParameter("units", 16, 64, step=16),
        ChoiceParameter("act", ("relu", "tanh")),
        BooleanParameter("dropout"),
        FloatParameter("rate", 0.0, 0.5, conditions=(Condition("dropout", (True,)),)),
    )
)
GOALS = Goals((Goal("val_loss", Direction.MIN),))
PLAIN: dict[str, Any] = {"lr": 0.25, "units": 32, "act": "relu", "dropout": False}
DROPPED: dict[str, Any] = {"lr": 0.5, "units": 64, "act": "tanh", "dropout": True, "rate": 0.125}


def learned(source: str, goals: Goals, space: SearchSpace) -> Earlier:
    (earlier,) = read_earlier(source, goals, space)
    return earlier


def configurations(source: object, goals: Goals = GOALS) -> list[tuple[dict[str, Any], float]]:
    check_source(str(source))
    earlier = learned(str(source), goals, SPACE).study
    return [(dict(each.params), each.value) for each in earlier.within(SPACE)]


def note(source: object, goals: Goals = GOALS, space: SearchSpace = SPACE) -> str:
    return learned(str(source), goals, space).note.replace(str(source), "IT")


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_csv_of_ones_own(tmp_path: Path) -> None:
    table = written(
        tmp_path / "past.csv",
        "lr, units, act, dropout, rate, val_loss, host\n"
        "0.25, 32.0, relu, False,, 0.3, a\n"
        "0.5, 64, tanh, true, 0.125, 0.2, b\n"
        "7, 32, relu, no,, 0.1, b\n"
        "0.5, 32, relu, no,, , b\n",
    )
    assert configurations(table) == [(PLAIN, 0.3), (DROPPED, 0.2)]
    assert note(table) == (
        "warm start: 2 of 4 trials of IT (1 outside the present bounds, 1 without val_loss); not "
        "searched here: host"
    )


@pytest.mark.parametrize(
    "text",
    [
        "lr,units,val_loss,,\n0.25,32,0.3,,\n0.5,64,0.2,,\n",  # written by a spreadsheet
        ",lr,units,val_loss\n0,0.25,32,0.3\n1,0.5,64,0.2\n",  # by pandas, with its index
    ],
)
def test_a_column_without_a_name_is_not_mentioned(tmp_path: Path, text: str) -> None:
    table = written(tmp_path / "past.csv", text)
    assert note(table) == "warm start: 2 of 2 trials of IT; not searched there: act, dropout, rate"


@pytest.mark.parametrize("ending", [".csv", ".json"])
def test_an_export_of_hptune(ending: str, tmp_path: Path) -> None:
    study = varied(tmp_path / "one")
    table = tmp_path / f"past{ending}"
    with table.open("w", newline="") as stream:
        study.export(stream, file_format=ending[1:])
    goals = Goals((Goal("loss", Direction.MIN),))
    of_study = learned(str(study.directory), goals, VARIED_SPACE).study
    of_table = learned(str(table), goals, VARIED_SPACE).study
    assert of_table.within(VARIED_SPACE) == of_study.within(VARIED_SPACE)
    assert len(of_study.trials) == 4
    assert note(table, goals, VARIED_SPACE) == (
        "warm start: 3 of 9 trials of IT (1 outside the present bounds, 5 not complete); not "
        "searched here: old"
    )


@pytest.mark.parametrize("tool", ["csv", "json", "optuna"])
def test_values_and_names_that_are_hard_to_export_come_back(tool: str, tmp_path: Path) -> None:
    own = ("attempts", "epochs", "step", "trial", "value")  # columns of other things, too
    space = SearchSpace(
        (
            *(IntParameter(name, 5, 9) for name in own),
            ChoiceParameter("state", ("old", "new")),
            ChoiceParameter("crop", ("x", None)),
            ChoiceParameter("sign", ("-1", "=x", "'q", "None")),
            *([] if tool == "csv" else [ChoiceParameter("note", ("x", ""))]),
        )
    )
    values = {**dict.fromkeys(own, 7), "state": "new", "crop": None, "note": ""}
    known = {name: value for name, value in values.items() if name in space.defaults()}
    trials = [
        trial(number, value=0.5, step=1, params={**known, "sign": sign}, metrics={"seconds": 0.5})
        for number, sign in enumerate(("-1", "=x", "'q", "None"))
    ]
    goals = Goals((Goal("seconds", Direction.MIN),))
    facts = {"space": space.to_json(), "goals": goals_to_json(goals)}
    study, table = (
        Study(stored(tmp_path / "one", trials, (), (), **facts)),
        tmp_path / f"past.{tool}",
    )
    if tool == "optuna":
        study.export_to(tool, table)
    else:
        with table.open("w", newline="") as stream:
            study.export(stream, file_format=tool)
    back = learned(str(table), goals, space).study.within(space)
    assert back == learned(str(study.directory), goals, space).study.within(space)
    assert [each.params for each in back] == [each.params for each in trials]


def test_a_data_frame_writes_whole_choices_as_floats_and_ones_own_prefix(tmp_path: Path) -> None:
    names = ("config/units", "units", "norm")
    choices: tuple[tuple[int, ...], ...] = ((16, 32), (16, 32), (1, 0))
    space = SearchSpace(tuple(map(ChoiceParameter, names, choices)))
    text = "config/units,units,norm,val_loss\n16.0,32.0,True,0.3\n"
    earlier = learned(str(written(tmp_path / "past.csv", text)), GOALS, space).study
    assert repr(earlier.within(space)[0].params) == "{'config/units': 16, 'units': 32, 'norm': 1}"


def test_records_and_columns_of_other_programs(tmp_path: Path) -> None:
    record = {f"config/{name}": value for name, value in PLAIN.items()} | {"val_loss": 0.3}
    lines = written(tmp_path / "ray.jsonl", f"{json.dumps(record)}\n\n{json.dumps(record)}\n")
    assert configurations(lines) == [(PLAIN, 0.3)] * 2
    rows = written(
        tmp_path / "optuna.csv",
        "number,value,params_lr,params_units,params_act,params_dropout,state\n"
        "0,0.3,0.25,32,relu,False,COMPLETE\n"
        "1,0.9,0.25,32,relu,False,PRUNED\n",
    )
    assert configurations(rows) == [(PLAIN, 0.3)]
    earlier = learned(str(rows), GOALS, SPACE)
    assert not earlier.study.is_same_metric  # the column is called value
    assert earlier.note.endswith(
        "(1 not complete); not searched there: rate; no val_loss there: their value is a guide, "
        "and less is taken to be better, as here"
    )


def test_a_number_that_no_float_can_be_is_no_result(tmp_path: Path) -> None:
    records = [PLAIN | {"val_loss": 10**400}, PLAIN | {"val_loss": 0.3}]
    assert configurations(written(tmp_path / "a.json", json.dumps(records))) == [(PLAIN, 0.3)]


def keras_tuner_trial(folder: Path, values: dict[str, Any], loss: float, **others: Any) -> None:
    folder.mkdir(parents=True)
    metrics = {
        "val_loss": {
            "direction": "min",
            "observations": [
                {"value": [math.nan], "step": 2},
                {"value": [loss, loss + 0.25], "step": 3},
            ],
        }
    }
    tree = {
        "trial_id": folder.name,
        "hyperparameters": {"space": [], "values": values},
        "metrics": {"metrics": metrics},
        "score": loss + 0.125,
        "status": "COMPLETED",
    }
    (folder / "trial.json").write_text(json.dumps(tree | others))


def test_a_project_of_keras_tuner(tmp_path: Path) -> None:
    project = tmp_path / "project"
    keras_tuner_trial(project / "trial_0", PLAIN | {"tuner/epochs": 9, "tuner/bracket": 2}, 0.25)
    keras_tuner_trial(project / "trial_1", PLAIN | {"tuner/epochs": 3, "tuner/bracket": 2}, 0.5)
    keras_tuner_trial(project / "trial_2", PLAIN, 0.5, status="FAILED", score=None)
    assert configurations(project) == [(PLAIN, 0.375)]
    assert note(project) == (
        "warm start: 1 of 3 trials of IT (1 not complete, 1 trained for fewer epochs); "
        "not searched there: rate"
    )
    # Another metric: its own objective is a guide, in its own direction.
    other = learned(str(project), Goals((Goal("auc", Direction.MAX),)), SPACE).study
    assert (other.direction, other.is_same_metric) == (Direction.MIN, False)
    ends = "; no auc there: their val_loss (min) is a guide"
    assert note(project, Goals((Goal("auc", Direction.MAX),))).endswith(ends)
    odds: list[dict[str, Any]] = [{"metrics": {}}, {"score": "?"}, {"score": 10**400}]
    for number, odd in enumerate(odds):
        odd_project = tmp_path / f"odd{number}"
        keras_tuner_trial(odd_project / "trial_0", PLAIN, 0.5, **odd)
        with pytest.raises(UsageError, match="is no trial of KerasTuner"):
            configurations(odd_project)


def test_a_folder_with_a_study_and_a_project_of_keras_tuner(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    study, goals = varied(folder), varied(tmp_path / "alone").goals
    (alone,) = read_earlier(str(tmp_path / "alone"), goals, VARIED_SPACE)
    assert notes_on_project(StudyDirectory(folder)) == []
    params = dict(alone.study.trials[0].params)
    keras_tuner_trial(folder / "trial_0", params, 0.5, status="FAILED", score=None)
    source = str(folder)
    (of_study,) = read_earlier(source, study.goals, VARIED_SPACE)
    assert of_study.study.trials == alone.study.trials, "a project without results is passed over"
    keras_tuner_trial(folder / "trial_1", params, 0.25)
    check_source(source)
    of_study, of_project = read_earlier(source, study.goals, VARIED_SPACE)
    assert of_study.study.trials == alone.study.trials
    assert [each.value for each in of_project.study.trials] == [0.375]
    assert (of_study.study.name, of_project.study.name) == (source, f"KerasTuner in {source}")
    assert f" of {source}" in of_study.note
    assert f" of KerasTuner in {source}" in of_project.note
    (told,) = notes_on_project(StudyDirectory(folder))
    assert told.startswith(f"{folder} has 2 trials of KerasTuner, which this study does not ")
    assert f"`--warm-start {folder}`" in told
    # What is wrong is told with the option that the user wrote.
    with pytest.raises(UsageError, match=f"; leave out --warm-start {source}$"):
        read_earlier(source, study.goals, SearchSpace((FloatParameter("other", 0.0, 1.0),)))


def test_a_trial_that_trains_on_has_the_result_that_it_had(tmp_path: Path) -> None:
    trains_on = trial(0, TrialState.RUNNING, 0.5, params=PLAIN, metrics={"val_loss": 0.5})
    others = [
        trial(1, TrialState.RUNNING, params=DROPPED),
        trial(2, TrialState.PRUNED, 0.25, params=DROPPED, metrics={"val_loss": 0.25}),
        trial(3, TrialState.PAUSED, 0.25, params=DROPPED, metrics={"val_loss": 0.25}),
    ]
    stored(tmp_path / "it", [trains_on, *others], goals=goals_to_json(GOALS), space=SPACE.to_json())
    assert configurations(tmp_path / "it") == [(PLAIN, 0.5)]


def test_the_best_configuration_is_the_best_by_the_mean_of_its_trainings(tmp_path: Path) -> None:
    goals = Goals((*GOALS.objectives, Goal("size", Direction.MIN)))
    results = [
        ("random", PLAIN, 0.125),
        ("random", DROPPED, 0.5),
        *(("confirm of 0", PLAIN, loss) for loss in (0.75, 1.25)),
        *(("confirm of 1", DROPPED, loss) for loss in (0.5, 0.75)),
    ]
    trials = [
        trial(i, value=loss, params=params, origin=origin, metrics={"val_loss": loss, "size": 3.0})
        for i, (origin, params, loss) in enumerate(results)
    ]
    stored(tmp_path / "it", trials, goals=goals_to_json(goals), space=SPACE.to_json())
    assert learned(str(tmp_path / "it"), goals, SPACE).study.best_within(SPACE) == DROPPED


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_project_that_keras_tuner_wrote(tmp_path: Path) -> None:
    require("keras_tuner")
    import keras_tuner

    hp = keras_tuner.HyperParameters()
    hp.Float("lr", 0.0, 1.0)
    hp.Int("units", 16, 64, step=16)
    oracle = keras_tuner.oracles.RandomSearchOracle(
        objective=keras_tuner.Objective("val_loss", "min"), max_trials=2, hyperparameters=hp, seed=1
    )
    oracle._set_project_dir(tmp_path, "kt")
    drawn = []
    for loss in (0.3, 0.4):
        trial = oracle.create_trial("tuner0")
        drawn.append((trial.hyperparameters.values, loss))
        oracle.update_trial(trial.trial_id, {"val_loss": loss}, step=1)
        trial.status = "COMPLETED"
        oracle.end_trial(trial)
    oracle.save()
    read = configurations(tmp_path / "kt")
    assert [(params["lr"], params["units"], loss) for params, loss in read] == [
        (values["lr"], values["units"], loss) for values, loss in drawn
    ]


@pytest.fixture
def closing() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def test_a_storage_of_optuna(tmp_path: Path, closing: contextlib.ExitStack) -> None:
    place = tmp_path / "past.db"
    opened = closing.enter_context(storage(place))

    def objective(trial: optuna.Trial) -> float:
        trial.suggest_float("lr", 0.0, 2.0)
        trial.suggest_int("units", 16, 64, step=16)
        if trial.number == 2:
            raise optuna.TrialPruned
        return 0.5

    study = optuna.create_study(storage=opened, study_name="a")
    study.enqueue_trial({"lr": 0.25, "units": 32})
    study.enqueue_trial({"lr": 1.5, "units": 32})
    study.optimize(objective, n_trials=3)
    found = configurations(place)
    assert [(params["lr"], params["units"], value) for params, value in found] == [(0.25, 32, 0.5)]
    assert note(place).startswith(
        "warm start: 1 of 3 trials of IT (1 outside the present bounds, 1 not complete); not "
        "searched there: act, dropout"
    )
    assert not learned(str(place), GOALS, SPACE).study.is_same_metric  # it has no name
    with pytest.warns(optuna.exceptions.ExperimentalWarning):
        study.set_metric_names(["val_loss"])
    assert learned(str(place), GOALS, SPACE).study.is_same_metric

    optuna.create_study(storage=opened, study_name="b")
    assert configurations(f"{place}#a") == found
    assert configurations(f"sqlite:///{place}#a") == found
    with pytest.raises(UsageError, match=r"has 2 studies; there are 'a', 'b'; name one"):
        configurations(place)
    with pytest.raises(UsageError, match="has no complete trial to learn from"):
        configurations(f"{place}#b")
    with pytest.raises(UsageError, match=r"cannot be read: there is no file .*none\.db"):
        configurations(f"sqlite:///{tmp_path}/none.db")
    assert not (tmp_path / "none.db").exists()


def test_an_export_of_hptune_to_optuna_comes_back_whole(tmp_path: Path) -> None:
    study = varied(tmp_path / "one")
    study.export_to("optuna", tmp_path / "past.db")
    there = learned(str(study.directory), study.goals, VARIED_SPACE).study
    back = learned(str(tmp_path / "past.db"), study.goals, VARIED_SPACE).study
    assert back.within(VARIED_SPACE) == there.within(VARIED_SPACE)
    assert back.is_same_metric
    assert math.isclose(back.trials[0].extra_values[0], 500.0)


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    short = written(tmp_path / "short.csv", "lr,val_loss\n0.1,0.2,0.3\n")
    twice = written(tmp_path / "twice.csv", "lr,val_loss,lr\n0.1,0.2,0.3\n")
    broken = written(tmp_path / "broken.json", "{")
    numbers = written(tmp_path / "numbers.json", "[1, 2]")
    foreign = written(tmp_path / "foreign.csv", "size,val_loss\n1,0.2\n")
    empty = written(tmp_path / "empty.csv", "lr,val_loss\n")
    shutil.copy(short, tmp_path / "notes.txt")
    for source, words in (
        (tmp_path / "nowhere.csv", "no such file or directory"),
        (tmp_path / "folder", "there is no study in"),
        (tmp_path / "notes.txt", "is a file that cannot be read as trials; allowed are .csv"),
        (short, "line 2 has more cells"),
        (broken, "broken.json cannot be read"),
        (numbers, "it is not a list of records"),
        (foreign, "no hyperparameter in common with this study: there are size in it"),
        (twice, "twice.csv cannot be read: the first line gives lr twice; give it once"),
        (empty, "has no complete trial to learn from"),
    ):
        with pytest.raises(UsageError, match=words):
            configurations(source)
