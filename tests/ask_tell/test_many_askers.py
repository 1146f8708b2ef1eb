"""Many programs ask one study at once, and some are killed."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import hptune
from asked_studies import opened
from hptune.core.attempt import Cause
from hptune.core.trial import TrialState
from hptune.master.plan import RunPlan, plan_start
from hptune.master.replay import replay
from hptune.storage.directory import StudyDirectory
from hptune.storage.ledger import LedgerReader

PROGRAM = """
import os, sys
import hptune

def work(path):
    study = hptune.open_study(path, lease="5s")
    for trial in study.trials_to_run():
        with trial:
            trial.report(1, loss=trial["x"])
            trial.tell(loss=trial["x"] ** 2)

children = []
for _ in range(int(sys.argv[2])):
    pid = os.fork()
    if pid == 0:
        work(sys.argv[1])
        os._exit(0)
    print(pid, flush=True)
    children.append(pid)
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
print("codes", *codes, flush=True)
"""


@pytest.mark.parametrize(
    ("askers", "trials", "kills"),
    [(8, 40, 3), pytest.param(50, 5000, 20, marks=pytest.mark.slow)],
)
def test_many_askers_lose_and_repeat_nothing(
    tmp_path: Path, askers: int, trials: int, kills: int
) -> None:
    path = tmp_path / "study"
    space = {"x": hptune.Float(0.0, 1.0)}
    study = hptune.open_study(path, space, "loss:min", search="random", trials=trials, seed=1)
    command = [sys.executable, "-c", PROGRAM, str(path), str(askers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        pids = [int(program.stdout.readline()) for _ in range(askers)]
        draw = random.Random(1)
        for number in range(kills):
            wanted = (number + 1) * trials // (kills + 2)
            while len(study.trials) < wanted:
                time.sleep(0.02)
            victim = pids.pop(draw.randrange(len(pids)))
            subprocess.run(["kill", "-9", str(victim)], check=False)
        codes = program.stdout.read().split()[1:]
    assert Counter(codes) <= Counter({"0": askers, "-9": kills})

    told = Counter(
        each.id.trial
        for each in LedgerReader(StudyDirectory(path)).attempts()
        if each.cause is Cause.RETURNED
    )
    assert told == Counter(range(trials)), "each trial was told once"
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert replay(StudyDirectory(path)).difference is None


def test_a_program_opens_the_study_that_another_has_created_since_it_looked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_start

    def with_another(*given: Any) -> RunPlan:
        monkeypatch.setattr("hptune.ask_tell.study.plan_start", plan)
        opened(tmp_path / "study")
        return plan(*given)

    monkeypatch.setattr("hptune.ask_tell.study.plan_start", with_another)
    assert opened(tmp_path / "study").ask().number == 0
