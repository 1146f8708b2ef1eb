"""What Slurm's accounting has on the jobs of a study."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from hptune.cli import main
from hptune.clusters.jobs import jobs_name
from hptune.clusters.slurm_usage import JobUsage, parse_sacct
from stored_study import typical

SACCT = """\
4_0|hptune-a-1-workers|1800|billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1|02:00:00|
4_0.batch|batch|1800|cpu=8,gres/gpu=4,mem=64G,node=1|02:00:00|3600000
4_1|hptune-a-1-workers|0||00:00:00|
5|hptune-a-1.master|3600|billing=1,cpu=1,mem=2G,node=1|00:01.250|
5.batch|batch|3600|cpu=1,mem=2G,node=1|00:01.250|
6|hptune-a-12-workers|3600|cpu=1|1-00:00:00|
7|other|3600|cpu=1|00:10:00|
7.batch|batch|3600|cpu=1|00:10:00|1000
"""


def test_the_jobs_of_one_study_are_added_up() -> None:
    assert parse_sacct(SACCT, "hptune-a-1") == JobUsage(
        jobs=2,
        core_seconds=8 * 1800 + 3600,
        gpu_seconds=4 * 1800,
        cpu_seconds=7200 + 1.25,
        energy_joules=3_600_000,
    )
    assert parse_sacct(SACCT, "hptune-a-12").cpu_seconds == 86400
    assert parse_sacct("", "hptune-a-1").jobs == 0


def test_each_run_of_a_requeued_job_counts_and_it_is_one_job() -> None:
    run = "5|a.master|600|cpu=1|00:10.000|\n5.batch|batch|600|cpu=1|00:10.000|500\n"
    assert parse_sacct(run + run, "a") == JobUsage(1, 1200.0, 0.0, 20.0, 1000.0)


def test_steps_that_run_at_the_same_time_used_the_same_energy() -> None:
    steps = "".join(f"8.{step}|{step}|60|cpu=8|01:00|700\n" for step in ("batch", "extern", "0"))
    assert parse_sacct(f"8|a|60|cpu=8|03:00|\n{steps}", "a").energy_joules == 700


@pytest.mark.parametrize(
    "line",
    [
        "7|odd|name|60|cpu=1|00:10:00|",
        "welcome to this cluster",
        "",
        "7_[0-3]|hptune-a-1-workers|||00:00:00|",
    ],
)
def test_lines_of_other_jobs_and_of_jobs_that_wait_count_nothing(line: str) -> None:
    assert parse_sacct(f"{line}\n{SACCT}", "hptune-a-1") == parse_sacct(SACCT, "hptune-a-1")


def test_what_slurm_does_not_tell_counts_nothing() -> None:
    line = "9|a||cpu=8,gres/gpu:a100=2,gres/gpu:h100=1|INVALID|"
    assert parse_sacct(line, "a") == JobUsage(jobs=1)
    assert parse_sacct(line.replace("||", "|10|"), "a").gpu_seconds == 30


@pytest.fixture
def sacct(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A command that prints a file; asked for less than all runs, it refuses."""
    shown, command = tmp_path / "shown", tmp_path / "bin/sacct"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\ncase "$*" in *--duplicates*) exec cat {shown};; esac; exit 1\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    return shown


def test_the_command_sets_it_beside_what_trials_held(tmp_path: Path, sacct: Path) -> None:
    directory = typical(tmp_path / "study")
    sacct.write_text(SACCT.replace("hptune-a-1-", f"{jobs_name(directory.path)}-"))
    ended = CliRunner().invoke(main, ["slurm", "usage", str(directory)])
    assert ended.exit_code == 0, ended.output
    words = dict(line.split(maxsplit=1) for line in ended.output.splitlines())
    assert words["jobs"] == "1 has started"
    assert words["allocated"] == "4 core hours, 2 GPU hours"
    assert words["processor"] == "time  2 core hours (50%)"
    assert words["energy"] == "1 kWh"
    sacct.write_text(re.sub(r"\|[\d:.]+\|(\d*)$", r"|00:00:00|\1", sacct.read_text(), flags=re.M))
    ended = CliRunner().invoke(main, ["slurm", "usage", str(directory)])
    assert "processor time  not measured here" in ended.output
    assert "0%" not in ended.output


def test_a_study_without_jobs_and_a_slurm_without_accounting_are_said(
    tmp_path: Path, sacct: Path
) -> None:
    directory = str(typical(tmp_path / "study"))
    sacct.touch()
    ended = CliRunner().invoke(main, ["slurm", "usage", directory])
    assert ended.exit_code == 1
    assert "Slurm's accounting has no job of" in ended.output
    (tmp_path / "bin/sacct").write_text(
        "#!/bin/sh\necho Slurm accounting storage is disabled >&2; exit 1\n"
    )
    ended = CliRunner().invoke(main, ["slurm", "usage", directory])
    assert ended.exit_code == 1
    assert "this cluster keeps no accounting (sacct failed: Slurm acc" in ended.output
    assert re.search(r"trials held \S+ core hours", ended.output)
    assert "again" not in ended.output
