"""Calls of `Tuner` and `fit` that are refused, and its help."""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

import hptune
from hptune import StudyError, UsageError
from hptune.config.settings import SETTINGS, StudySettings
from hptune.errors import StudyLockedError
from hptune.master.resume_plan import Changes
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader
from hptune.tuner import OBJECTIVE_FILE
from hptune.user_code.pickling import read_pickle
from in_process import InProcess
from stored_study import stored

Tuner: Any = hptune.Tuner
Study: Any = hptune.Study
"""Without their types, as type checkers refuse these calls."""


def objective(hp: Any, _trial: object) -> float:
    return float(hp.Float("x", -1.0, 1.0))


class Needing:
    def __init__(self, width: int) -> None:
        self.width = width

    def build(self, hp: Any) -> int:
        return int(hp.Int("n", 0, self.width))


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Tuner(3), "model_fn is 3; allowed are build_model(hp)"),
        (lambda: Tuner(print), "no entry point; allowed are build_model(hp)"),
        (lambda: Tuner(objective, "loss:up"), "the direction 'up'; allowed are loss:min and"),
        (lambda: Tuner(objective, direction="max"), "the objective says it, such as objective='"),
        (lambda: Tuner(objective, trials=0), "trials is 0; allowed are whole numbers from 1 on"),
        (lambda: Tuner(objective, trials="ten"), "trials is 'ten'; allowed are whole numbers"),
        (lambda: Tuner(objective, cores=2), "Tuner has no argument 'cores'"),
        (lambda: Tuner(objective, objectiv="x"), "did you mean objective?"),
        (lambda: Tuner(objective, timeout_seconds=9), "did you mean timeout?"),
        (lambda: Tuner(objective, max_trials=2), "did you mean trials?"),
        (lambda: Tuner(lambda trial: trial.suggest_int("n", 0, 1)), "hp.Float, hp.Int"),
        (lambda: Tuner(Needing), "the class Needing needs arguments (width); give an instance"),
        (lambda: Tuner(objective, n_jobs=2), "did you mean workers?"),
        (lambda: Tuner(objective, overwrite=True), "a study is never overwritten"),
        (lambda: Tuner(objective, entry="objective"), "Tuner is given what to tune"),
        (lambda: Tuner(objective, pruner="asha", min_epochs=0), "min_epochs is 0"),
        (lambda: Tuner(objective, timeout=0), "timeout is 0; allowed are times above 0"),
        (lambda: Tuner(objective, memory_per_trial="3x"), "memory_per_trial is '3x'; allowed are"),
        (lambda: Tuner(objective, start_points=[3]), "start_points is [3]; allowed are"),
        (lambda: Tuner(objective, search="tree"), "unknown search 'tree'"),
        (lambda: Tuner(objective, pruner="ashe"), "unknown pruner 'ashe'"),
        (lambda: Tuner(objective, cpus_per_trial=9999), "a trial asks for 9999 cores"),
        (lambda: Tuner(objective, slurm="no.toml"), "no.toml cannot be read"),
        (lambda: Tuner(objective, resume=True), "such as directory='studies/objective-1'"),
        (lambda: Tuner(objective, retry_failed=True), "give resume=True with it"),
        (lambda: Tuner(objective, accept_space=True), "give resume=True with it"),
        (lambda: Tuner(objective, client=Mock(), connect="tcp://a:1"), "both client and connect"),
        (lambda: Tuner(objective, client=Mock(), slurm=None, trials=0), "trials is 0; allowed are"),
        (lambda: Tuner(objective, client=3), "client is 3; allowed is a distributed.Client"),
        (lambda: Tuner(objective, directory=f"{__file__}/x").fit(), "is not a directory. Choose"),
        (lambda: Tuner(lambda hp: hp, directory="study", resume=True).fit(), "pass x and y"),
        (lambda: Tuner(lambda _hp: LOCK.locked()).fit(x=[1]), "it uses 'LOCK' (cannot pickle"),
        (lambda: Tuner(lambda _hp: None).fit(x=LOCK, y=[1]), "the data cannot be sent"),
        (lambda: Tuner(lambda _hp: None).fit(x=[1], y=[1], callbacks=[LOCK]), "uses 'callbacks' ("),
        (lambda: Tuner(lambda _hp: None).fit(), "fit has no data, and there is no study"),
        (lambda: Tuner(lambda _hp: None).fit([1], [1], epoch=3), "did you mean epochs?"),
        (lambda: Tuner(lambda _hp: None, epochs=5).fit([1], [1], epochs=6), "fit has epochs=6"),
        (lambda: Tuner(objective).fit([1], [1]), "objective(hp, trial) trains by itself"),
        (lambda: Tuner(objective, epochs="5").fit([1], epochs=5), "(hp, trial) trains by itself"),
        (lambda: Tuner(objective, executions_per_trial=3), "confirm trains the best"),
        (lambda: Tuner(objective, directory=3), "directory of a study is 3; allowed is a path"),
        (lambda: Tuner(objective, directory=""), "directory of a study is ''; allowed is a path"),
        (lambda: Study(b"study"), "directory of a study is b'study'; allowed is a path"),
        (lambda: Tuner(objective, metrics=["mae"]), "objective(hp, trial) trains by itself"),
        (lambda: Tuner(objective, hyperparameters=3), "hyperparameters is 3; allowed are a Hyper"),
    ],
)
def test_a_wrong_call_says_what_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[[], object], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as refused:
        call()
    assert said in refused.value.message
    assert not any(tmp_path.rglob("*.*"))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("search", "'search'; fit runs the study, and takes the same arguments"),
        ("get_best_models", "'get_best_models'; fit returns a Study: study.best_models(k)"),
        ("anything", "Tuner has no attribute 'anything'"),
    ],
)
def test_methods_of_other_tuners_are_answered(name: str, said: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(Tuner(objective), name)
    assert str(refused.value).endswith(said)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"search": "sobol"}, "search is sobol, but the study in study was begun with random"),
        ({"objective": "val_loss"}, "objective is val_loss, but"),
        ({"objective": "val_accuracy:min"}, "was begun for val_accuracy (max), which cannot"),
        ({"constraints": "val_loss<1"}, "constraints is val_loss<1, but"),
        ({"seed": 2}, "seed is 2, but"),
        ({"warm_start": "other"}, "begun without it, which cannot be changed; leave warm_start"),
    ],
)
def test_what_a_resumed_study_cannot_change_is_refused(
    cli: InProcess, given: dict[str, Any], said: str
) -> None:
    cli.file("model.py", "")
    stored(cli.study())
    same = {"search": "auto", "seed": 1, "objective": "val_accuracy:max"}
    with pytest.raises(UsageError) as refused:
        Tuner(objective, directory="study", resume=True, quiet=True, **{**same, **given}).fit()
    assert said in refused.value.message
    assert "start a new study that learns from this one, with warm_start='study'" in str(
        refused.value
    )


