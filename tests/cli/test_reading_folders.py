"""What the commands that read studies say of a folder: which studies it has, and which is meant."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from fake_study import GOALS, trial
from hptune.config.objectives import goals_to_json
from hptune.core.goals import Comparison, Constraint, Goals
from hptune.core.messages import StudyOpened, UserRequested
from hptune.core.study_config import StudyConfig
from hptune.core.trial import Direction, Goal
from hptune.core.user_requests import UserAction
from hptune.reporting.html.folder import Folder, FolderPage
from hptune.reporting.results.listing import list_text
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import Ledger
from hptune.study.study import find_directories, listed
from in_process import InProcess
from stored_study import stored, two_studies, typical

NEWEST = "newest study: studies/b-1\n"
OTHERS = "`hptune list FOLDER` lists the studies of another folder, `hptune list .` of this one"


@pytest.fixture
def two(cli: InProcess) -> InProcess:
    """Return the command, next to two studies."""
    two_studies(cli.directory)
    return cli


def test_studies_below_a_directory_are_listed_and_a_damaged_one_is_named(two: InProcess) -> None:
    (two.directory / "studies/c/d").mkdir(parents=True)
    (two.directory / "studies/c/d/study.db").write_text("no database")
    shown = two("list")
    assert shown.err == f"{OTHERS}\n"
    assert (two("list", "studies").err, two("list", "--json").err) == ("", "")
    rows = shown.out.splitlines()
    assert [row.split("  ")[0] for row in rows] == [
        *("study", "studies/b-1", "studies/a-1", "studies/c/d")
    ]
    assert "master gone" in rows[1]
    assert "4/10 and 1/1 confirmations, 1 failed" in rows[1]
    assert "0.8800 val" in rows[1]  # one repeat has no spread
    assert "damaged or no study" in rows[3]
    found = json.loads(two("list", ".", "--json").out)["studies"]
    assert [Path(each["study"]).name for each in found] == ["b-1", "a-1", "d"]
    assert found[0]["best"]["trial"] == 2
    assert (found[0]["ended_trials"], found[0]["confirmations"]) == (5, 1)
    assert two("list", "studies/b-1/best").code == 2


def test_a_list_and_the_page_of_the_folder_say_the_same_of_a_study(cli: InProcess) -> None:
    opened = StudyOpened(1000.0, StudyConfig(trials=10, goals=GOALS, seed=1))
    pause = UserRequested(1001.0, "r", UserAction.PAUSE, "ada (hptune pause)")
    paused = typical(cli.directory / "paused")
    exhausted = {"finish_reason": "exhausted", "reason": "the only configuration was tried"}
    stored(cli.directory / "tried", [trial(0, value=0.8)], ended=exhausted, created_at=500.0)
    with Ledger.open(paused) as ledger, paused.acquire():
        ledger.append([opened, pause])
        rows = cli("list", ".").out.splitlines()[1:]
        assert [row.split()[1] for row in rows] == ["paused", "done"]
        assert "  4/10 and 1/1 confirmations, 1 failed  " in rows[0]
        assert re.search(r" 1/1 ", rows[1])
        page = FolderPage(
            Folder(
                str(cli.directory),
                lambda: find_directories(cli.directory),
                stamp=str,
                listed=listed,
                facts=lambda _: {},
                page=lambda _: pytest.fail("no page of one study is asked for"),
            )
        )
        found = json.loads(page.state({}))["rows"]
        assert [each["state"] for each in found] == ["paused", "done"]
        repeated = "4/10 and 1/1 confirmations, 1 failed"
        assert [each["trials"] for each in found] == [repeated, "1/1"]
        assert "\ntrials   1/1: 1 complete\n" in cli("status", "tried").out
        assert json.loads(cli("status", "paused", "--json").out)["state"] == "paused"


def test_two_objectives_fit_a_terminal(tmp_path: Path) -> None:
    auc = Constraint("auc", Comparison.MORE, 0.5)
    goals = Goals((GOALS.goal, Goal("params", Direction.MIN)), (auc,))
    metrics = {"val_accuracy": 0.88, "params": 1234.0, "auc": 0.9}
    ended = replace(trial(0, value=0.88, metrics=metrics), extra_values=(1234.0,))
    stored(tmp_path / "digits-1", [ended], goals=goals_to_json(goals))
    studies = [replace(listed(tmp_path / "digits-1"), directory="studies/digits-1")]
    lines = list_text(studies, width=80).splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(" ".join(lines[1:]).split())
    assert "0.8800 val_accuracy (max), 1234 params (min), auc > 0.5" in words


def test_a_best_trial_that_breaks_a_constraint_is_listed_so(tmp_path: Path) -> None:
    goals = Goals(GOALS.objectives, (Constraint("auc", Comparison.MORE, 0.5),))
    stored(
        tmp_path / "digits-1",
        [trial(0, value=0.88, metrics={"val_accuracy": 0.88, "auc": 0.25})],
        goals=goals_to_json(goals),
    )
    said = "0.8800 val_accuracy (max), auc is 0.25, allowed is > 0.5"
    assert said in list_text([listed(tmp_path / "digits-1")])


def test_a_study_that_was_moved_is_listed_by_the_link_in_its_place(cli: InProcess) -> None:
    scratch = typical(cli.directory / "scratch/it").path
    (cli.directory / "studies").mkdir()
    (cli.directory / "studies/model-1").symlink_to(scratch)
    (cli.directory / "studies/all").symlink_to(cli.directory)  # is not followed
    assert [row.split()[0] for row in cli("list").out.splitlines()] == ["study", "studies/model-1"]
    assert cli("status").err == "newest study: studies/model-1\n"


def test_a_study_that_is_starting_is_listed(cli: InProcess) -> None:
    directory = StudyDirectory(cli.directory / "studies" / "model-1").create()
    with directory.acquire():
        shown = cli("list")
        assert shown.code == 0
        assert "studies/model-1  starting" in shown.out
        assert "is being started by" in " ".join(shown.out.split())
        (starting,) = json.loads(cli("list", "--json").out)["studies"]
        assert starting["state"] == "starting"
    ended = listed(directory.path)  # found while it was starting, and read now
    assert (ended.state, ended.problem[:21]) == ("unreadable", "there is no study in ")
    assert cli("list").code == 2, "a run that ended before its first trial is no study"


def test_where_there_are_no_studies_another_folder_may_have_some(cli: InProcess) -> None:
    ended = cli("list")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(
        f"no study is in studies or in the three levels of folders below it; {OTHERS}\n"
    )
    assert json.loads(cli("list", "--json").out) == {"studies": []}
    assert "does not exist" in cli("list", "nowhere").err


def test_the_newest_study_is_meant_where_none_is_named(two: InProcess) -> None:
    for command in ("status", "export", "trials"):
        ended = two(command)
        assert (ended.code, ended.err) == (0, NEWEST), ended
    assert two("best").err.startswith(f"{NEWEST}Error: the file best.json of trial 2")
    assert two("stop").err.startswith(f"{NEWEST}Error: the study in studies/b-1 is not running")
    # Only a study that is created changes the order.
    os.utime(two.directory / "studies/a-1/study.db")
    assert two("status").err == NEWEST
    refused = two("resume", "--search", "tpe").err
    assert refused.startswith(f"{NEWEST}Error: --search is tpe, but the study in studies/b-1 was")


def test_within_a_study_it_need_not_be_named(
    two: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("studies/a-1", "studies/a-1/trials"):
        monkeypatch.chdir(two.directory / folder)
        found = two("status")
        assert (found.code, found.err) == (0, f"study: {two.directory}/studies/a-1\n")
        assert two("show", 0).err.startswith(f"study: {two.directory}/studies/a-1\n")


def test_a_directory_that_is_no_study_is_answered_with_those_below(two: InProcess) -> None:
    for folder in (".", "studies"):
        ended = two("status", folder)
        assert ended.code == 2
        assert f"such as studies/b-1 (`hptune list {folder}`)" in ended.err.replace("a-1", "b-1")
    (two.directory / "other").mkdir()
    assert "`hptune run MODEL.PY --study other`" in two("status", "other").err
    (two.directory / "other/file").touch()
    said = "there is no study in other: the directory has no file study.db. Name a study's"
    assert said in two("status", "other").err


def test_a_study_whose_name_begins_with_a_hyphen(cli: InProcess) -> None:
    stored(cli.directory / "-x")
    shown = cli("status", "./-x").out
    assert "study    ./-x\n" in shown
    assert "hptune resume ./-x" in shown
