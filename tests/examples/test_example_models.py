"""The other examples: each has the entry points of a model file, and does what its text says."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from child import answer_of
from real_runs import Hptune, rows, trials
from recorded_trial import RecordedTrial
from requirements import require

EXAMPLES = Path(__file__).parents[2] / "examples"
SUPPORT = Path(__file__).parents[1] / "support"


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hyperparameters(**values: Any) -> Any:
    import keras_tuner

    hp = keras_tuner.HyperParameters()
    hp.values.update(values)
    return hp


@pytest.fixture(scope="module")
def digits_cnn() -> ModuleType:
    return load_example("digits_cnn")


@pytest.fixture(scope="module")
def plain_python() -> ModuleType:
    return load_example("plain_python")


class TestDigitsCnn:
    def test_data_are_the_same_every_time(self, digits_cnn: ModuleType) -> None:
        (x, y), (x_val, y_val) = digits_cnn.load_data()
        assert x.shape == (1437, 8, 8, 1)
        assert x_val.shape == (360, 8, 8, 1)
        assert (x.min(), x.max()) == (0.0, 1.0)
        assert np.bincount(y_val).min() >= 34
        again, _ = digits_cnn.load_data()
        assert (again[0] == x).all()
        assert (again[1] == y).all()

    def test_space(self, digits_cnn: ModuleType) -> None:
        hp = hyperparameters(second_block=True)
        digits_cnn.build_model(hp)
        assert {parameter.name for parameter in hp.space} == {
            *("filters", "second_block", "second_filters", "dense_units", "dropout"),
            *("optimizer", "learning_rate", "batch_size"),
        }
        inner = next(parameter for parameter in hp.space if parameter.name == "second_filters")
        assert [condition.values for condition in inner.conditions] == [[True]]

    def test_the_space_shows_a_scope_that_is_closed(self, digits_cnn: ModuleType) -> None:
        hp = hyperparameters(second_block=False)
        digits_cnn.build_model(hp)
        assert "second_filters" not in hp.values
        assert hp.inactive_scopes

    @pytest.mark.slow
    def test_good_settings_are_clearly_better_than_bad_ones(self, digits_cnn: ModuleType) -> None:
        good = {"filters": 32, "second_block": True, "second_filters": 64, "dense_units": 128}
        train, validation = digits_cnn.load_data()

        def best_accuracy(**values: Any) -> float:
            hp = hyperparameters(**values)
            model = digits_cnn.build_model(hp)
            history = model.fit(
                *train,
                validation_data=validation,
                epochs=digits_cnn.EPOCHS,
                batch_size=hp.get("batch_size"),
                verbose=0,
            ).history
            return float(max(history[digits_cnn.OBJECTIVE]))

        assert best_accuracy(optimizer="adam", learning_rate=0.003, batch_size=16, **good) > 0.97
        assert best_accuracy(optimizer="sgd", learning_rate=1e-4, batch_size=128, **good) < 0.5


class TestKerasTunerHyperModel:
    # KerasTuner 1.4 calls functions of Python and NumPy that are deprecated.
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_keras_tuner_itself_takes_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import keras_tuner

        # It imports TensorBoard even if it is not used.
        monkeypatch.setattr(keras_tuner.Tuner, "_configure_tensorboard_dir", lambda *_: None)
        example = load_example("keras_tuner_hypermodel")
        tuner = keras_tuner.RandomSearch(
            example.DiabetesModel(),
            objective=keras_tuner.Objective(example.OBJECTIVE, "min"),
            max_trials=1,
            seed=1,
            directory=tmp_path,
        )
        (x, y), validation = example.load_data()
        tuner.search(x, y, validation_data=validation, verbose=0)
        names = {parameter.name for parameter in tuner.oracle.get_space().space}
        assert names >= {"regularizer", "l2", "dropout", "hidden_layers", "batch_size", "epochs"}
        assert 0 < tuner.oracle.get_best_trials(1)[0].score < 3

    def test_its_fit_decides_the_epochs_and_the_batch_size(self) -> None:
        example = load_example("keras_tuner_hypermodel")
        hypermodel = example.DiabetesModel()
        hp = hyperparameters(epochs=5, batch_size=64, regularizer="l2")
        train, validation = example.load_data()
        history = hypermodel.fit(
            hp,
            hypermodel.build(hp),
            *train,
            validation_data=validation,
            epochs=2,
            callbacks=[],
            verbose=0,
        )
        assert len(history.epoch) == 5
        assert history.params["steps"] == 6  # 342 patients in batches of 64


class TestPlainPython:
    def test_reports_each_step_and_returns_the_last_value(
        self, plain_python: ModuleType, tmp_path: Path
    ) -> None:
        trial = RecordedTrial(tmp_path)
        result = plain_python.objective(hyperparameters(), trial)
        lengths = [metrics["length"] for _, metrics in trial.reports]
        assert [step for step, _ in trial.reports] == list(range(1, plain_python.EPOCHS + 1))
        assert result == lengths[-1]
        assert lengths == sorted(lengths, reverse=True)
        assert plain_python.OBJECTIVE == "length:min"

    def test_same_settings_same_result(self, plain_python: ModuleType, tmp_path: Path) -> None:
        first, second = (
            plain_python.objective(hyperparameters(move="reverse"), RecordedTrial(tmp_path))
            for _ in range(2)
        )
        assert first == second

    def test_leaves_when_told_to(self, plain_python: ModuleType, tmp_path: Path) -> None:
        trial = RecordedTrial(tmp_path, stop_after=3)
        plain_python.objective(hyperparameters(), trial)
        assert len(trial.reports) == 3

    def test_settings_matter(self, plain_python: ModuleType, tmp_path: Path) -> None:
        cold = hyperparameters(start_temperature=0.05, end_temperature=1e-3, move="reverse")
        hot = hyperparameters(start_temperature=10.0, end_temperature=0.1, move="swap")
        results = [plain_python.objective(hp, RecordedTrial(tmp_path)) for hp in (cold, hot)]
        assert results[0] < 6.5
        assert results[1] > 8


INTERRUPTED_AND_RESUMED = """
import importlib, json, sys
from pathlib import Path

