"""The export to Optuna, read by Optuna."""

from __future__ import annotations

import contextlib
import datetime
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState

from exported_study import SPACE, varied
from hptune.errors import UsageError
from hptune.master.earlier.read import read_earlier
from optuna_storage import storage

_opened = contextlib.ExitStack()


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    _opened.close()


def read(path: Path, name: str = "one") -> optuna.Study:
    return optuna.load_study(study_name=name, storage=_opened.enter_context(storage(path)))


def test_every_trial_with_its_distributions_values_and_state(tmp_path: Path) -> None:
    place = tmp_path / "optuna.db"
    assert "optuna-dashboard sqlite:///" in varied(tmp_path / "one").export_to("optuna", place)
    study = read(place)
    assert [each.name for each in study.directions] == ["MAXIMIZE", "MINIMIZE"]
    assert study.metric_names == ["accuracy", "params"]
    assert study.user_attrs["hptune search"] == "random"
    trials = study.trials
    assert [trial.number for trial in trials] == list(range(9))
    states = [trial.state for trial in trials]
    assert states == [
        *(TrialState.COMPLETE, TrialState.COMPLETE, TrialState.PRUNED, TrialState.PRUNED),
        *(TrialState.FAIL, TrialState.WAITING, TrialState.WAITING, TrialState.COMPLETE),
        TrialState.COMPLETE,
    ]
    plain, dropped, *_, foreign = trials
    assert plain.values == [0.9, 500.0]
    assert plain.intermediate_values == {1: 0.5, 2: 0.9, 3: 0.7}
    assert plain.params == {
        "lr": 0.01,
        "units": 32,
        "act": "relu",
        "dropout": False,
        "depth": 2,
        "width (when act is relu)": 4,
    }
    assert plain.distributions == {
        "lr": FloatDistribution(1e-4, 1e-1, log=True),
        "units": IntDistribution(16, 64, step=16),
        "act": CategoricalDistribution(("relu", "tanh")),
        "dropout": CategoricalDistribution((False, True)),
        "depth": CategoricalDistribution((2,)),
        "width (when act is relu)": IntDistribution(1, 8),
    }
    assert dropped.params["rate"] == 0.30000000000000004
    assert dropped.distributions["rate"] == FloatDistribution(0.0, 0.5, step=0.1)
    assert dropped.params["width (when act is tanh)"] == 70
    assert "width (when act is relu)" not in dropped.params
    # The violation of `loss < 1`, which is kept, is below 0.
    assert dropped.system_attrs["constraints"] == pytest.approx([0.5, -0.8])
    assert [trial.number for trial in study.best_trials] == [0]
    assert dropped.user_attrs["metric.loss"] == pytest.approx(0.2)
    assert trials[4].user_attrs["reason"] == "ValueError: bad shape"
    assert trials[7].user_attrs["origin"] == "confirm of 0"
    assert plain.datetime_start == datetime.datetime.fromtimestamp(1000.0)
    assert plain.datetime_complete == datetime.datetime.fromtimestamp(1050.0)
    # The space was changed after trial 8.
    assert foreign.params["lr (outside the space)"] == 0.5
    assert foreign.params["old (outside the space)"] == "x"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nothing://ada:secret@host/db", "nothing://ada:***@host/db"),
        ("nothing://ada:se/secret@host/db", "nothing://ada:***@host/db"),
        ("nothing://ada:a@secret@host/db", "nothing://ada:***@host/db"),
        ("nothing://:secret@host:5/db", "nothing://:***@host:5/db"),
        ("nothing://host:5/db?user=a&password=secret&x=1", "host:5/db?user=a&password=***&x=1"),
    ],
)
def test_a_password_is_not_shown(tmp_path: Path, url: str, shown: str) -> None:
    with pytest.raises(UsageError) as caught:
        varied(tmp_path / "one").export_to("optuna", url)
    assert shown in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_export_replaces_the_last_one_and_nothing_else(tmp_path: Path) -> None:
    place = tmp_path / "optuna.db"
    url = f"sqlite:///{place}"
    opened = _opened.enter_context(storage(place))
    others = optuna.create_study(study_name="one", storage=opened)
    others.add_trial(optuna.create_trial(value=1.0))
    study = varied(tmp_path / "one")
    assert "as 'one (2)'" in study.export_to("optuna", place)
    first = place.read_bytes()
    study.export_to("optuna", url)  # nothing has changed
    assert place.read_bytes() == first
    changed = varied(tmp_path / "again" / "one", last_value=0.7)  # the same study, later
    assert "as 'one (2)'" in changed.export_to("optuna", place)
    assert optuna.get_all_study_names(opened) == ["one", "one (2)"]
    assert [trial.value for trial in read(place).trials] == [1.0]
    assert read(place, "one (2)").trials[8].values == [0.7, 500.0]
    assert len(read(place, "one (2)").trials) == 9


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "50%25 of {1}? #1"
    folder.mkdir()
    study = varied(tmp_path / "one")
    for _ in range(2):
        study.export_to("optuna", folder / "optuna.db")
    assert {path.name for path in tmp_path.iterdir()} == {"one", folder.name}
    for _ in range(2):
        study.export_to("mlflow", folder / "mlflow.db")
    assert sorted(path.name for path in folder.iterdir()) == ["mlflow.db", "optuna.db"]
    (earlier,) = read_earlier(str(folder / "optuna.db"), study.goals, SPACE)
    assert len(earlier.study.trials) == 4
    (earlier,) = read_earlier(f"{folder / 'optuna.db'}#one", study.goals, SPACE)
    assert len(earlier.study.trials) == 4


def test_a_place_that_is_no_storage_is_refused(tmp_path: Path) -> None:
    study = varied(tmp_path / "one")
    for place, words in (
        (tmp_path / "one" / "study.db", "is no database of Optuna"),
        (tmp_path, "is a directory"),
        ("nowhere://x", "is no URL of a storage"),
        (tmp_path / "no" / "optuna.db", "cannot be written"),
    ):
        with pytest.raises(UsageError, match=words):
            study.export_to("optuna", place)
    connection = sqlite3.connect(tmp_path / "one" / "study.db")
    assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'studies'").fetchall()
    connection.close()
