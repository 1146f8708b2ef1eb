"""The export to MLflow, read by its client."""

from __future__ import annotations

import contextlib
import doctest
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exported_study import varied
from hptune.errors import UsageError
from hptune.reporting.exports import mlflow
from hptune.storage.ledger import Ledger
from hptune.study.study import Study
from requirements import require
from stored_study import stored

require("mlflow")

pytestmark = pytest.mark.filterwarnings("ignore")  # MLflow's own


@pytest.fixture(autouse=True)
def _folders_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


@pytest.fixture(params=["mlflow.db", "mlruns"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    yield request.param
    import gc

    gc.collect()  # MLflow leaves its connections open


def client(place: str) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(
        f"sqlite:///{place}" if place.endswith(".db") else Path(place).absolute().as_uri()
    )


def runs(place: str, name: str = "one") -> dict[str, Any]:
    experiment = client(place).get_experiment_by_name(name)
    found = list(client(place).search_runs([experiment.experiment_id]))
    for run in found:
        history = client(place).get_metric_history(run.info.run_id, "accuracy")
        run.curve = {each.step: each.value for each in history}
        assert len(run.curve) == len(history)
    assert len({run.info.run_name for run in found}) == len(found)
    by_name = {run.info.run_name: run for run in found}
    parent = by_name.pop(name)
    tag = "mlflow.parentRunId"
    assert {run.data.tags[tag] for run in by_name.values()} == {parent.info.run_id}
    return by_name


def test_a_run_for_each_trial_also_the_second_time(place: str, tmp_path: Path) -> None:
    varied(tmp_path / "one").export_to("mlflow", place)
    first = runs(place)
    statuses = [first[f"trial {number}"].info.status for number in range(9)]
    assert statuses == [
        *("FINISHED", "FINISHED", "KILLED", "KILLED", "FAILED", "SCHEDULED", "SCHEDULED"),
        *("FINISHED", "FINISHED"),
    ]
    plain, dropped = first["trial 0"], first["trial 1"]
    assert plain.curve == {1: 0.5, 2: 0.9, 3: 0.7}
    assert plain.data.metrics["result/accuracy"] == 0.9  # the last one is 0.7
    assert plain.info.start_time == 1_000_000
    assert plain.info.end_time == 1_050_000
    assert first["trial 6"].info.end_time is None
    assert dropped.data.params["rate"] == "0.30000000000000004"
    assert "rate" not in plain.data.params
    assert dropped.data.tags["hptune.infeasible"] == "params is 1500, allowed is <= 1000"
    assert first["trial 4"].data.tags["hptune.reason"] == "ValueError: bad shape"

    experiment = plain.info.experiment_id
    client(place).create_run(experiment, tags={"hptune.trial": "8"}, run_name="as by a mirror")
    varied(tmp_path / "again" / "one", last_value=0.7).export_to("mlflow", place)
    second = runs(place)
    assert second.keys() == first.keys()
    assert second["trial 8"].data.metrics["result/accuracy"] == 0.7
    kept = [name for name in first if first[name].info.run_id == second[name].info.run_id]
    assert sorted(kept) == [f"trial {number}" for number in range(8)]


def test_the_run_of_a_study_says_whether_it_goes_on(tmp_path: Path) -> None:
    directory, place = stored(tmp_path / "one"), tmp_path / "mlruns"

    def status(finish_reason: str, *, has_master: bool = False) -> str:
        with directory.acquire() if has_master else contextlib.nullcontext():
            with Ledger.open(directory) as ledger:
                ended = {"finish_reason": finish_reason, "reason": ""} if finish_reason else None
                ledger.set_facts({"ended": ended})
            Study(directory.path).export_to("mlflow", place)
        experiment = client(str(place)).get_experiment_by_name("one")
        (run,) = client(str(place)).search_runs([experiment.experiment_id])
        return str(run.info.status)

    assert status("", has_master=True) == "RUNNING"
    assert status("") == "KILLED"
    assert status("handed over") == "RUNNING", "its master's job waits"
    assert status("interrupted") == "FINISHED"
    assert status("done", has_master=True) == "FINISHED", "as its mirror sees the end"


def test_the_environment_names_the_place_as_mlflow_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not doctest.testmod(mlflow).failed
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "file:runs")
    varied(tmp_path / "one").export_to("mlflow")
    assert runs("runs").keys() == {f"trial {number}" for number in range(9)}


def test_another_study_of_the_same_name_has_its_own_experiment(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    place = tmp_path / "mlruns"
    MlflowClient(place.as_uri()).create_experiment("one")
    assert "as 'one (2)'" in varied(tmp_path / "one").export_to("mlflow", place)
    with pytest.raises(UsageError, match=r"study.db exists and is no database of MLflow"):
        varied(tmp_path / "two").export_to("mlflow", tmp_path / "two" / "study.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "old.db")) as old:
        old.executescript("CREATE TABLE experiments (a); CREATE TABLE runs (a)")
    with pytest.raises(UsageError, match=r"old.db cannot be written: .*no such column"):
        varied(tmp_path / "four").export_to("mlflow", tmp_path / "old.db")
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        varied(tmp_path / "three").export_to("mlflow", f"file://{tmp_path}/file/mlruns")
