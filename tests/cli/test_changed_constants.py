"""Constants of the model file that were changed, removed or added before a study is resumed."""

from __future__ import annotations

from typing import Any

import pytest

from hptune import Study
from in_process import InProcess

LIGHT = ("--executor", "joblib", "--seed", "3", "--study", "study")
BODY = """
def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    return {"score": x, "size": x}
"""
NUMBER = """
def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    trial.report(1, size=x)
    return x
"""
BEGUN = {"OBJECTIVE": "score:max", "CONSTRAINTS": "size<2", "EPOCHS": 2}
FEW = {"OBJECTIVE": "score:max"}
IS = "in model.py is"
TWO = ["score:max", "size:min"]


def written(cli: InProcess, constants: dict[str, Any], body: str) -> None:
    lines = [f"{name} = {value!r}" for name, value in constants.items() if value is not None]
    cli.file("model.py", "\n".join(lines) + body)


@pytest.mark.parametrize(
    ("before", "now", "code", "said"),
    [
        (BEGUN, {}, 0, ""),
        # changed
        (BEGUN, {"OBJECTIVE": "size"}, 2, f"OBJECTIVE {IS} 'size', but the study"),
        (BEGUN, {"OBJECTIVE": TWO}, 2, f"OBJECTIVE {IS} ('score:max', 'size"),
        (BEGUN, {"OBJECTIVE": "score:min"}, 2, f"OBJECTIVE {IS} 'score:min', but the study"),
        (BEGUN, {"CONSTRAINTS": "size<1"}, 2, f"CONSTRAINTS {IS} 'size<1', but the study"),
        (BEGUN, {"EPOCHS": 4}, 0, f"EPOCHS {IS} 4, but the study continues with 2 epochs"),
        (BEGUN, {"RESOURCES": {"cpus": 1}, "CACHE_DATA": False}, 0, ""),
        # removed
        (BEGUN, {"OBJECTIVE": None}, 0, "model.py has no OBJECTIVE; the study continues for score"),
        (BEGUN, {"OBJECTIVE": "score"}, 0, "model.py has no directions in OBJECTIVE; the study"),
        (BEGUN, {"CONSTRAINTS": None}, 0, "model.py has no CONSTRAINTS; the study continues for"),
        (
            {"OBJECTIVE": TWO},
            {"OBJECTIVE": ["score", "size"]},
            0,
            "model.py has no directions in OBJECTIVE; the study continues for score",
        ),
        (
            {"OBJECTIVE": "score:max", "CONSTRAINTS": ["size<2", "score<2"]},
            {"CONSTRAINTS": ["score<2", "size<2"]},
            0,
            "",
        ),
        (
            {"CONSTRAINTS": "size<9"},
            {"CONSTRAINTS": None},
            0,
            "model.py has no CONSTRAINTS; the study continues for value (min), size < 9",
        ),
        (
            BEGUN,
            {"EPOCHS": None},
            0,
            "model.py has no EPOCHS, but the study continues with 2 epochs",
        ),
        (
            {"OBJECTIVE": "value:max"},
            {"OBJECTIVE": None},
            0,
            "model.py has no OBJECTIVE; the study continues for value (max)",
        ),
        # added
        ({}, {"OBJECTIVE": "score"}, 2, f"OBJECTIVE {IS} 'score', but the study"),
        ({}, {"OBJECTIVE": "value:max"}, 2, f"OBJECTIVE {IS} 'value:max', but the study"),
        ({}, {"OBJECTIVE": "value:min"}, 0, ""),
        (FEW, {"CONSTRAINTS": ["size<1"]}, 2, f"CONSTRAINTS {IS} ('size<1',), but the study"),
        (
            FEW,
            {"EPOCHS": 2},
            0,
            f"EPOCHS {IS} 2, but the study continues without a number of epochs",
        ),
    ],
)
def test_what_the_file_says_now_is_compared_with_the_study(
    cli: InProcess, before: dict[str, Any], now: dict[str, Any], code: int, said: str
) -> None:
    body = NUMBER if before.get("OBJECTIVE") in (None, "value:max") else BODY
    written(cli, before, body)
    assert cli("run", "model.py", "--trials", 1, *LIGHT).code == 0
    goals = Study("study").goals
    written(cli, before | now, body)
    ended = cli("resume", "study", "--trials", 2)
    assert ended.code == code, ended.err
    words = " ".join(ended.err.split())
    if said:
        assert said in words
    else:
        assert "the study continues" not in words
    study = Study("study")
    assert study.goals == goals
    assert len(study.trials) == (1 if code else 2)
    assert ("`hptune run model.py --warm-start study`" in words) is bool(code)
    assert ("`hptune resume study --epochs" in words) is bool(now.get("EPOCHS"))
    if code:  # the message's way to go on is one
        written(cli, dict.fromkeys(now), body)
        assert cli("resume", "study", "--trials", 2).code == 0


def test_options_of_the_study_replace_the_file_also_when_it_changes(cli: InProcess) -> None:
    written(cli, FEW, BODY)
    options = ("--objective", "size:min", "--constraint", "score<9", "--epochs", 2)
    assert cli("run", "model.py", "--trials", 1, *LIGHT, *options).code == 0
    written(cli, {"OBJECTIVE": "other", "CONSTRAINTS": "score<1", "EPOCHS": 7}, BODY)
    ended = cli("resume", "study", "--trials", 2)
    assert (ended.code, "the study continues" in ended.err) == (0, False), ended.err
    written(cli, {"EPOCHS": 3}, BODY)
    assert cli("resume", "study", "--epochs", 3, "--trials", 3).code == 0


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("OBJECTIVE = 'score:max'", ""),
        ("OBJECTIVE: str = 'score:max'", ""),
        (
            "OBJECTIVE = 'score:max'\nEPOCHS: int = 4",
            "EPOCHS in moved.py has changed, and the file",
        ),
        ("OBJECTIVE, EPOCHS = 'size', 4", "OBJECTIVE and EPOCHS in moved.py have changed, and the"),
    ],
)
def test_a_file_that_is_not_read_is_compared_with_the_one_of_the_last_run(
    cli: InProcess, line: str, said: str
) -> None:
    written(cli, FEW, BODY)
    assert cli("run", "model.py", "--trials", 1, *LIGHT).code == 0
    cli.file("moved.py", line + BODY)
    ended = cli("resume", "study", "--model-file", "moved.py")
    assert ended.code == 0
    assert (said in ended.err, "changed" in ended.err) == (True, bool(said)), ended.err


def test_an_objective_that_the_code_reports_no_more_is_refused(cli: InProcess) -> None:
    written(cli, FEW, BODY)
    assert cli("run", "model.py", "--trials", 1, *LIGHT, "--objective", "size:min").code == 0
    written(cli, FEW, BODY.replace('"size": x', '"bytes": x'))
    ended = cli("resume", "study", "--trials", 2)
    assert ended.code == 2
    said = "the study in study was begun for size (min), which cannot be changed, but objective()"
    assert said in " ".join(ended.err.replace(str(cli.directory) + "/", "").split())
