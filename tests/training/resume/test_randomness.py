"""Seeds of the frameworks that a process has loaded, and of no other."""

from __future__ import annotations

from pathlib import Path

from child import answer_of
from requirements import require

TENSORFLOW = """\
from types import SimpleNamespace

seeds = []
random = SimpleNamespace(set_seed=seeds.append)
experimental = SimpleNamespace(enable_op_determinism=lambda: seeds.append("deterministic"))
config = SimpleNamespace(experimental=experimental)
TensorShape = DType = TypeSpec = type("Never", (), {})
"""
SCRIPT = """
import json, pathlib, sys
import keras
from hptune.training.keras.compiled_model import check_names
from hptune.training.keras.objective import save_model
from hptune.training.resume.randomness import seed_everything

def draws():
    return [float(keras.random.normal(())), float(keras.initializers.RandomNormal()(()))]

def is_loaded():
    return "tensorflow" in sys.modules

seed_everything(4, deterministic=False)
seed_everything(5, deterministic=True)
ours, loaded = draws(), [is_loaded()]
model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(), "mse")
check_names(model)
loaded.append(is_loaded())
save_model(model, pathlib.Path(sys.argv[1]))
loaded.append(is_loaded())
import tensorflow
keras.utils.set_random_seed(5)
print(json.dumps([ours == draws(), loaded, tensorflow.seeds]))
"""


def test_a_trial_on_another_backend_loads_no_tensorflow(tmp_path: Path) -> None:
    """Nor does reading its model. It seeds one that is loaded later, which is as deterministic."""
    require("torch")
    (tmp_path / "tensorflow.py").write_text(TENSORFLOW)
    answer = answer_of(SCRIPT, str(tmp_path), KERAS_BACKEND="torch", PYTHONPATH=str(tmp_path))
    assert answer == [True, [False, False, False], [5, "deterministic", 5]]
