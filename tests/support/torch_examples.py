"""The examples with frameworks on top of PyTorch: how each starts, and what it leaves."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from requirements import torch_environment

EXAMPLES = Path(__file__).parents[2] / "examples"

ACCELERATE = (
    "accelerate launch --multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no "
    "--dynamo_backend no --main_process_port {trial.port}"
)


@dataclass(frozen=True, slots=True)
class Example:
    """An example, and what its best trial keeps.

    Attributes:
        file: The file.
        launcher: What starts it, if it is a program; empty for a model file.
        metric: What it reports.
        kept: Files in `best/checkpoint` that are named by the processes that wrote them: a pattern.
        names: Their names.
    """

    file: str
    launcher: str
    metric: str
    kept: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.launcher.partition(' ')[0] or 'python'} {Path(self.file).stem}"

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
        return ["--command", command, "--space", space, "--objective", objective]

    def written_by(self, study: Path) -> set[str]:
        """Return the names of the kept files of a study's best trial."""
        return {path.name for path in (study / "best" / "checkpoint").glob(self.kept)}


LORA = Example(
    "transformers_lora.py", "", "eval_accuracy", "checkpoint-*/rng_state*", ("rng_state.pth",)
)
LIGHTNING = Example("lightning_digits.py", "", "val_loss", "last.ckpt", ("last.ckpt",))
OF_TWO = ("random_states_0.pkl", "random_states_1.pkl")
_STATES = "epoch-*/random_states_*.pkl"
_DIGITS = "torchrun/accelerate_digits.py"
ACCELERATE_OF_TWO = Example(_DIGITS, ACCELERATE, "val_accuracy", _STATES, OF_TWO)
ACCELERATE_ALONE = Example(_DIGITS, "python", "val_accuracy", _STATES, OF_TWO[:1])
FSDP = Example(
    "torchrun/fsdp_digits.py", "torchrun --nproc-per-node 2", "val_loss", "epoch-0/*.distcp",
    ("__0_0.distcp", "__1_0.distcp"),
)  # fmt: skip
