"""What a trial sees of the Slurm job that it runs in, and an srun that it calls."""

from __future__ import annotations

import json
from typing import Any

import pytest

from private_slurm import PrivateSlurm
from real_runs import Hptune, rows, trials, wait_for
from requirements import require
from slurm_studies import GPUS, WALLTIME, job_ids, reached, start
from torch_examples import (
    ACCELERATE_ALONE,
    ACCELERATE_OF_TWO,
    FSDP,
    LIGHTNING,
    LORA,
    Example,
)

PAIR = GPUS + "nodes = 2\ntrials_per_job = 1\n"

JAX = """
OBJECTIVE, EPOCHS = "loss:min", 1

def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    trial.report(1, loss=x)  # the search for hyperparameters ends here
    import jax
    jax.distributed.initialize()
    return {"loss": x, "processes": jax.process_count(), "process": jax.process_index(),
            "rank": trial.rank}
"""


def measured(hptune: Hptune) -> list[dict[str, Any]]:
    """Return the metrics of each trial."""
    return [json.loads(trial["metrics"]) for trial in trials(hptune.study())]


@pytest.mark.parametrize(
    ("options", "count", "processes"),
    [
        (("--trials", 4, "--min-workers", 2), 4, 1),
        (("--trials", 1, "--nodes-per-trial", 2, "--processes-per-trial", 4), 1, 4),
    ],
    ids=["each trial is alone", "the ranks of one trial"],
)
def test_jax_takes_a_trial_for_what_it_is_though_one_srun_started_its_workers(
    hptune: Hptune, slurm: PrivateSlurm, options: tuple[object, ...], count: int, processes: int
) -> None:
    require("jax")
    hptune.file("model.py", JAX)
    ended = start(hptune, PAIR, *options, "--gpus-per-trial", 0, "--max-jobs", 1).wait()
    assert ended.code == 0, ended.err
    assert [row["outcome"] for row in rows(hptune.study(), "SELECT * FROM attempts")] == [
        "FINISHED"
    ] * count
    found = measured(hptune)
    assert [each["processes"] for each in found] == [processes] * count
    assert {each["process"] for each in found} == {0}


def test_a_command_may_call_srun_which_shares_what_its_worker_holds(
    hptune: Hptune, slurm: PrivateSlurm
) -> None:
    hptune.file("space.toml", "[x]\ntype = 'float'\nmin_value = 0.0\nmax_value = 1.0\n")
    hptune.file("slurm.toml", WALLTIME + 'partition = "cpu"\n')
    script = 'echo "{{\\"loss\\": $1, \\"tasks\\": $SLURM_STEP_NUM_TASKS}}"'
    ended = hptune(
        "run", "--command", f"srun sh -c '{script}' sh {{x}}", "--space", "space.toml",
        "--objective", "loss", "--slurm", "slurm.toml", "--trials", "3", "--study", "study",
        "--max-jobs", "1",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert [each["tasks"] for each in measured(hptune)] == [1, 1, 1]


PROGRAMS = (
    (FSDP, 12, 2),
    (ACCELERATE_OF_TWO, 12, 1),
    (ACCELERATE_ALONE, 40, 1),
    (LORA, 40, 1),
    (LIGHTNING, 40, 1),
)


@pytest.mark.timeout(900)
@pytest.mark.slow  # up to nine processes import PyTorch, twice
@pytest.mark.parametrize(("example", "epochs", "on_node"), PROGRAMS, ids=str)
def test_programs_that_share_a_job_continue_in_worlds_of_their_own_when_job_and_master_are_killed(
    hptune: Hptune, slurm: PrivateSlurm, example: Example, epochs: int, on_node: int
) -> None:
    hptune.file("slurm.toml", GPUS + f"nodes = 2\ntrials_per_job = {on_node}\n")
    count = on_node + 1
    run = hptune.start(
        "run", *example.arguments(), "--epochs", epochs, "--gpus-per-trial", 0,
        "--slurm", "slurm.toml", "--max-jobs", 1, "--trials", count, "--seed", 1,
        "--study", "study",
    )  # fmt: skip
    study = hptune.study()
    wait_for(lambda: reached(study, 3, count=count), "trials at once", seconds=300)
    run.kill()
    slurm.run("scancel", *job_ids(slurm))
    ended = hptune("resume", "study", seconds=300)
    assert ended.code == 0, ended.err
    attempts = rows(study, "SELECT trial, outcome, cause, reason FROM attempts")
    assert [trial["state"] for trial in trials(study)] == ["COMPLETE"] * count, attempts
    assert {row["outcome"] for row in attempts} <= {"FINISHED", "LOST", "RELEASED"}, "none failed"
    first = "SELECT trial, min(step) AS step FROM reports WHERE attempt > 0 GROUP BY trial"
    assert all(row["step"] > 1 for row in rows(study, first)), "from its checkpoint"
    assert example.written_by(study) == set(example.names), "one of each process"
