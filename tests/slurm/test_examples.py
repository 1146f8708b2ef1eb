"""The scripts in examples/slurm, submitted to a real Slurm."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from private_slurm import PrivateSlurm, wait_until
from real_runs import COMMAND, Hptune, states

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"
MODEL = "def objective(hp, trial):\n    return hp.Float('x', 0.0, 1.0)\n"


@pytest.mark.slow  # an allocated run is met in test_allocated_runs too
def test_the_script_starts_a_study_on_all_nodes_and_leaves_nothing(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    hptune.file("model.py", MODEL)
    path = f"{COMMAND.parent}:{os.environ['PATH']}"
    subprocess.run(
        ["sbatch", "--nodes=2", "--cpus-per-task=2", "--partition=gpu", "--mem=1G", "--time=30",
         "--output=out.txt", EXAMPLES / "allocation.sbatch", "model.py", "study"],
        cwd=hptune.directory,
        env=hptune.environment(PATH=path),
        check=True,
        capture_output=True,
        timeout=30,
    )  # fmt: skip
    out = hptune.directory / "out.txt"
    wait_until(lambda: out.exists() and "Done: 50/50" in out.read_text(), "its end", seconds=200)
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert re.search(r"on the 2 nodes of Slurm job \d+", out.read_text())
    assert states(hptune.study()) == {"COMPLETE": 50}
