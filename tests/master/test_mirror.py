"""`--mirror`: each trial that is over is sent once, by a process that nothing waits for."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from hptune.master import mirror
from in_process import InProcess, refused

MODEL = """
def objective(hp, trial):
    return hp.Float("x", 0.0, 1.0)
"""
MIRROR = """
import time
from hptune.reporting.exports.source import Written

def lines(study, place):
    with open("sent.txt", "a") as file:
        print(*[trial.number for trial in study.trials], file=file)
    return Written("sent.txt")

def hangs(study, place):
    time.sleep(60)
"""
RUN = ("run", "model.py", "--study", "study", "--executor", "joblib", "--workers", "1")


@pytest.fixture
def tool(cli: InProcess) -> InProcess:
    cli.file("model.py", MODEL)
    cli.file("tool.py", MIRROR)
    return cli


def test_a_resumed_study_sends_what_is_new(tool: InProcess) -> None:
    ended = tool(*RUN, "--trials", "2", "--mirror", "tool:lines")
    assert "not all trials" not in ended.err
    assert Path("sent.txt").read_text().splitlines()[-1] == "0 1"
    tool("resume", "study", "--trials", "3")
    assert Path("sent.txt").read_text().splitlines()[-1] == "0 1 2", "the setting is kept"


def test_a_tool_that_does_not_answer_delays_the_end_only(
    tool: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror, "END_SECONDS", 0.1)
    began = time.monotonic()
    ended = tool(*RUN, "--trials", "2", "--mirror", "tool:hangs")
    assert time.monotonic() - began < 20.0
    assert ended.code == 0
    assert "`hptune export study --format tool:hangs` sends the others" in ended.err


def test_a_tool_that_there_is_not_is_refused_before_the_study(tool: InProcess) -> None:
    refused(tool(*RUN, "--mirror", "wanddb"), tool.directory, "wanddb", "wandb")
