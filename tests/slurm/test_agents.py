"""An agent runs a study in jobs of a real Slurm."""

from __future__ import annotations

import pytest

from agent_driver import Driver
from hptune.agents.limits import read_limits
from hptune.agents.server import Agent
from hptune.study.study import Study
from private_slurm import PrivateSlurm, wait_until
from real_runs import Hptune, states
from slurm_studies import SLICES, go, model, reached

LIMITS = """
studies = "studies"
models = ["model.py"]
slurm = ["slurm.toml"]
device_hours = "1gpu-h"
jobs = 2
time = "10m"
trials = 3
"""
GIVEN = {
    "trials": 3,
    "first": 1,
    "search": "random",
    "timeout": "10m",
    "budget": "1gpu-h",
    "gpus-per-trial": 1,
    "slurm": "slurm.toml",
    "max-jobs": 2,
}


def masters(slurm: PrivateSlurm) -> list[str]:
    return [line.split()[0] for line in slurm.jobs() if line.split()[2].endswith(".master")]


@pytest.fixture
def call(hptune: Hptune, slurm: PrivateSlurm, monkeypatch: pytest.MonkeyPatch) -> Driver:
    for name, value in hptune.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(hptune.directory)
    hptune.file("slurm.toml", SLICES + '[master]\npartition = "cpu"\nmemory = "500MB"\n')
    hptune.file("limits.toml", LIMITS).chmod(0o600)
    return Driver(Agent(read_limits(hptune.directory / "limits.toml"), by="claude"))


def test_an_agent_starts_stops_and_resumes_a_study_and_submits_nothing_twice(
    call: Driver, hptune: Hptune, slurm: PrivateSlurm
) -> None:
    model(hptune, epochs=1000, seconds=0.1)
    start = {"model_file": "model.py", "settings": GIVEN}
    planned = call("start", **start)
    name = planned.study
    assert "2 Slurm jobs at once of 00:10:00 each, and one for the master" in planned.text
    assert slurm.jobs() == []
    started = call("start", **start, token=planned.token)
    (master,) = masters(slurm)
    assert (started.is_error, f"Slurm job {master} in partition cpu" in started.text) == (
        False,
        True,
    )
    assert "exists or runs" in call("start", **start, token=planned.token).text
    assert masters(slurm) == [master]

    waited = call("wait", study=name, until="trial", timeout_seconds=1)
    assert "did not happen" in waited.text
    study = hptune.directory / "studies" / name
    wait_until(lambda: reached(study, 2), "a trial under way")
    assert not call("stop", study=name).is_error
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert states(study) == {"WAITING": 1}
    assert "exists or runs" in call("start", **start, token=planned.token).text

    go(hptune)
    resume = {"study": name, "settings": {}}
    token = call("resume", **resume).token
    assert not call("resume", **resume, token=token).is_error
    assert "exists or runs" in call("resume", **resume, token=token).text
    assert len(masters(slurm)) == 1
    assert "done: 3/3 trials" in call("wait", study=name, timeout_seconds=200).text
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert "token is not of this request" in call("resume", **resume, token=token).text
    assert states(study) == {"COMPLETE": 3}
    assert [each.by.partition(" for ")[0] for each in Study(study).view().notes] == ["claude"] * 2
