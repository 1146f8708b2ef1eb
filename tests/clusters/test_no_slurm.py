"""What the commands for Slurm say where there is none, and the example of a slurm.toml."""

from __future__ import annotations

from pathlib import Path

import pytest

from hptune_jobqueue.config import read_config
from in_process import InProcess

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
MODEL = "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n"


@pytest.mark.usefixtures("warm")  # other tests share it: it must not start with this PATH
def test_without_slurm_it_is_said_where_to_go(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.file("model.py", MODEL)
    cli.file("slurm.toml", 'partition = "gpu"\nwalltime = "10"')
    monkeypatch.setenv("PATH", "/nowhere")
    ended = cli("run", "model.py", "--slurm", "slurm.toml")
    assert ended.code == 2, ended.err
    assert "sinfo is not found. Run this where Slurm answers" in ended.err


def test_without_a_slurm_that_answers_init_says_what_to_do(
    cli: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = 'partition = "gpu", walltime = "04:00:00", and account where your site asks for one'
    monkeypatch.setenv("PATH", "/nowhere")
    ended = cli("slurm", "init")
    assert (ended.code, ended.err.count("\n")) == (2, 1), ended.err
    assert "sinfo is not found. Run this where Slurm answers" in ended.err
    assert by_hand in ended.err
    # Slurm is installed, but no controller is there.
    silent = tmp_path / "bin"
    silent.mkdir()
    (silent / "sinfo").write_text(
        "#!/bin/sh\necho first; echo 'sinfo: fatal: no controller' >&2; exit 1"
    )
    (silent / "sinfo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{silent}:/usr/bin:/bin")
    ended = cli("slurm", "init")
    assert (ended.code, "sinfo failed: fatal: no controller. Run this where" in ended.err) == (
        2,
        True,
    )
    assert by_hand in ended.err
    assert not (cli.directory / "slurm.toml").exists()


def test_the_example_of_a_slurm_toml_can_be_read() -> None:
    (shape,) = read_config(EXAMPLES / "slurm.toml").shapes
    assert shape.walltime_seconds == 4 * 3600