@pytest.mark.parametrize("number", ["7", None, 10**20])
def test_a_trial_that_no_number_names_is_refused(cli: InProcess, number: object) -> None:
    stored(cli.study())
    with pytest.raises(UsageError) as refused:
        Study(cli.study()).trial(number)
    assert f"has no trial {number!r}; no trial has begun yet" in refused.value.message


class FakeDataset:
    """Stands for a dataset of tf.data, which takes seconds to import."""

    def cardinality(self) -> int:
        return 2

    def save(self, path: str) -> None:
        (Path(path) / "shards").mkdir(parents=True)
        (Path(path) / "shards/0").write_text("new")


def test_a_study_that_refuses_other_data_keeps_its_own(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = SimpleNamespace(Dataset=FakeDataset, INFINITE_CARDINALITY=-1)
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(data=data))
    cli.file("model.py", "")
    stored(cli.study())
    own = cli.study() / "data.training/shards/0"
    own.parent.mkdir(parents=True)
    own.write_text("old")
    other = Tuner(lambda hp: hp, directory="study", resume=True, quiet=True, search="sobol")
    with pytest.raises(UsageError, match="search is sobol"):
        other.fit(FakeDataset(), validation_data=FakeDataset())
    assert own.read_text() == "old"
    assert not list(cli.study().glob("*.before"))


