"""`hptune scaling --slurm`, against a real Slurm."""

from __future__ import annotations

import json

import pytest

from private_slurm import PrivateSlurm, wait_until
from real_runs import Hptune
from requirements import require
from slurm_studies import GPUS, WALLTIME

MODEL = """
import numpy as np

def build_model(hp):
    import keras
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    return model

def load_data():
    x = np.ones((64, 8), "float32")
    return (x, x[:, :1]), None
"""


@pytest.mark.slow  # a minute: three attempts that import a framework, in a job
def test_steps_are_measured_in_a_job_that_ends_with_them(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    require("torch")
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", WALLTIME + 'partition = "cpu"\n')
    ended = hptune(
        "scaling", "model.py", "--slurm", "slurm.toml", "--compare", "torch", "--mode", "weak",
        "--repeats", 1, "--batch-size", 16, "--json", "scaling.json", seconds=400.0,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    found = json.loads((hptune.directory / "scaling.json").read_text())["rows"]
    assert [row["devices"] for row in found] == [1, 2]
    assert all(row["step_seconds"]["middle"] > 0 for row in found)
    wait_until(lambda: not slurm.jobs(), "an empty queue")
    assert not (hptune.directory / "studies").exists()


@pytest.mark.slow  # half a minute: the framework in a job
def test_figures_of_cores_are_not_given_for_gpus(hptune: Hptune, slurm: PrivateSlurm) -> None:
    """These GPUs are made up, and the framework in the job finds that out."""
    require("torch")
    hptune.file("model.py", MODEL)
    hptune.file("slurm.toml", GPUS)
    ended = hptune(
        "scaling", "model.py", "--slurm", "slurm.toml", "--compare", "torch", "--repeats", 1,
        "--batch-size", 16, seconds=200.0,
    )  # fmt: skip
    assert ended.code != 0
    assert "sees 0 GPUs, but 1 are to be measured: it would train on cores" in ended.err
    assert "ms a step" not in ended.err
    wait_until(lambda: not slurm.jobs(), "an empty queue")
