"""The examples with frameworks on top of PyTorch: pruned, interrupted and continued."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from real_runs import Hptune, rows, trials, wait_for
from requirements import torch_environment

EXAMPLES = Path(__file__).parents[2] / "examples"
pytestmark = pytest.mark.slow


@dataclass(frozen=True, slots=True)
class Example:
    """An example, its epochs, and what its best trial keeps.

    Attributes:
        file: The file.
        launcher: What starts it, if it is a program; empty for a model file.
        metric: What it reports.
        kept: A file in `best/checkpoint`.
    """

    file: str
    launcher: str
    metric: str
    kept: str

    def arguments(self) -> list[object]:
        """Return the arguments of `hptune run`."""
        environment = torch_environment()
        path = EXAMPLES / self.file
        if not self.launcher:
            return [path, "--python", environment / "bin" / "python"]
        command = f"{environment / 'bin'}/{self.launcher} {shlex.quote(str(path))} "
        command += "--lr {lr} --width {width} --weight-decay {weight_decay}"
        space = EXAMPLES / "torchrun" / "space.toml"
        objective = f"{self.metric}:{'min' if 'loss' in self.metric else 'max'}"
        return ["--command", command, "--space", space, "--objective", objective,
                "--cpus-per-trial", 2]  # fmt: skip


ACCELERATE = (
    "accelerate launch --cpu --num_processes 2 --num_machines 1 --mixed_precision no "
    "--dynamo_backend no --main_process_port 0"
)
TORCHRUN = "torchrun --standalone --nproc-per-node 2"
CASES = [
    Example("transformers_lora.py", "", "eval_accuracy", "adapter/adapter_model.safetensors"),
    Example("lightning_digits.py", "", "val_loss", "last.ckpt"),
    Example("torchrun/accelerate_digits.py", ACCELERATE, "val_accuracy", "epoch-6"),
    Example("torchrun/fsdp_digits.py", TORCHRUN, "val_loss", "epoch-0/.metadata"),
]


@pytest.mark.parametrize("example", CASES, ids=lambda each: Path(each.file).stem)
def test_trials_report_stop_at_rungs_and_keep_their_checkpoint(
    example: Example, hptune: Hptune
) -> None:
    ended = hptune(
        "run", *example.arguments(), "--study", "study", "--search", "random", "--seed", 1,
        "--pruner", "asha", "--epochs", 6, "--trials", 5, "--workers", 1,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    study = hptune.study()
    states = [trial["state"] for trial in trials(study)]
    assert set(states) == {"COMPLETE", "PRUNED"}, ended.err
    for trial, state in enumerate(states):
        steps = steps_of(study, example, trial, 0)
        assert steps == list(range(1, len(steps) + 1))
        assert (len(steps) == 6) == (state == "COMPLETE")
    assert (study / "best" / "checkpoint" / example.kept).exists()


@pytest.mark.parametrize("example", CASES, ids=lambda each: Path(each.file).stem)
def test_an_interrupted_trial_continues_from_its_own_checkpoint(
    example: Example, hptune: Hptune
) -> None:
    run = hptune.start(
        "run", *example.arguments(), "--study", "study", "--seed", 1, "--epochs", 40,
        "--trials", 1, "--workers", 1,
    )  # fmt: skip
    study = hptune.study()
    wait_for(lambda: len(steps_of(study, example, 0, 0)) > 2, "reports of the first attempt")
    run.kill()
    before = steps_of(study, example, 0, 0)
    ended = hptune("resume", study)
    assert ended.code == 0, ended.err
    after = steps_of(study, example, 0, 1)
    # The epoch after the last checkpoint may be trained again.
    assert 1 < after[0] <= before[-1] + 1
    assert after == list(range(after[0], 41))


def steps_of(study: Path, example: Example, trial: int, attempt: int) -> list[int]:
    """Return the epochs that an attempt has reported; none while there is no study."""
    if not (study / "study.db").exists():
        return []
    wanted = (
        f"SELECT step FROM reports WHERE metric = '{example.metric}' AND trial = {trial} "
        f"AND attempt = {attempt} ORDER BY time"
    )
    return [row["step"] for row in rows(study, wanted)]