@pytest.mark.parametrize("is_begun", [True, False])
def test_code_that_the_trials_of_another_master_read_stays(
    cli: InProcess, *, is_begun: bool
) -> None:
    directory = stored(cli.study()) if is_begun else StudyDirectory(cli.study()).create()
    own = directory.path / OBJECTIVE_FILE
    own.write_text("of the other")
    with directory.acquire(), pytest.raises(StudyLockedError, match="is already run by"):
        Tuner(objective, directory="study", resume=True, quiet=True).fit()
    assert own.read_text() == "of the other"
    assert not list(cli.study().glob("*.before"))


class Own:
    def __init__(self, version: int) -> None:
        self.version = version

    def build(self, hp: Any) -> int:
        return int(hp.Int("n", 0, 9))

    def fit(self, _hp: Any, model: int, *_data: object, **_: object) -> int:
        return model


@pytest.mark.parametrize(
    ("data", "is_new"), [((), True), (([2.0],), False), ((lambda: ([2.0], None),), False)]
)
def test_code_whose_study_has_no_data_is_used_as_it_is_now(
    cli: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    data: tuple[object, ...],
    is_new: bool,
) -> None:
    stored(cli.study())
    used = []

    def resume(directory: StudyDirectory, changes: Changes, **given: Any) -> None:
        with given["stored"]():
            used.append(read_pickle(directory.path / OBJECTIVE_FILE).hypermodel.version)
        assert changes.settings["working_directory"] == str(cli.directory), "also of stored code"
        raise StudyError("it ends here")

    monkeypatch.setattr("hptune.tuner.resume", resume)
    for version, given in ((1, data), (2, ())):
        with pytest.raises(StudyError, match="it ends here"):
            Tuner(Own(version), directory="study", resume=True).fit(*given)
    assert used == [1, 2 if is_new else 1]
    said = "fit has no data, so the model function is that of the study"
    assert (said in capfd.readouterr().err) is not is_new


@pytest.mark.parametrize(
    ("client", "workers", "slurm"),
    [(None, 2, "/slurm.toml"), (SimpleNamespace(scheduler_info=dict), None, None)],
)
def test_a_client_takes_the_place_of_the_workers_that_a_study_had(
    cli: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    *,
    client: Any,
    workers: int | None,
    slurm: str | None,
) -> None:
    directory = stored(cli.study())
    now = []

    def resume(_directory: StudyDirectory, changes: Changes, **_: object) -> None:
        for had in ({"workers": 2}, {"slurm": "/slurm.toml", "max_jobs": 3}):
            before = LedgerReader(directory).facts()["settings"]
            now.append(StudySettings.from_json({**before, **had}).changed(changes.settings))
        raise StudyError("it ends here")

    monkeypatch.setattr("hptune.tuner.resume", resume)
    with pytest.raises(StudyError, match="it ends here"):
        Tuner(objective, directory="study", resume=True, client=client, quiet=True).fit()
    assert (now[0].workers, now[1].slurm) == (workers, slurm)
    assert now[1].max_jobs == (slurm and 3)


def test_validation_data_without_targets_are_refused(cli: InProcess) -> None:
    array = SimpleNamespace(shape=(2, 3))
    with pytest.raises(UsageError, match=r"validation_data is an array; give \(x_val, y_val\)"):
        Tuner(lambda hp: hp, directory="study", quiet=True).fit(array, array, validation_data=array)
    assert not cli.study().exists()


def test_help_shows_all_settings_and_their_defaults() -> None:
    parameters = inspect.signature(Tuner).parameters
    text = Tuner.__doc__ or ""
    for each in SETTINGS:
        is_shown = each.name not in ("entry", "python")  # those of a model file
        assert (each.argument in parameters) == is_shown
        assert text.count(f"    {each.argument}: ") == is_shown
    assert "settings" not in parameters
    assert parameters["stop_at"].default == "batch"
