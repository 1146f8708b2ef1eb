"""The table of `hptune trials`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import pytest

from fake_study import GOALS, attempt, trial
from hptune import keras_tuner, text
from hptune.config.settings import StudySettings
from hptune.core.attempt import Outcome
from hptune.core.goals import Goals
from hptune.core.trial import Direction, Goal, TrialState
from hptune.errors import StudyError
from hptune.reporting.results.trials import ranked, trials_text
from hptune.reporting.results.view import StudyView
from hptune.storage.artifacts import StudyFiles
from hptune.storage.directory import StudyDirectory
from hptune.study.study import Study
from hptune.user_code.source import ObjectiveSource, SourceKind
from stored_study import typical


def test_a_stopped_trial_without_all_objectives_stays_in_its_columns() -> None:
    names = ("accuracy", "bytes", "seconds")
    goals = Goals(tuple(Goal(name, Direction.MAX) for name in names))
    of = StudyView(
        directory="studies/one",
        search="random",
        goals=goals,
        budget_trials=2,
        trials=[
            replace(trial(0, value=0.5, params={"x": 1}), extra_values=(7.0, 8.0)),
            trial(1, TrialState.PRUNED, value=0.25, params={"x": 2}),
        ],
    )
    head, *rows = [line.split() for line in trials_text(of, ranked(of), now=0.0).splitlines()]
    assert head[2:] == [*names, "from", "step", "time", "origin", "x"]
    missing = [text.NOTHING] * 2
    assert [row[2:5] for row in rows] == [["0.5000", "7.000", "8.000"], ["0.2500", *missing]]
    assert [row[-1] for row in rows] == ["1", "2"]


def test_without_room_a_column_that_says_the_same_of_all_trials_is_left_out() -> None:
    params = {f"rate_{each}": 0.25 for each in range(4)}
    many = [trial(each, value=0.5, params=params) for each in range(2)]
    many.append(trial(2, TrialState.PRUNED, value=0.25, params=params))
    of = StudyView("studies/one", "random", GOALS, 3, many)
    head, *rows = trials_text(of, ranked(of), now=0.0, width=80).splitlines()
    assert head.split() == ["trial", "state", "val_accuracy", *params]
    assert (max(map(len, rows)) <= 80, len(rows)) == (True, 3)
    head, *_ = trials_text(of, ranked(of)[:2], now=0.0, width=60).splitlines()
    assert head.split() == ["trial", "val_accuracy", *params], "values are never left out"
    head, *_ = trials_text(of, ranked(of)[:1], now=0.0, width=60).splitlines()
    assert head.split()[:3] == ["trial", "state", "val_accuracy"], "of one trial, all is shown"


def test_a_better_value_of_one_training_that_comes_later_is_explained() -> None:
    lucky, steady = trial(0, value=0.9547), trial(1, value=0.93)
    again = [
        *(trial(2 + each, value=0.91, origin="confirm of 0") for each in range(2)),
        *(trial(4 + each, value=0.937, origin="confirm of 1") for each in range(2)),
    ]
    of = StudyView("studies/one", "random", GOALS, 2, [lucky, steady, *again])
    *_, last = trials_text(of, ranked(of), now=0.0).splitlines()
    assert last.startswith("Trial ")
    assert last.endswith("repeats (0.9370): a better value of one training may be luck.")
    without = replace(of, trials=[lucky, steady])
    assert "luck" not in trials_text(without, ranked(without), now=0.0)
    first = ranked(of)[:1]
    assert "luck" not in trials_text(of, first, now=0.0), "no better value is shown"


def test_a_better_value_of_a_stopped_trial_that_comes_later_is_explained() -> None:
    trials = [trial(0, value=0.8), trial(1, TrialState.PRUNED, value=0.9, step=2)]
    of = StudyView("studies/one", "random", GOALS, 3, trials)
    *_, last = trials_text(of, ranked(of), now=0.0).splitlines()
    assert last.startswith("Complete trials come first: the others have trained less, so their ")
    worse = replace(of, trials=[trials[0], replace(trials[1], value=0.7)])
    assert "come first" not in trials_text(worse, ranked(worse), now=0.0)
    alone = [each for each in ranked(of) if each.number == 1]
    assert "come first" not in trials_text(of, alone, now=0.0)
    result = attempt(1, ended_at=2000.0, outcome=Outcome.FINISHED)
    trains_on = replace(trials[1], state=TrialState.RUNNING, attempts=2)
    further = replace(of, trials=[trials[0], trains_on], attempts=[result])
    assert [each.number for each in ranked(further)] == [1, 0]
    assert "come first" not in trials_text(further, ranked(further), now=0.0)


def test_python_has_the_same_trials_everywhere(tmp_path: Path) -> None:
    source = ObjectiveSource(SourceKind.FILE, "model.py")
    settings = StudySettings(source=source, working_directory="/", pruner="asha", epochs=5)
    study = Study(typical(tmp_path / "one", settings=settings.to_json()))
    assert any(each.rungs for each in study.view().trials)
    assert study.best_trial == study.complete_trials[0] == study.trials[2] == study.trial(2)


def test_the_model_of_one_trial_is_not_given_for_that_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(typical(tmp_path / "one"))
    for number in (0, 2):
        (tmp_path / "one" / "trials" / str(number)).mkdir(parents=True)
        ZipFile(tmp_path / "one" / "trials" / str(number) / "model.keras", "w").close()
    files = StudyFiles(StudyDirectory(tmp_path / "one"), study.goals)
    monkeypatch.setattr(Study, "_load", lambda *given: given[1:])
    files.keep_best([study.trial(0)])  # and the next master was killed before it kept trial 2
    with pytest.raises(StudyError, match=r"trial 0. The trial's own copy is .*2/model.keras"):
        study.best_model()
    files.keep_best([study.best_trial])
    model = tmp_path / "one" / "best" / "model.keras"
    assert study.best_model() == study.best_model(2) == study.trial_model(2) == (model, 2)
    with pytest.raises(StudyError, match="trial 0 is none of the best, or stored none"):
        study.best_model(0)


def test_models_and_configurations_of_the_best_trials_are_of_different_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Study(typical(tmp_path / "one"))
    assert [each.number for each in study.complete_trials] == [2, 4, 0]  # trial 4 repeats 2
    monkeypatch.setattr(Study, "trial_model", lambda _, number: number)
    assert study.best_models(3) == [2, 0]
    monkeypatch.setattr(keras_tuner.Tuner, "study", study)
    script = object.__new__(keras_tuner.Tuner)
    assert script.get_best_models(3) == [2, 0]
    assert len(script.get_best_hyperparameters(9)) == 3  # with that of the pruned trial
