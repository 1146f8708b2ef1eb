"""The scripts in examples/slurm, submitted to a real Slurm."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from private_slurm import PrivateSlurm, wait_until
from real_runs import COMMAND, Hptune, states

from jobqueue.config import read_config

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
MODEL = "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n"


@pytest.mark.parametrize("name", ["master.sbatch", "allocation.sbatch"])
def test_one_script_starts_a_study_and_leaves_nothing(
    hptune: Hptune, slurm: PrivateSlurm, name: str
) -> None:
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", 'partition = "gpu"\nwalltime = "10"\ninterface = "lo"')
    smaller = ["--nodes=2", "--cpus-per-task=2"] if name.startswith("allocation") else ["--nodes=1"]
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sbatch", *smaller, "--partition=gpu", "--mem=1G", "--time=30", "--output=out.txt",
         EXAMPLES / name, "model.py", "study"],
        cwd=hptune.directory,
        env=hptune.environment(PATH=path),
        check=True,
        capture_output=True,
        timeout=30,
    )  # fmt: skip
    out = hptune.directory / "out.txt"
    wait_until(lambda: out.exists() and "Done: 50/50" in out.read_text(), "its end", seconds=200)
    wait_until(lambda: not slurm.jobs(), "an empty queue", seconds=60)
    where = (
        r"on the 2 nodes of Slurm job \d+" if name.startswith("alloc") else "in at most 10 Slurm"
    )
    assert re.search(where, out.read_text())
    assert states(hptune.study()) == {"COMPLETE": 50}


def test_the_example_of_a_slurm_toml_can_be_read() -> None:
    (shape,) = read_config(EXAMPLES / "slurm.toml").shapes
    assert shape.walltime_seconds == 4 * 3600
