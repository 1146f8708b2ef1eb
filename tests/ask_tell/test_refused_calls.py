"""Calls of programs that a study refuses, and results that do not count."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import pytest

import hptune
from asked_studies import SPACE, opened, states
from hptune.ask_tell.trial import AskedTrial
from hptune.core.trial import TrialState
from hptune.errors import SpaceChangedError, StorageFullError, TrialOverError, UsageError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study"


def test_a_trial_is_told_once(path: Path) -> None:
    study = opened(path)
    trial = study.ask()
    study.tell(trial, loss=0.5)
    for again in (trial, 0, "0.0"):
        with pytest.raises(TrialOverError, match=r"trial 0 is complete with 0\.5 already"):
            study.tell(again, loss=0.4)
    with pytest.raises(TrialOverError):
        trial.report(2, loss=0.1)
    assert study.trials[0].value == 0.5


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        ({"loss": "low"}, "loss is 'low'; a metric is a number"),
        ({"los": 0.5}, r"needs the metric 'loss' \(is it 'los'\?\); the trial reports: los"),
        ({}, "trial 0 is told without a result; give loss, or why it has failed"),
    ],
)
def test_a_wrong_result_changes_nothing(
    path: Path, metrics: dict[str, object], message: str
) -> None:
    study = opened(path)
    trial = study.ask()
    with pytest.raises(UsageError, match=message):
        trial.tell(**metrics)
    assert study.tell(trial, loss=0.5).value == 0.5


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_not_finite_is_a_failure(path: Path, value: float) -> None:
    study = opened(path)
    told = study.tell(study.ask(), loss=value)
    assert told.state is TrialState.FAILED
    assert "a result is a finite number" in told.reason
    with study.ask() as trial:
        trial.report(1, loss=value)
    assert states(study) == [TrialState.FAILED] * 2


@pytest.mark.parametrize("trial", [7, -1, "x", "1.x", 10**30])
def test_there_is_no_such_trial(path: Path, trial: int | str) -> None:
    study = opened(path)
    study.ask()
    with pytest.raises(UsageError, match=r"no trial|the trial is"):
        study.tell(trial, loss=0.5)


def test_a_trial_of_another_study_is_refused(tmp_path: Path) -> None:
    one, other = opened(tmp_path / "one"), opened(tmp_path / "other")
    other.ask()
    with pytest.raises(UsageError, match=r"trial 0 is of the study in .*one, and not"):
        other.tell(one.ask(), loss=0.5)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"seed": 2}, UsageError, "was begun"),
        ({"objective": "other:max"}, UsageError, "cannot be changed"),
        ({"space": {"y": hptune.Int(1, 3)}}, SpaceChangedError, r"accept_space=True\)"),
        ({"workers": 4}, UsageError, "is for workers of hptune's own"),
        ({"notify": "mail ada"}, UsageError, "^notify is for a master.* `hptune wait`"),
        ({"mirror": "wandb"}, UsageError, "^mirror is for a master.* `hptune export --follow`"),
        ({"trial": 4}, UsageError, "open_study has no argument 'trial'. Did you mean 'trials'"),
        ({"lease": "soon"}, UsageError, "lease is 'soon'; allowed are"),
    ],
)
def test_what_an_existing_study_cannot_be_given(
    path: Path, settings: dict[str, object], error: type[Exception], message: str
) -> None:
    study = opened(path)
    study.ask()
    with pytest.raises(error, match=message):
        hptune.open_study(path, **settings)  # type: ignore[arg-type]
    assert study.tell(0, loss=0.5).value == 0.5


def test_a_new_study_needs_its_objective(path: Path) -> None:
    with pytest.raises(UsageError, match="a new study needs its objective"):
        hptune.open_study(path, SPACE)
    assert not path.exists()


@pytest.mark.parametrize("budget", ["2gpu-h", "2 GPU-hours"])
def test_a_budget_that_programs_never_spend_is_refused(path: Path, budget: str) -> None:
    with pytest.raises(UsageError, match=r"^budget is 2.*, but trials hold no GPU here"):
        opened(path, budget=budget)
    assert not path.exists()
    assert opened(path, budget="2core-h").ask().number == 0


PICKY = """
def search(space, seed, *, directions, least=1):
    raise ValueError(f"least is {least}")

def pruner(*, directions, epochs, least=1):
    raise ValueError(f"least is {least}")
"""


@pytest.mark.parametrize("kind", ["search", "pruner"])
def test_a_plug_in_that_cannot_be_made_leaves_no_study(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (path.parent / "of_mine.py").write_text(PICKY)
    monkeypatch.chdir(path.parent)
    monkeypatch.delitem(sys.modules, "of_mine", raising=False)
    given = {kind: f"of_mine:{kind}", "options": {f"{kind}.least": 0}}
    with pytest.raises(UsageError, match=rf"^{kind} is of_mine:{kind}, which failed.*least is 0"):
        opened(path, **given)
    assert not path.exists()


def test_a_disk_without_room_loses_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = opened(path)
    trial, other = study.ask(2)
    ledger = study.session.state._ledger._connection  # type: ignore[union-attr]
    (pages,) = ledger.execute("PRAGMA page_count").fetchone()
    ledger.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFullError, match="full"):
        report_until_full(trial)
    again = hptune.open_study(path)
    assert again.tell(0, loss=0.5).value == 0.5
    assert study.tell(other, loss=0.25).value == 0.25


def report_until_full(trial: AskedTrial) -> None:
    for step in range(1, 10_000):
        trial.report(step, loss=1.0, note=float(step))
