"""The command of `--notify`: for which moments it is called, and that nothing waits for it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from fake_study import snapshot, trial
from hptune.config.settings import StudySettings
from hptune.core.trial import TrialState
from hptune.master import notify
from hptune.master.notify import Notifier
from hptune.user_code.source import ObjectiveSource, SourceKind
from in_process import InProcess
from real_runs import is_alive

MODEL = """
import os, signal, time
from hptune.storage.directory import StudyDirectory
from hptune.core.user_requests import UserAction, UserRequest

requests = StudyDirectory("study").requests

def stops(trial):
    for step in range(1, 1000):
        trial.report(step, loss=1.0)
        if trial.should_stop():
            return
        time.sleep(0.01)

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    {body}
    return x
"""
BROKEN = """
from hptune.core.sampler import Sampler

class Broken(Sampler):
    def __init__(self, space, seed, *, directions): ...
    def tell(self, trial): raise ValueError("no idea")
    def ask(self, numbers): return [{"x": 0.5} for _ in numbers]
"""
FAILS = "raise ValueError('bad')"
CTRL_C = f"trial.report(0, loss=1.0); os.kill({os.getpid()}, signal.SIGINT); stops(trial)"
"""Reading the model ends at its first report."""
STOP = "requests.append(UserRequest('1', UserAction.STOP, 'ada')); stops(trial)"

ENDINGS = {
    "done": ("", ("--trials", "1"), ["start", "end"], "done"),
    "Ctrl-C": (CTRL_C, (), ["start", "stop", "end"], "interrupted"),
    "stop": (STOP, (), ["start", "stop", "end"], "interrupted"),
    "failure limit": (
        FAILS,
        ("--max-failures", "0"),
        ["start", "failure", "stop", "end"],
        "too many failures",
    ),
    "budget": (
        "stops(trial)",
        ("--budget", "0.0001core-h"),
        ["start", "stop", "end"],
        "budget spent",
    ),
    "master error": ("", ("--search", "broken:Broken"), ["start", "end"], "failed"),
}


@pytest.mark.parametrize(
    ("body", "options", "moments", "finish_reason"), ENDINGS.values(), ids=ENDINGS
)
def test_the_command_is_called_for_each_moment_once(
    cli: InProcess, body: str, options: tuple[str, ...], moments: list[str], finish_reason: str
) -> None:
    cli.file("model.py", MODEL.format(body=body))
    cli.file("broken.py", BROKEN)
    command = ("--notify", "cat >> calls.json", "--executor", "joblib", "--workers", "1")
    ended = cli("run", "model.py", "--study", "study", *command, *options)
    assert Path("calls.json").exists(), ended.err
    calls = [json.loads(line) for line in Path("calls.json").read_text().splitlines()]
    assert sorted(call["moment"] for call in calls) == sorted(moments), ended.err
    assert {call["finish_reason"] for call in calls} == {None, finish_reason}
    assert len({frozenset(call) for call in calls}) == 1, "the keys are always the same"


TUNER = """
import hptune

def objective(hp, trial):
    return hp.Float("x", 0.0, 1.0)

def fit(trials, **options):
    place = dict(directory="study", resume=True, executor="joblib", workers=1)
    hptune.Tuner(objective, trials=trials, **place, **options).fit()

fit(1, notify="cat >> calls.json")
fit(2)
fit(3, notify="none")
"""


def test_a_study_of_tuner_keeps_the_command_until_there_is_to_be_none(cli: InProcess) -> None:
    ended = cli.script(TUNER)
    assert ended.code == 0, ended.err
    calls = [json.loads(line) for line in Path("calls.json").read_text().splitlines()]
    assert sorted(call["moment"] for call in calls) == ["end", "end", "start", "start"]
    assert max(call["counts"].get("COMPLETE", 0) for call in calls) == 2


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def notifier(
    tmp_path: Path, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[str], Notifier]:
    monkeypatch.setattr(notify, "CALL_SECONDS", 0.3)

    def made(command: str) -> Notifier:
        source = ObjectiveSource(SourceKind.FILE, "model.py")
        settings = StudySettings(
            source=source, working_directory=str(tmp_path), notify=command, notify_wait_seconds=60.0
        )
        return Notifier(settings, str(tmp_path), lines.append)

    return made


def test_a_resumed_study_calls_for_a_job_that_waits_and_no_former_failure(
    notifier: Callable[[str], Notifier], tmp_path: Path, lines: list[str]
) -> None:
    failed = trial(1, TrialState.FAILED, reason="ValueError: bad")
    study = replace(
        snapshot(trial(0, value=0.5), failed, replace(failed, number=2)),
        jobs="1 pending in gpu: Priority",
    )
    calls = notifier("cat >> calls.json")
    for waited in (59.0, 61.0, 99.0):
        calls.observe(study, [failed], waited)
    calls.end(study, "done", "")
    assert not lines
    made = [json.loads(line) for line in (tmp_path / "calls.json").read_text().splitlines()]
    by_moment = {call["moment"]: call for call in made}
    assert len(made) == len(by_moment) == 3
    assert by_moment.keys() == {"start", "wait", "end"}
    wait = by_moment["wait"]
    assert wait["text"].endswith("a job has waited for 1m01s: 1 pending in gpu: Priority")
    assert wait["best"] == {"trial": 0, "value": 0.5}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sleep 60 & echo $! > pid; wait", "was killed; its next failures are not shown"),
        ("exit 7", "ended with 7; its next"),
        ("echo out; seq 100 104 >&2; exit 7", "7: 102; 103; 104; its next"),
        ("printf '\\033[1mbad\\r\\n\\n' >&2; exit 7", "ended with 7: [1mbad; its next"),
        ("head -c 9999 /dev/zero | tr '\\0' a >&2; exit 7", f"7: {'a' * 200}"),
        ("there_is_no_such_command", "ended with 127: /bin/sh: "),
    ],
)
def test_a_command_that_fails_is_shown_once(
    command: str, words: str, tmp_path: Path, lines: list[str], notifier: Callable[[str], Notifier]
) -> None:
    calls = notifier(command)
    calls.observe(snapshot(), [], 0.0)
    calls.end(snapshot(), "done", "")
    (line,) = lines
    assert words in line
    assert len(line) < 400
    if (pid := tmp_path / "pid").exists():
        assert not is_alive(int(pid.read_text())), "what the command started is killed with it"


@pytest.mark.filterwarnings("ignore:Exception ignored.*Popen")  # it is left to `timeout`
def test_nothing_waits_for_a_command_but_the_end_a_limited_time_and_it_keeps_its_minute(
    notifier: Callable[[str], Notifier],
    tmp_path: Path,
    lines: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = notifier("until [ -e go ]; do sleep 0.01; done; cat >> calls.json")
    monkeypatch.setattr(notify, "CALL_SECONDS", 60.0)
    monkeypatch.setattr(notify, "END_SECONDS", 0.1)
    calls.observe(snapshot(), [], 0.0)
    calls.end(snapshot(), "done", "")
    (tmp_path / "go").touch()
    while not (path := tmp_path / "calls.json").exists() or path.read_text().count("\n") < 2:
        time.sleep(0.01)
    assert not lines


def test_a_command_that_cannot_be_started_is_shown(
    notifier: Callable[[str], Notifier], monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    notifier("true").observe(snapshot(), [], 0.0)
    (line,) = lines
    assert "cannot be started: No such file or directory" in line
