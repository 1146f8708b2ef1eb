"""Slurm's commands that cannot be started, fail, or give unusual answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobqueue.commands import Slurm
from jobqueue.errors import ClosedForNowError, SlurmUnavailableError, SubmissionError


@pytest.fixture
def bin_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the first directory where commands are looked for."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def command(directory: Path, name: str, script: str) -> None:
    file = directory / name
    file.write_text(script)
    file.chmod(0o755)


def test_a_command_that_cannot_be_started_is_a_slurm_that_does_not_answer(
    bin_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(bin_directory))
    # The kernel refuses an unknown format, as it refuses a fork when there is no memory.
    command(bin_directory, "squeue", "neither a script nor a program")
    with pytest.raises(SlurmUnavailableError, match="squeue cannot be started: Exec format error"):
        Slurm().jobs(["a"])


def test_bytes_that_are_no_text_are_borne(bin_directory: Path) -> None:
    line = r"7_0|a|PENDING|caf\351|gpu||N/A|N/A"
    command(bin_directory, "squeue", f"#!/bin/sh\nprintf '{line}\\n'\n")
    (job,) = Slurm().jobs(None)
    assert (job.id, job.reason) == ("7_0", "caf\N{REPLACEMENT CHARACTER}")


def test_jobs_that_cannot_be_cancelled_are_an_error(bin_directory: Path) -> None:
    command(bin_directory, "scancel", "#!/bin/sh\necho 'scancel: error: busy' >&2\nexit 1\n")
    with pytest.raises(SlurmUnavailableError, match="scancel failed: busy"):
        Slurm().cancel(["7_0"])
    Slurm().cancel([])


def test_commands_do_not_hear_the_terminals_ctrl_c(bin_directory: Path) -> None:
    found = bin_directory / "session"
    command(bin_directory, "sbatch", f"#!/bin/sh\nps -o sid= -p $$ > {found}\necho 7\n")
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
    bin_directory: Path, said: str, error: type[Exception]
) -> None:
    command(bin_directory, "sbatch", f"#!/bin/sh\necho '{_FAILED}{said}' >&2\nexit 1\n")
    with pytest.raises(error) as caught:
        Slurm().submit("", 1)
    assert caught.type is error
