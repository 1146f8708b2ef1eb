"""Slurm jobs that a dead master left, and workers that no study needs any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import Commands
from hptune.clusters.jobs import jobs_name
from hptune.worker.dask import worker
from hptune_jobqueue.script import ENDS_AT, NOTICE
from in_process import InProcess
from real_runs import Hptune


def left_by_a_dead_master(study: Path) -> None:
    (study / "jobs").mkdir(parents=True, exist_ok=True)
    (study / "jobs" / "scheduler.json").write_text(json.dumps({"address": "tcp://gone:1"}))


def test_stop_cancels_the_jobs_that_a_dead_master_left(cli: InProcess, commands: Commands) -> None:
    study = cli.study()
    left_by_a_dead_master(study)
    name = f"{jobs_name(study)}-workers"
    shown = (
        f"7_0|{name}|RUNNING|None|gpu|g1|N/A|N/A|N/A\\n8|another|RUNNING|None|gpu|g1|N/A|N/A|N/A"
    )
    commands.make("squeue", f"printf '{shown}\\n'")
    commands.make("scancel", f"echo $* >> {commands.folder}/cancelled")
    ended = cli("stop", "study")
    assert (ended.code, "The study's Slurm jobs are cancelled." in ended.out) == (0, True)
    assert (commands.folder / "cancelled").read_text() == "--quiet 7_0\n"
    again = cli("stop", "study")
    assert (again.code, "there is no study in" in again.err) == (2, True)


def test_stop_finds_the_jobs_of_a_study_that_a_link_leads_to(
    cli: InProcess, commands: Commands
) -> None:
    """As where the scratch file system is a link in the home directory."""
    real = cli.directory / "real"
    left_by_a_dead_master(real / "study")
    (cli.directory / "link").symlink_to(real)
    name = f"{jobs_name(real / 'study')}-workers"
    commands.make("squeue", f"echo '7_0|{name}|RUNNING|None|gpu|g1|N/A|N/A|N/A'")
    commands.make("scancel", f"echo $* >> {commands.folder}/cancelled")
    ended = cli("stop", "link/study")
    assert (ended.code, "The study's Slurm jobs are cancelled." in ended.out) == (0, True)
    assert (commands.folder / "cancelled").read_text() == "--quiet 7_0\n"


def test_stop_says_which_jobs_it_could_not_cancel(cli: InProcess, commands: Commands) -> None:
    left_by_a_dead_master(cli.study())
    commands.make("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    ended = cli("stop", "study")
    said = " ".join(ended.err.split())
    assert (ended.code, "may be left (squeue failed: Unable to contact" in said) == (1, True)
    assert "Cancel them with `hptune stop " in said


def test_a_status_that_is_watched_ends_when_the_masters_job_is_gone(
    cli: InProcess, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hptune.clusters.slurm_master._SELDOM_SECONDS", 0.0)
    study = cli.study()
    (study / "jobs").mkdir(parents=True)
    (study / "jobs" / "master.sbatch").touch()
    job = f"7|{jobs_name(study)}.master|PENDING|Priority|gpu||N/A|N/A|N/A"
    # Cancelled after the first look, before the study was made.
    script = f"cd {commands.folder}; test -e asked || echo '{job}'; touch asked"
    commands.make("squeue", script)
    ended = cli("status", study, "--watch")
    assert ended.code == 0, ended.err
    waiting, over = ended.out.strip().split("\n\n")
    assert "is Slurm job 7 (pending in gpu: Priority)" in waiting
    assert "The last master that was a Slurm job has ended; its output is in" in over


@pytest.mark.slow  # two runs; the cancelling is the same as that of `stop`
def test_resume_cancels_what_a_finished_study_left(hptune: Hptune, commands: Commands) -> None:
    hptune.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n")
    assert hptune("run", "model.py", "--trials", 1, "--study", "study").code == 0
    left_by_a_dead_master(hptune.study())
    shown = f"7_0|{jobs_name(hptune.study())}-workers|RUNNING|None|gpu|g1|N/A|N/A|N/A"
    commands.make("squeue", f"echo '{shown}'")
    commands.make("scancel", f"echo $* >> {commands.folder}/cancelled")
    ended = hptune("resume", "study")
    assert (ended.code, "cancelled 1 Slurm job of an earlier run" in ended.err) == (0, True)
    assert (commands.folder / "cancelled").read_text() == "--quiet 7_0\n"

    left_by_a_dead_master(hptune.study())
    commands.make("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    ended = hptune("resume", "study")
    assert (ended.code, "may be left (squeue failed: Unable to contact" in ended.err) == (1, True)
    # A study may continue where there is no Slurm.
    ended = hptune("resume", "study", "--trials", 2)
    assert ended.code == 0, ended.err
    assert "may be left (squeue failed: Unable to contact" in " ".join(ended.err.split())


def test_a_worker_leaves_at_the_end_that_it_told_although_slurm_lets_it_run(
    cli: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `scontrol update TimeLimit=…`: it would hold its node without a trial."""
    monkeypatch.setattr(worker, "_LATE_SECONDS", 0.0)
    monkeypatch.setenv(ENDS_AT, "1000000000")
    monkeypatch.setenv(NOTICE, "60")
    ended = cli("worker", tmp_path / "scheduler.json", "--death-timeout", "10s")
    assert (ended.code, ended.out.splitlines()[-1].endswith("left")) == (0, True), ended


def test_a_worker_whose_study_is_over_leaves(
    cli: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_OVER_SECONDS", 0.0)
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": ""}))
    ended = cli("worker", file, "--death-timeout", "10m")
    assert (ended.code, "no study needs this worker now" in ended.out) == (0, True)
