"""Models and checks for tests of masters that stop or die."""

from __future__ import annotations

from pathlib import Path

from real_runs import Hptune, Started, rows, trials, wait_for

# Trials of a length that the test chooses: they end when their gate is there.
GATED = """\
import os, time

GATE = {gate!r}

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    trial.report(1, value=x)
    while not os.path.exists(GATE):
        if trial.should_stop():
            return None
        time.sleep(0.02)
    return x
"""

QUICK = """\
import time

def objective(hp, trial):
    x = hp.Float("x", 0, 1)
    trial.report(1, value=x)
    time.sleep(0.3)
    return x
"""

# Reading it takes longer than any test.
NEVER_READ = f"import time\ntime.sleep(600)\n{QUICK}"

LIGHT = ("--executor", "joblib")
"""A study that is begun so can be resumed by `cli`, where only its ledger matters."""


def count(study: Path, condition: str) -> int:
    if not (study / "study.db").exists():
        return 0
    found: int = rows(study, f"SELECT count(*) AS n FROM trials WHERE {condition}")[0]["n"]
    return found


def wait_until_running(hptune: Hptune, started: Started, *, trials: int = 1) -> None:
    def is_running() -> bool:
        assert started.process.poll() is None, started.wait()
        if not (hptune.study() / "study.db").exists():
            return False
        reports = rows(hptune.study(), "SELECT count(DISTINCT trial) AS n FROM reports")
        return bool(reports[0]["n"] >= trials)

    wait_for(is_running, "trials to run")


def assert_each_trial_exactly_once(study: Path, number: int) -> None:
    found = trials(study)
    assert [trial["number"] for trial in found] == list(range(number))
    assert {trial["state"] for trial in found} == {"COMPLETE"}
    finished = rows(study, "SELECT trial FROM attempts WHERE outcome = 'FINISHED' ORDER BY trial")
    assert [row["trial"] for row in finished] == list(range(number))
    assert rows(study, "SELECT * FROM attempts WHERE outcome IS NULL") == []
    # The sampler learns all trials again: no configuration is tried twice.
    assert len({trial["params"]["x"] for trial in found}) == number