sys.path[:0] = sys.argv[1:3]
example = importlib.import_module(sys.argv[4])
from recorded_trial import RecordedTrial
from hptune.training.hyperparameters import make_hyperparameters

place = Path(sys.argv[3])
whole = RecordedTrial(place / "whole")
first = RecordedTrial(place / "parts", stop_after=int(sys.argv[5]))
second = RecordedTrial(place / "parts")
results = []
for trial in (whole, first, second):
    trial.checkpoint_dir.mkdir(exist_ok=True)
    hp = make_hyperparameters((), json.loads(sys.argv[6]))
    results.append(example.objective(hp, trial))
print(json.dumps({
    "whole": whole.reports, "first": first.reports, "second": second.reports,
    "result": results[0], "result of two": results[2], "epochs": example.EPOCHS,
}))
"""


def interrupted_and_resumed(
    name: str, place: Path, *, after: int, **settings: float
) -> dict[str, float]:
    """Check that an example ends, if interrupted after this step, where it would have ended.

    Returns:
        Its result.
    """
    arguments = (str(EXAMPLES), str(SUPPORT), str(place), name, str(after), json.dumps(settings))
    # Several threads wait for each other on busy cores, and the batches are small.
    seen = answer_of(INTERRUPTED_AND_RESUMED, *arguments, OMP_NUM_THREADS="1")
    assert seen["result of two"] == seen["result"]
    first, second, whole = (seen[name] for name in ("first", "second", "whole"))
    assert len(first) == after
    assert first + second == whole
    assert [step for step, _ in whole] == list(range(1, seen["epochs"] + 1))
    result: dict[str, float] = seen["result"]
    return result


class TestTorchMlp:
    def test_without_torch_it_says_what_to_install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import sklearn.datasets  # noqa: F401 - SciPy fails where torch is there and cannot be imported

        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(ImportError) as caught:
            load_example("torch_mlp")
        message = str(caught.value)
        assert "needs PyTorch, which is not installed" in message
        assert "pip install torch\n" in message
        assert "--index-url https://download.pytorch.org/whl/cpu" in message

    def test_interrupted_and_resumed_it_ends_where_it_would_have(self, tmp_path: Path) -> None:
        require("torch")
        settings = {"learning_rate": 3e-3, "dropout": 0.2, "units": 64}
        result = interrupted_and_resumed("torch_mlp", tmp_path, after=7, **settings)
        assert result["val_accuracy"] > 0.95


class TestLightgbmCv:
    def test_interrupted_and_resumed_it_has_the_mean_of_the_same_folds(
        self, tmp_path: Path
    ) -> None:
        require("lightgbm")
        settings = {"trees": 50, "learning_rate": 0.1}
        result = interrupted_and_resumed("lightgbm_cv", tmp_path, after=2, **settings)
        assert result["loss"] < 0.2

    def test_trials_are_stopped_by_the_mean_of_the_folds_so_far(self, hptune: Hptune) -> None:
        require("lightgbm")
        ended = hptune(
            "run", EXAMPLES / "lightgbm_cv.py", "--study", "study", "--search", "random",
            "--seed", 1, "--pruner", "asha", "--trials", 8, "--workers", 1,
        )  # fmt: skip
        assert ended.code == 0, ended.err
        found = trials(hptune.study())
        assert {trial["state"] for trial in found} == {"COMPLETE", "PRUNED"}
        for trial in found:
            reports = rows(
                hptune.study(),
                f"SELECT step FROM reports WHERE trial = {trial['number']} ORDER BY step",
            )
            folds = [row["step"] for row in reports]
            assert folds == list(range(1, len(folds) + 1))
            assert (len(folds) == 5) == (trial["state"] == "COMPLETE")


IMPORT_THEN_FORK = """
import importlib, multiprocessing, sys

sys.path.insert(0, sys.argv[1])
examples = [importlib.import_module(name) for name in sys.argv[2:]]


def train(example):
    import keras_tuner
    import numpy as np

    build = getattr(example, "build_model", None) or example.DiabetesModel().build
    model = build(keras_tuner.HyperParameters())
    model.run_eagerly = True  # a graph takes seconds, and hangs no sooner
    # Not on its own data, which not every machine has.
    x = np.zeros((2, *model.input_shape[1:]), "float32")
    model.fit(x, np.zeros(2), verbose=0)


for example in examples:
    child = multiprocessing.get_context("fork").Process(target=train, args=(example,))
    child.start()
    child.join(200)
    if child.exitcode is None:
        child.kill()
        child.join()
        sys.exit("a forked process hangs")
    if child.exitcode != 0:
        sys.exit(f"{example} fails in a forked process")
"""


def test_importing_runs_no_tensorflow_operation() -> None:
    # A process forked after TensorFlow has run any operation hangs in its training.
    names = ["digits_cnn", "cifar10_cnn", "keras_tuner_hypermodel"]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", IMPORT_THEN_FORK, str(EXAMPLES), *names],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stderr
