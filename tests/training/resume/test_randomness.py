"""Seeds of the frameworks that a process has loaded, and of no other."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from attempts import Attempts
from requirements import require

pytestmark = pytest.mark.keras

TENSORFLOW = """\
from types import SimpleNamespace

seeds = []
random = SimpleNamespace(set_seed=seeds.append)
experimental = SimpleNamespace(enable_op_determinism=lambda: seeds.append("deterministic"))
config = SimpleNamespace(experimental=experimental)
TensorShape = DType = TypeSpec = type("Never", (), {})
"""
DRAWS = """
import json, pathlib, sys
import keras
from hptune.training.keras.objective import save_model
from hptune.training.resume.randomness import seed_everything

sys.path.insert(0, {folder!r})  # whose TensorFlow takes no time

def draws():
    return [float(keras.random.normal(())), float(keras.initializers.RandomNormal()(()))]

def is_loaded():
    return "tensorflow" in sys.modules

def objective(hp, trial):
    trial.should_stop()  # the model file is read until here
    seed_everything(4, deterministic=False)
    seed_everything(5, deterministic=True)
    ours, loaded = draws(), [is_loaded()]
    save_model(keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)]), trial.checkpoint_dir)
    loaded.append(is_loaded())
    import tensorflow
    keras.utils.set_random_seed(5)
    print(json.dumps([ours == draws(), loaded, tensorflow.seeds]))
    return 0
"""


def test_a_trial_on_another_backend_loads_no_tensorflow(attempts: Attempts, tmp_path: Path) -> None:
    """It seeds one that is loaded later, which is then as deterministic."""
    require("torch")
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "tensorflow.py").write_text(TENSORFLOW)
    log = attempts.run(DRAWS.format(folder=str(folder))).log
    assert json.loads(log.splitlines()[-1]) == [True, [False, False], [5, "deterministic", 5]]


@pytest.mark.parametrize(
    ("name", "text", "seeds"),
    [
        ("tensorflow", TENSORFLOW, [7, "deterministic"]),
        ("torch", "seeds = []\nmanual_seed = seeds.append\n", [7]),
    ],
)
def test_what_the_training_imports_later_has_the_trials_seed(
    tmp_path: Path, name: str, text: str, seeds: list[object]
) -> None:
    """A module of the user's may import it; PyTorch would begin with another seed each time."""
    (tmp_path / f"{name}.py").write_text(text)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from hptune.training.resume.randomness import seed_everything\n"
        f"seed_everything(7, deterministic=True)\nimport {name}\nprint({name}.seeds)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(seeds)
