"""The command of `--notify`: for which moments it is called, and that nothing waits for it."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from fake_study import snapshot, trial
from hptune.core.trial import TrialState
from hptune.master.notify import Notifier
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


def notifier(command: str, path: Path, call_seconds: float = 60.0) -> Notifier:
    return Notifier(command, str(path), str(path), wait_seconds=60.0, call_seconds=call_seconds)


def test_a_resumed_study_calls_for_a_job_that_waits_and_no_former_failure(tmp_path: Path) -> None:
    failed = trial(1, TrialState.FAILED, reason="ValueError: bad")
    study = replace(snapshot(trial(0, value=0.5), failed), jobs="1 pending in gpu: Priority")
    calls = notifier("cat >> calls.json", tmp_path)
    for waited in (59.0, 61.0, 99.0):
        calls.observe(study, [], waited)
    calls.close()
    assert not calls.lines()
    lines = map(json.loads, (tmp_path / "calls.json").read_text().splitlines())
    wait, start = sorted(lines, key=lambda call: str(call["reason"]))
    assert (start["moment"], wait["moment"]) == ("start", "wait")
    assert wait["text"].endswith("a job has waited for 1m01s: 1 pending in gpu: Priority")
    assert wait["best"] == {"trial": 0, "value": 0.5}


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("sleep 60 & wait", "was killed"),
        ("exit 7", "ended with 7"),
        ("there_is_no_such_command", "ended with 127"),
    ],
)
def test_a_command_that_fails_holds_nothing_up_and_is_shown_once(
    tmp_path: Path, command: str, words: str
) -> None:
    calls = notifier(command, tmp_path, call_seconds=0.1)
    began = time.monotonic()
    calls.observe(snapshot(), [], 0.0)
    calls.end(snapshot(), "done", "")
    assert time.monotonic() - began < 0.1
    calls.close()
    (line,) = calls.lines()
    assert words in line


def test_a_command_that_outlasts_the_run_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    calls = notifier("sleep 60 & echo $! > pid; wait", tmp_path)
    calls.observe(snapshot(), [], 0.0)
    while not (path := tmp_path / "pid").exists() or not path.read_text().strip():
        time.sleep(0.01)
    calls.close(0.1)
    assert "was killed" in calls.lines()[0]
    while is_alive(int(path.read_text())):
        time.sleep(0.01)
