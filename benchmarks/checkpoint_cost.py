"""Cost of checkpoints, as a share of the training's time.

    .venv/bin/python benchmarks/checkpoint_cost.py

Trains the models of `examples/digits_cnn.py` (a tenth of a second per epoch: the worst case) and
`examples/cifar10_cnn.py` (on 4,000 made-up images, a twelfth of the real ones, so that an epoch is
short here too): with a checkpoint after each epoch, at hptune's default interval, and never.
"""

from __future__ import annotations

import argparse
import os
import runpy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np

from hptune.core.attempt import AttemptId
from hptune.core.goals import Goals
from hptune.core.messages import Start
from hptune.core.resources import Placement
from hptune.core.trial import Direction, Goal, Score
from hptune.training.context import TrialContext
from hptune.training.hyperparameters import make_hyperparameters
from hptune.training.keras import objective as keras_objective
from hptune.training.resume import resumption
from hptune.training.resume.randomness import seed_everything
from hptune.user_code.model_file import check_path, load

OFTEN = {"each epoch": 1, "default": None, "never": 0}


@dataclass
class Times:
    """End times of epochs, and the time that hptune then took, in seconds."""

    ends: list[float] = field(default_factory=list)
    ours: list[float] = field(default_factory=list)
    writes: int = 0
    file_bytes: int = 0

    @property
    def epoch_seconds(self) -> float:
        """The median time of an epoch; the first, which compiles, is left out."""
        return statistics.median(b - a for a, b in zip(self.ends, self.ends[1:], strict=False))

    @property
    def share(self) -> float:
        """Share of hptune in the time from the end of the first epoch on."""
        return sum(self.ours[1:]) / (self.ends[-1] - self.ends[0])


def made_up(images: int) -> Any:
    """Return random data in the form of CIFAR-10."""
    draw = np.random.default_rng(0)

    def some(count: int) -> Any:
        x = draw.integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
        return x, draw.integers(0, 10, count)

    return some(images), some(images // 5)


def train(
    model_file: Path, params: Mapping[str, Any], epochs: int, every: int | None, data: Any
) -> Times:
    """Run one trial and time its epochs."""
    code = load(check_path(model_file))
    if data is not None:
        object.__setattr__(code, "load_data", lambda: data)
    times = Times()
    original: Callable[..., None] = resumption.Resumption.epoch_ends

    def epoch_ends(self: Any, epoch: int) -> None:
        began = time.perf_counter()
        original(self, epoch)
        times.ours.append(time.perf_counter() - began)
        times.ends.append(time.perf_counter())
        newest = max(home.glob("resume/*.ckpt"), key=os.path.getmtime, default=None)
        if newest is not None:
            times.file_bytes = newest.stat().st_size
            times.writes += newest.stem == str(epoch + 1)

    with tempfile.TemporaryDirectory(dir=ROOT) as folder:
        home = Path(folder)
        resumption.Resumption.epoch_ends = epoch_ends  # type: ignore[method-assign]  # timed
        try:
            trial = TrialContext(
                Start(AttemptId(0, 0), params, Placement("worker", (0,)), 1),
                directory=home,
                goals=Goals((Goal("val_accuracy", Direction.MAX),)),
                epochs=epochs,
                checkpoint_every=every,
                send=lambda _event: None,
            )
            seed_everything(1, deterministic=False)
            hp = make_hyperparameters()
            hp.values = dict(params)
            with Path(os.devnull).open("w") as nowhere:
                out, sys.stdout = sys.stdout, nowhere
                try:
                    best = (Score((2.0,), 0.0),)  # so that no model is saved
                    keras_objective.run(code, hp, trial, epochs=epochs, incumbents=best)
                finally:
                    sys.stdout = out
        finally:
            resumption.Resumption.epoch_ends = original  # type: ignore[method-assign]  # timed
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--images", type=int, default=4000, help="made-up images for CIFAR-10")
    options = parser.parse_args()
    digits, cifar = ROOT / "examples" / "digits_cnn.py", ROOT / "examples" / "cifar10_cnn.py"
    runpy.run_path(str(digits))  # imports what both need before anything is timed
    cases = [
        ("digits, default", digits, {}, options.epochs, None),
        ("digits, largest", digits,
         {"filters": 32, "second_block": True, "second_filters": 64, "dense_units": 128},
         options.epochs, None),
        ("CIFAR-10, default", cifar, {}, max(4, options.epochs // 4), made_up(options.images)),
    ]  # fmt: skip
    print(f"load {os.getloadavg()[0]:.1f} at the start, on {os.cpu_count()} cores")
    print("model              checkpoints  written  file KB  epoch ms  a checkpoint ms   share")
    for name, path, params, epochs, data in cases:
        for often, every in OFTEN.items():
            times = train(path, params, epochs, every, data)
            cost = sum(times.ours[1:]) / max(1, times.writes - 1) if times.writes else 0.0
            print(
                f"{name:18} {often:11} {times.writes:4d}/{epochs - 1:<3d} "
                f"{times.file_bytes / 1e3:8.0f} {1e3 * times.epoch_seconds:9.0f} "
                f"{1e3 * cost:16.1f} {times.share:7.2%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
