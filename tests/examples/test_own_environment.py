"""The example of a program in an environment of its own, where hptune is not installed."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from real_runs import Hptune, rows, trials
from requirements import mxnet_python
from surroundings import KNOWN

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_environment"
PROGRAM = EXAMPLE / "mxnet_digits.py"


def test_mxnet_is_tuned_without_hptune_in_its_environment(hptune: Hptune) -> None:
    python = mxnet_python()
    lookup = "import importlib.util as u; print(u.find_spec('hptune'))"
    there = subprocess.run([python, "-I", "-c", lookup], capture_output=True, text=True, check=True)
    assert there.stdout == "None\n"
    command = (
        f"{python} {PROGRAM} --optimizer {{optimizer}} --lr {{lr}} --momentum={{momentum}} "
        "--units {units} --dropout {dropout}"
    )
    ended = hptune(
        "run", "--command", command, "--space", EXAMPLE / "space.toml", "--study", "study",
        "--objective", "val_accuracy", "--pruner", "asha", "--epochs", 9, "--trials", 3,
        "--search", "random", "--seed", 1, "--executor", "joblib", "--workers", 1,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    study = hptune.study()
    found = trials(study)
    assert [trial["state"] for trial in found] == ["COMPLETE", "COMPLETE", "PRUNED"]
    steps = "SELECT trial, step FROM reports WHERE metric = 'val_accuracy' ORDER BY trial, step"
    reported = [(row["trial"], row["step"]) for row in rows(study, steps)]
    whole = [(trial, step) for trial in (0, 1) for step in range(1, 10)]
    assert reported[: len(whole)] == whole
    # The program trains on until it is told, which may be after all of its epochs.
    assert 0 < len(reported) - len(whole) <= 9
    best = json.loads(hptune("best", study, "--json").out)["best"]
    assert best["trial"] == 1
    assert best["value"] > 0.9

    # Its checkpoint is kept, and the program continues from it.
    checkpoint = study / "best" / "checkpoint"
    assert {path.name for path in checkpoint.iterdir()} == {"epoch", "9.params", "9.states"}
    values = [f"--{name}={value}" for name, value in best["params"].items()]
    continued = subprocess.run(
        [python, PROGRAM, *values, "--epochs=10"],
        env={**KNOWN, "HPTUNE_CHECKPOINT_DIR": str(checkpoint)},
        capture_output=True,
        text=True,
        check=True,
    )
    (line,) = map(json.loads, continued.stdout.splitlines())
    assert line["epoch"] == 10
    assert line["val_accuracy"] > 0.9
