"""Slurm's commands that cannot be started, fail, or give unusual answers."""

from __future__ import annotations

import os

import pytest
from commands import Commands

from jobqueue.commands import Slurm
from jobqueue.errors import ClosedForNowError, SlurmUnavailableError, SubmissionError


def test_a_command_that_cannot_be_started_is_a_slurm_that_does_not_answer(
    commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(commands.folder))
    # The kernel refuses an unknown format, as it refuses a fork when there is no memory.
    commands.make("squeue", "").write_text("neither a script nor a program")
    with pytest.raises(SlurmUnavailableError, match="squeue cannot be started: Exec format error"):
        Slurm().jobs(["a"])


def test_bytes_that_are_no_text_are_borne(commands: Commands) -> None:
    line = r"7_0|a|PENDING|caf\351|gpu||N/A|N/A"
    commands.make("squeue", f"printf '{line}\\n'")
    (job,) = Slurm().jobs(None)
    assert (job.id, job.reason) == ("7_0", "caf\N{REPLACEMENT CHARACTER}")


def test_jobs_that_cannot_be_cancelled_are_an_error(commands: Commands) -> None:
    commands.make("scancel", "echo 'scancel: error: busy' >&2\nexit 1")
    with pytest.raises(SlurmUnavailableError, match="scancel failed: busy"):
        Slurm().cancel(["7_0"])
    Slurm().cancel([])


def test_commands_do_not_hear_the_terminals_ctrl_c(commands: Commands) -> None:
    found = commands.folder / "session"
    commands.make("sbatch", f"ps -o sid= -p $$ > {found}\necho 7")
    assert Slurm().submit("#!/bin/sh", 2) == ("7_0", "7_1")
    assert int(found.read_text()) != os.getsid(0)


_FAILED = "sbatch: error: Batch job submission failed: "


@pytest.mark.parametrize(
    ("said", "error"),
    [
        # As sbatch of release 22.05 prints them.
        ("Required partition not available (inactive or drain)", ClosedForNowError),
        ("Unable to contact slurm controller (connect failure)", SlurmUnavailableError),
        ("Requested node configuration is not available", SubmissionError),
    ],
)
def test_refusals_that_pass_differ_from_others(
    commands: Commands, said: str, error: type[Exception]
) -> None:
    commands.make("sbatch", f"echo '{_FAILED}{said}' >&2\nexit 1")
    with pytest.raises(error) as caught:
        Slurm().submit("", 1)
    assert caught.type is error
