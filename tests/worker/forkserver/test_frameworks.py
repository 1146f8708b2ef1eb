"""Frameworks are imported once on a node if the user's code uses them, and never otherwise."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from hptune.user_code.model_file import UserCode, check_path, frameworks, save
from hptune.user_code.source import ObjectiveSource, SourceKind
from real_runs import Hptune, trials

LIGHT = ("--executor", "joblib")
NAMES = ["tensorflow", "torch", "jax", "keras", "keras_tuner", "sklearn"]


def stand_ins(hptune: Hptune) -> tuple[str, Path]:
    """Return a PYTHONPATH with a fake of every framework, and the file that records imports."""
    log = hptune.directory / "imports"
    for name in NAMES:
        package = hptune.directory / "stand_ins" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text(
            f"import os\nwith open({str(log)!r}, 'a') as log:\n"
            f"    print({name!r}, os.getpid(), file=log)\n"
            "cuda = None\ndef manual_seed(_): pass\n"
            "def set_num_threads(_): pass\nset_num_interop_threads = set_num_threads\n"
        )
    log.touch()
    paths = [str(hptune.directory / "stand_ins"), os.environ.get("PYTHONPATH", "")]
    return os.pathsep.join(filter(None, paths)), log


def test_no_process_of_a_plain_study_imports_a_framework(hptune: Hptune) -> None:
    path, log = stand_ins(hptune)
    model = hptune.file(
        "model.py",
        """
        # import keras
        RESOURCES = lambda hp: {"cpus": 1 if hp["x"] < 2 else 2}

        def objective(hp, trial):
            x = hp.Float("x", 0.0, 1.0)
            trial.report(1, value=x)
            return x
        """,
    )
    arguments = ("run", model, "--search", "bayesian", "--trials", 3, "--study", hptune.study())
    ended = hptune(*arguments, PYTHONPATH=path)
    assert ended.code == 0, ended.err
    assert len(trials(hptune.study())) == 3
    assert log.read_text() == ""


def test_a_framework_that_is_imported_in_a_function_is_imported_once(hptune: Hptune) -> None:
    path, log = stand_ins(hptune)
    model = hptune.file(
        "model.py",
        """
        def objective(hp, trial):
            import os
            from torch import cuda
            return {"value": hp.Float("x", 0.0, 1.0), "pid": os.getpid()}
        """,
    )
    ended = hptune("run", model, *LIGHT, "--trials", 3, "--study", hptune.study(), PYTHONPATH=path)
    assert ended.code == 0, ended.err
    ((name, importer),) = (line.split() for line in log.read_text().splitlines())
    assert name == "torch"
    pids = {json.loads(trial["metrics"])["pid"] for trial in trials(hptune.study())}
    assert len(pids) == 3
    assert int(importer) not in pids


def test_keras_is_imported_once_for_a_file_that_trains_something_else(hptune: Hptune) -> None:
    """hptune itself needs it, for the callback that it gives to the file's fit."""
    model = hptune.file(
        "model.py",
        """
        import sys

        OBJECTIVE = "value:max"

        class Model:
            def __init__(self, x):
                self.x, self.is_imported = x, "keras" in sys.modules

            def save(self, path):
                path.touch()

        def build_model(hp):
            return Model(hp.Float("x", 0.0, 1.0))

        def load_data():
            return None

        def fit(hp, model, data, callbacks, epochs):
            return {"value": model.x, "is_imported": model.is_imported}
        """,
    )
    ended = hptune("run", model, *LIGHT, "--trials", 1, "--study", hptune.study())
    assert ended.code == 0, ended.err
    (trial,) = trials(hptune.study())
    assert json.loads(trial["metrics"])["is_imported"] == 1


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("import numpy\n# import keras\nkeras = 3\n'''import jaxtyping'''\n", ()),
        ("import keras\nfrom keras import layers\n", ("keras",)),
        ("if f:\n\timport torch.nn as nn\nif g:\n    from jax import numpy\n", ("torch", "jax")),
        (
            "from keras_tuner import HyperModel\nimport tensorflow as tf",
            ("keras_tuner", "tensorflow"),
        ),
        ("import torchvision\nfrom kerastuner import x\n", ()),
    ],
)
def test_what_a_file_imports(tmp_path: Path, text: str, names: tuple[str, ...]) -> None:
    file = tmp_path / "model.py"
    file.write_text(text)
    assert frameworks(check_path(file)) == names


def test_what_a_model_function_of_python_imports(tmp_path: Path) -> None:
    path = tmp_path / "objective.pickle"
    source = ObjectiveSource(SourceKind.PICKLE, str(path))
    save(UserCode(hypermodel=object()), path)
    assert "keras" in frameworks(source)


def test_a_trial_of_an_objective_of_python_imports_what_its_script_has_imported_no_more(
    hptune: Hptune,
) -> None:
    path, log = stand_ins(hptune)
    script = """
        import sklearn
        from hptune import Tuner

        def objective(hp, trial):
            return hp.Float("x", 0.0, 1.0) + 0 * len(sklearn.__name__)

        Tuner(objective, trials=3, executor="joblib", workers=1, quiet=True).fit()
    """
    ended = hptune.script(script, PYTHONPATH=path).wait()
    assert ended.code == 0, ended.err
    assert log.read_text().split()[::2] == ["sklearn", "sklearn"], "in the script, and for all"


def test_an_attempt_imports_nothing_that_its_fork_server_could_have(hptune: Hptune) -> None:
    """Each attempt would pay for it: NumPy's generators alone were a third of a plain one."""
    model = hptune.file(
        "model.py",
        """
        import os
        import sys

        class Recorder:
            def find_spec(self, name, path=None, target=None):
                with open("imports", "a") as log:
                    print(os.getpid(), name, file=log)

        if "hptune.worker.forkserver.server" in sys.orig_argv:
            sys.meta_path.insert(0, Recorder())

        def objective(hp, trial):
            with open("imports", "a") as log:
                print(os.getpid(), "objective", file=log)
            return hp.Float("x", 0.0, 1.0)
        """,
    )
    ended = hptune("run", model, *LIGHT, "--trials", 1, "--study", hptune.study())
    assert ended.code == 0, ended.err
    lines = [line.split() for line in (hptune.directory / "imports").read_text().splitlines()]
    attempt = next(pid for pid, name in reversed(lines) if name == "objective")
    assert [name for pid, name in lines if pid == attempt] == ["objective"]
    assert "numpy.random" in {name for _, name in lines}
