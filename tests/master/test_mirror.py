"""`--mirror`: each trial that is over is sent once, by a process that nothing waits for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from exported_study import varied
from hptune.config.settings import StudySettings
from hptune.master import mirror
from hptune.storage.directory import StudyDirectory
from hptune.user_code.source import ObjectiveSource, SourceKind
from in_process import InProcess, refused
from real_runs import is_alive
from stored_study import stored

MODEL = """
def objective(hp, trial):
    return hp.Float("x", 0.0, 1.0)
"""
MIRROR = """
import os, time
from hptune.reporting.exports.source import Written

def lines(study, place):
    with open("sent.txt", "a") as file:
        print(*[trial.number for trial in study.trials], file=file)
    return Written("sent.txt")

def fails(study, place):
    raise OSError("the server of postgresql://ada:secret@db does not answer")

def hangs(study, place):
    with open("unfinished", "w") as file:
        print(os.getpid(), file=file)
    os.rename("unfinished", "pid")
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


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("tool:fails", "the server of postgresql://ada:***@db does not answer; tried again in 10"),
        ("gone:fails", "it has ended"),
    ],
)
@pytest.mark.parametrize("folder", [".", "of a project that was moved"])
def test_the_first_failure_is_shown_while_the_study_runs(
    tool: InProcess, monkeypatch: pytest.MonkeyPatch, name: str, words: str, folder: str
) -> None:
    monkeypatch.setattr(mirror, "END_SECONDS", 0.0)
    shown: list[str] = []
    source = ObjectiveSource(SourceKind.FILE, "model.py")
    study = varied(tool.study())
    settings = StudySettings(source=source, working_directory=folder, mirror=name)
    settings = settings.found_in(study.directory)
    (study.directory / "mirror.log").write_text("an earlier run; tried again in 10 s\n")
    with (
        StudyDirectory(tool.study()).acquire(),
        mirror.mirrored(settings, StudyDirectory(tool.study()), shown.append) as show_failure,
    ):
        while not shown:
            show_failure()
            time.sleep(0.01)
        show_failure()
    first, *_, last = shown
    assert words in first
    assert "not all trials were sent" in last


MASTER = """
import os, pathlib, signal, time
from hptune.config.settings import StudySettings
from hptune.master.mirror import mirrored
from hptune.storage.directory import StudyDirectory
from hptune.user_code.source import ObjectiveSource, SourceKind

source = ObjectiveSource(SourceKind.FILE, "model.py")
settings = StudySettings(source=source, working_directory=".", mirror="tool:hangs")
with mirrored(settings, StudyDirectory("study"), print):
    while not pathlib.Path("pid").exists():
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_it_ends_with_its_master_however_that_ends(tool: InProcess) -> None:
    varied(tool.study())
    subprocess.run([sys.executable, "-c", MASTER], check=False)
    pid = int(Path("pid").read_text())
    while is_alive(pid):
        time.sleep(0.01)


WRONG = {"wanddb": "unknown mirror 'wanddb'", "tool:none": "--mirror is 'tool:none'"}


@pytest.mark.parametrize(("name", "words"), WRONG.items(), ids=WRONG)
@pytest.mark.parametrize("command", [RUN, ("resume", "study"), (*RUN, "--detach")])
def test_a_tool_that_there_is_not_is_refused_at_once(
    tool: InProcess, command: Sequence[str], name: str, words: str
) -> None:
    if command[0] == "resume":
        model = ObjectiveSource(SourceKind.FILE, str(tool.directory / "model.py"))
        settings = StudySettings(source=model, working_directory=str(tool.directory))
        stored(tool.study(), settings=settings.to_json())
    ended = tool(*command, "--mirror", name)
    assert "format" not in ended.err
    if command[0] == "resume":
        assert ended.code == 2
        assert words in ended.err
    else:
        refused(ended, tool.directory, words)


TUNER = """
import hptune

def objective(hp, trial):
    return hp.Float("x", 0.0, 1.0)

def fit(mirror):
    place = dict(directory="study", resume=True, executor="joblib", workers=1)
    hptune.Tuner(objective, trials=2, mirror=mirror, **place).fit()

try:
    fit("tool:none")
except hptune.UsageError as error:
    print(error)
fit("tool:lines")
"""


def test_a_study_of_tuner_sends_its_trials(tool: InProcess) -> None:
    ended = tool.script(TUNER)
    assert (ended.code, "mirror is 'tool:none'" in ended.out) == (0, True), ended.err
    assert Path("sent.txt").read_text().splitlines()[-1] == "0 1"
