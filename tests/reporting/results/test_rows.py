"""A trial's cells are the same wherever they are shown."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from unittest.mock import Mock

import pytest

from fake_study import GOALS, attempt, trial
from hptune.core.attempt import AttemptId, Report
from hptune.core.trial import Direction, Goal, TrialState
from hptune.reporting.html.page_data import TrialRows, facts_of
from hptune.reporting.html.trials import StudyTrials
from hptune.reporting.results import rows as module
from hptune.reporting.results.best import best_json
from hptune.reporting.results.export import table
from hptune.reporting.results.rows import ALL, COLUMNS, Column, Place, row_of, rows
from hptune.reporting.results.trials import trials_table
from hptune.reporting.results.view import StudyView
from in_process import InProcess
from report_study import SPACE
from stored_study import typical

TRIALS = [trial(0, value=0.8, step=3), trial(1, TrialState.RUNNING)]
LATEST = {AttemptId(1, 0): Report(2, {GOALS.goal.metric: 0.5, "loss": 0.1})}
VIEW = StudyView("studies/one", "tpe", GOALS, 2, TRIALS, [attempt(0), attempt(1)], LATEST)


def test_a_trial_that_goes_on_has_what_it_last_reported_in_each_output() -> None:
    row = row_of(VIEW, TRIALS[1])
    assert (row.value, row.step, row.metrics["loss"]) == (0.5, 2, 0.1)
    tree = row.to_json()
    assert (tree["value"], tree["step"], tree["metrics"]) == (0.5, 2, row.metrics)
    (flat,) = [each for each in table(VIEW).rows if each["trial"] == 1]
    assert (flat["value"], flat["metric.loss"]) == (0.5, 0.1)
    *_, shown = trials_table(VIEW, rows(VIEW))
    assert shown[:4] == ("1", "interrupted", "0.5000", "2")


@pytest.mark.parametrize("command", ["trials", "best", "list", "status", "export"])
def test_each_json_has_the_same_tree_of_a_trial(cli: InProcess, command: str) -> None:
    study = typical(cli.directory / "studies/b-1").path
    shown = json.loads(cli("show", study, 2, "--json").out)
    arguments = {"list": ("studies", "--json"), "export": (study, "--format", "json")}
    found = json.loads(cli(command, *arguments.get(command, (study, "--json"))).out)
    if command == "list":
        (found,) = found["studies"]
    trees = found["trials"] if command in ("trials", "export") else [found["best"]]
    (tree,) = [each for each in trees if each["trial"] == 2]
    assert {**tree, "reports": shown["reports"]} == {k: shown[k] for k in (*tree, "reports")}
    assert list(tree)[: len(row_of(VIEW, TRIALS[0]).to_json())] == [
        each.name for each in COLUMNS if Place.JSON in each.places
    ]
    assert found["study"] == shown["study"]


def test_a_large_front_reads_the_attempts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    by_trial = Mock(wraps=module.by_trial)
    monkeypatch.setattr(module, "by_trial", by_trial)
    goals = replace(GOALS, objectives=(*GOALS.objectives, Goal("size", Direction.MAX)))
    front = [replace(trial(n, value=0.1 * n), extra_values=(-1.0 * n,)) for n in range(5)]
    found = best_json(StudyView("study", "tpe", goals, 5, front, []))
    assert isinstance(found["trials"], list)
    assert [each["trial"] for each in found["trials"]] == [4, 3, 2, 1, 0]
    assert by_trial.call_count == 1


@pytest.fixture
def _other_columns() -> Iterator[None]:
    module.columns.cache_clear()
    yield
    module.columns.cache_clear()


@pytest.mark.usefixtures("_other_columns")
def test_a_new_column_is_one_entry(monkeypatch: pytest.MonkeyPatch, cli: InProcess) -> None:
    added = Column("length", "its length", lambda row: len(row.trial.params), ALL)
    monkeypatch.setattr(module, "COLUMNS", (*COLUMNS, added))
    study = typical(cli.directory / "study").path
    head, *cells = cli("trials", study).out.splitlines()
    assert re.split(r" {2,}", head.strip())[6] == "length"
    assert cells[0].split()[6] == "2"
    assert {row["length"] for row in csv.DictReader(cli("export", study).out.splitlines())} == {
        *("2", "3")
    }
    assert json.loads(cli("best", study, "--json").out)["best"]["length"] == 2
    assert cli("report", study, "-o", "r.md").code == 0
    assert "| length |" in (cli.directory / "r.md").read_text()
    trials = StudyTrials(VIEW, SPACE, [])
    columns = {each["name"]: each for each in facts_of(trials, now=0.0)["columns"]}
    assert (columns["length"]["title"], columns["length"]["isFirst"]) == ("length", True)
    assert TrialRows().of(trials)[0]["length"] == 3


def test_a_trial_that_was_trained_again_names_its_repeats() -> None:
    again = trial(2, value=0.7, origin="confirm of 0")
    view = replace(VIEW, trials=[*TRIALS, again])
    tree = row_of(view, again).to_json()
    confirmed = {"trial": 0, "repeats": [2], "failed": 0, "means": [0.7]}
    assert tree["confirms"] == 0
    assert isinstance(tree["confirmed"], dict)
    assert confirmed.items() <= tree["confirmed"].items()
    on_page = TrialRows().of(StudyTrials(view, SPACE, []))
    assert (on_page[2]["confirms"], "confirms" in on_page[0]) == (0, False)
