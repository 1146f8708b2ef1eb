"""What the job of a detached master runs, with commands that answer as Slurm does."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from in_process import InProcess
from stored_study import stored

from tuner.config.model_file import ObjectiveSource, SourceKind
from tuner.config.settings import StudySettings

ANSWERS = {
    "sinfo": "echo 'cpu*|up|1-00:00:00|8|64000|(null)|3|idle'",
    "squeue": "",
    "sbatch": "cat > /dev/null; echo 7",
}


@pytest.fixture
def slurm(cli: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    (cli.directory / "bin").mkdir()
    for name, answer in ANSWERS.items():
        cli.file(f"bin/{name}", f"#!/bin/sh\n{answer}\n").chmod(0o700)
    monkeypatch.setenv("PATH", str(cli.directory / "bin"), prepend=os.pathsep)
    cli.file("slurm.toml", 'partition = "cpu"\nwalltime = "01:00:00"\n')


def command_of(study: Path) -> str:
    return (study / "jobs" / "master.sbatch").read_text().splitlines()[-1].partition(" hptune ")[2]


@pytest.mark.usefixtures("slurm")
def test_a_job_resumes_the_study_that_was_the_newest_when_it_was_submitted(cli: InProcess) -> None:
    model = cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    study = cli.directory / "studies" / "a-1"
    settings = StudySettings(
        source=ObjectiveSource(SourceKind.FILE, str(model)),
        working_directory=str(cli.directory),
        search="random",
        slurm=str(cli.directory / "slurm.toml"),
        gpus_per_trial=0,
    )
    stored(study, settings=settings.to_json())
    ended = cli("resume", "--detach", "--trials", 20)
    assert ended.code == 0, ended.err
    assert command_of(study) == f"resume {study} --trials 20"


@pytest.mark.usefixtures("slurm")
def test_a_job_runs_a_model_file_that_follows_two_hyphens(cli: InProcess) -> None:
    cli.file("-model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    options = ("--slurm", "slurm.toml", "--gpus-per-trial", 0)
    ended = cli("run", *options, "--detach", "--", "-model.py")
    assert ended.code == 0, ended.err
    (study,) = (cli.directory / "studies").iterdir()
    assert command_of(study) == (
        f"run --study {study} --slurm slurm.toml --gpus-per-trial 0 -- -model.py"
    )
