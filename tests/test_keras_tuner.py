"""Scripts of KerasTuner, with one import changed or none."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from child import answer_of
from hptune import Tuner, UsageError, keras_tuner
from hptune.keras_tuner import oracle_settings
from in_process import InProcess
from real_runs import Hptune, trials
from requirements import light_backend
from stored_study import typical

LOOKED_AT = """
import json, sys
from hptune import Tuner, keras_tuner

print(json.dumps([hasattr(keras_tuner, "_mark"), "keras" in sys.modules]))
"""


def test_a_tool_that_looks_at_each_module_waits_for_no_framework() -> None:
    assert answer_of(LOOKED_AT) == [False, False]


TUTORIAL = """
    import sys
    import keras
    import numpy as np
    import keras_tuner as kt

    x = np.random.default_rng(0).normal(size=(96, 4)).astype("float32")
    y = x.sum(axis=1)

    inputs = keras.Input((4,))
    shared = keras.layers.Dense(4)
    begun = keras.layers.Rescaling(1.0)(shared(inputs))

    def model_builder(hp, width):
        more = keras.layers.Dense(hp.Int("units", 2, 8))(shared(begun))
        model = keras.Model(inputs, keras.layers.Dense(1)(more))
        assert len(model.layers) == 5, "one graph, with a layer that it has twice"
        sgd = keras.optimizers.SGD(hp.Choice("rate", [0.01, 0.001]))
        model.compile(sgd, "mse", metrics=["mae"])
        return model

    def main():
        tuner = kt.Hyperband(lambda hp: model_builder(hp, 4), "val_mae", 3, directory="mine",
                             seed=1)
        tuner.search_space_summary()
        stop = keras.callbacks.EarlyStopping(patience=3)
        for _ in range(2):  # the second search has nothing left to do
            tuner.search(x[:64], y[:64], epochs=50, validation_split=0.25, callbacks=[stop])
        tuner.results_summary()
        best = tuner.get_best_hyperparameters(1)[0]
        assert best.get("units") == best["units"] == best.values["units"]
        assert isinstance(best, kt.HyperParameters)
        model = tuner.get_best_models(1)[0]
        held_out = model.evaluate(x[48:64], y[48:64], verbose=0)[1]
        first = tuner.oracle.get_best_trials(1)[0]
        tuner.hypermodel.build(best).save("built.keras")
        print("ARGUMENTS", sys.argv)
        print("RESULT", held_out, first.score, isinstance(tuner, kt.Hyperband), __file__)

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    ("before", "code"),
    [
        ("", ""),
        ("", "import importlib.util\nassert importlib.util.find_spec('keras_tuner')\n"),
        ("", "import keras_tuner.tuners\n"),
        ("import keras_tuner\n", ""),
    ],
)
def test_a_script_gets_these_tuners_however_it_imports_them(
    tmp_path: Path, before: str, code: str
) -> None:
    package = tmp_path / "keras_tuner"
    package.mkdir()
    names = ("HyperModel", "HyperParameters", "Objective", *keras_tuner.__all__)
    (package / "tuners.py").write_text("".join(f"class {name}: ...\n" for name in names))
    (package / "__init__.py").write_text("from keras_tuner.tuners import *\n")
    script = tmp_path / "script.py"
    script.write_text(f"{code}import keras_tuner\nprint(keras_tuner.RandomSearch.__module__)\n")
    run = "from hptune.keras_tuner.script import run_script\n"
    run += f"import pathlib\nrun_script(pathlib.Path({str(script)!r}), {{}})\n"
    ended = subprocess.run(
        [sys.executable, "-c", before + run],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.stdout == "hptune.keras_tuner\n", ended.stderr


def test_a_script_runs_unchanged(hptune: Hptune) -> None:
    (hptune.directory / "script.py").write_text(textwrap.dedent(TUTORIAL))
    project = hptune.directory / "mine" / "untitled_project"
    (project / "trial_0").mkdir(parents=True)
    for name in ("oracle.json", "trial_0/trial.json"):
        (project / name).write_text("{}")
    own = ("--", "--tune", "--seed", "9")
    options = ("--seed", "2", "--workers", "1", *own)
    ended = hptune("run", "script.py", *options, KERAS_BACKEND=light_backend())
    assert ended.code == 0, ended.err
    assert "ARGUMENTS ['script.py', '--tune', '--seed', '9']" in ended.out
    assert "mine/untitled_project has 1 trial of KerasTuner, which this study does" in ended.err
    assert "`--warm-start mine/untitled_project` (in Python `warm_start=`)" in ended.err
    assert ended.err.startswith("script.py is run as it is, with hptune in place of KerasTuner")
    assert "2 hyperparameters" in ended.out
    measured, score = map(float, ended.out.partition("RESULT ")[2].split()[:2])
    assert measured == pytest.approx(score, abs=1e-6), "the best model is that of the best trial"
    assert "True script.py" in ended.out
    assert "nothing is left to do: 5 of 5 trials" in ended.err
    assert "hptune resume mine/untitled_project --trials 10" in ended.err
    found = trials(project)
    assert len(found) == 5
    assert (hptune.directory / "built.keras").exists()


CALLS = """
    import json
    import warnings
    from pathlib import Path
    from hptune import HptuneError, UsageError
    from hptune import keras_tuner as kt
    from hptune.keras_tuner.oracle_settings import _hyperband

    class Model(kt.HyperModel):
        def build(self, hp):
            return hp.Int("units", 1, 9)

        def fit(self, hp, model, x, **kwargs):
            self.count = getattr(self, "count", 0) + 1
            return float(model + self.count * x[0])

    class More(Model):
        def fit(self, hp, model, x, y, more, **kwargs):
            return float(model + x[0] + y[0] + more[0])

    class Failing(Model):
        def build(self, hp):
            units = super().build(hp)
            return units if units < 5 else 1 / 0

    class NeverAgain(Model):
        def fit(self, hp, model, x, **kwargs):
            Path("begun").touch(exist_ok=False)
            return 1.0

    class Own(kt.RandomSearch):
        def run_trial(self, trial): ...

    class Watching(kt.GridSearch):
        def on_trial_end(self, trial): ...

    class Oracle(kt.oracles.RandomSearchOracle): ...

    said = {}
    for name, call in {
        "run_trial": lambda: Own(Model()),
        "on_": lambda: Watching(Model()),
        "oracle": lambda: kt.Tuner(Oracle(), Model()),
        "sklearn": lambda: kt.SklearnTuner(None, Model()),
        "nothing": lambda: kt.RandomSearch(),
        "setting": lambda: kt.RandomSearch(Model(), prunner="asha"),
        "argument": lambda: kt.RandomSearch(Model(), max_trial=3),
    }.items():
        try:
            call()
        except UsageError as error:
            said[name] = error.message
    same = []
    for epochs in (2, 3, 4, 9, 10, 27, 30, 81, 100, 243):
        for factor in (2, 3, 4):
            oracle = kt.oracles.HyperbandOracle("val_loss", epochs, factor)
            ours, brackets = _hyperband(oracle, {}), oracle._get_num_brackets()
            sizes = [oracle._get_size(each, 0) for each in range(brackets)]
            first = oracle._get_epochs(brackets - 1, 0) if brackets > 1 else None
            same.append(ours["trials"] == sum(sizes) and ours.get("min_epochs") == first
                        and ours.get("brackets", 1) == brackets)
    settings = {"executor": "joblib", "directory": "mine", "project_name": "it"}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        oracle = kt.oracles.BayesianOptimizationOracle(max_trials=2, beta=1.0)
        tuner = kt.Tuner(oracle, Model(), executions_per_trial=3, overwrite=True, **settings)
        tuner.search([1.0])
        tuner.reload()
        best = tuner.get_best_hyperparameters()[0]["units"]
        value = tuner.study.best_trial.value
        models = tuner.get_best_models(2)
        again = kt.Tuner(kt.oracles.RandomSearchOracle(max_trials=2), Model(), **settings)
        reloaded = [each.score for each in again.oracle.get_best_trials()]
        fewer = kt.oracles.BayesianOptimizationOracle(max_trials=1)  # than the study has
        kt.Tuner(fewer, Model(), **settings).search([1.0], verbose=0)
        tuner = kt.GridSearch(Failing(), max_trials=9, max_consecutive_failed_trials=9,
                              **{**settings, "project_name": "failing"})
        tuner.search([1.0], verbose=0)
        states = [str(trial.state) for trial in tuner.study.trials]
        left = states.count("FAILED"), tuner.remaining_trials
        try:
            fails = {**settings, "project_name": "never", "trials": 5}
            kt.GridSearch(NeverAgain(), max_trials=9, **fails).search([1.0])
        except HptuneError as error:
            never = kt.GridSearch(Model(), max_trials=9, **fails)
            left += error.message, never.remaining_trials + len(never.study.trials)
        grid = kt.GridSearch(More(), max_trials=3, overwrite=True, constraints=["objective>7"],
                             **settings)
        grid.search([1.0], [2.0], [3.0], verbose=0)
    print(json.dumps([said, same, [str(each.message) for each in warned], value - best,
                      reloaded == [value], left,
                      [[trial.params["units"], trial.value] for trial in grid.study.trials],
                      [each.score for each in grid.oracle.get_best_trials(3)],
                      [*grid.oracle.trials]]))
"""


@pytest.mark.tensorflow
def test_calls_mean_what_they_mean_in_keras_tuner(cli: InProcess) -> None:
    ended = cli.script(CALLS)
    assert ended.code == 0, ended.err
    said, same, warned, mean, is_reloaded, left, found, kept, order = json.loads(
        ended.out.splitlines()[-1]
    )
    assert order == ["0", "1", "2"]
    assert "Own.run_trial is not used" in said["run_trial"]
    assert 'batch_size=hp.Int("batch_size"' in said["run_trial"]
    assert "Watching.on_trial_end would not be called" in said["on_"]
    assert "the oracle is a Oracle" in said["oracle"]
    assert "objective(hp, trial)" in said["sklearn"]
    assert "RandomSearch has no hypermodel" in said["nothing"]
    assert "no argument 'prunner'" in said["setting"]
    assert (
        said["argument"]
        == "RandomSearchOracle has no argument 'max_trial'; did you mean max_trials?"
    )
    assert all(same), same
    assert "hptune does not use beta" in warned
    advice = "build(tuner.get_best_hyperparameters(2)[1]).fit("
    assert [advice in each for each in warned if "is left out" in each] == [False, True], warned
    assert any("with confirm=5 in place of executions_per_trial" in each for each in warned)
    assert (mean, is_reloaded) == (2.0, True), "of three trainings, which add 1, 2 and 3"
    assert found == [[1, 7.0], [2, 8.0], [3, 9.0]], "the second search has replaced the first"
    assert kept == [8.0, 9.0, 7.0], "the one that breaks a constraint is the last"
    failed, none_left, error, in_all = left
    assert (failed, none_left) == (5, 0), "as in KerasTuner, which counts failed trials"
    assert "`Tuner(..., project_name='never', retry_failed=True).search(...)`" in error
    assert in_all == 5, "as the settings say, which come before the script"


AFTER_SEARCH = """
import keras_tuner as kt

class Model(kt.HyperModel):
    def build(self, hp):
        return hp.Int("units", 1, 9)

    def fit(self, hp, model, x, **kwargs):
        return float(model)

if __name__ == "__main__":
    tuner = kt.RandomSearch(Model(), max_trials=1, executor="joblib")
    tuner.search([1.0], verbose=0)
    print(1 / 0)
"""


def test_what_a_script_lacks_is_said(hptune: Hptune) -> None:
    script = hptune.directory / "script.py"
    begin = "def run():\n    import keras_tuner as kt\n    kt.RandomSearch(print).search()\n"
    for more, words in (
        ("", "has ended without a search"),
        ("\n\nraise ValueError('mine')\n", "script.py: ValueError: mine"),
        ("\n\nrun()\n", 'script.py", line 3, in run'),
    ):
        script.write_text(begin + more)
        ended = hptune.start("run", "script.py").wait()
        assert ended.code == 2
        assert words in ended.err
        assert "tuner/hptune" not in ended.err
    script.write_text(AFTER_SEARCH)
    failed = hptune.start("run", "script.py").wait()
    assert failed.code == 1, "the search is over, so the script is not to blame as a whole"
    assert "script.py: ZeroDivisionError" in failed.err
    assert "print(1 / 0)" in failed.err
    search, rest = "    tuner.search([1.0], verbose=0)\n    print(1 / 0)", "    tuner.reload()"
    script.write_text(AFTER_SEARCH.replace(search, rest))
    shown = hptune.start("run", "script.py").wait()
    assert (shown.code, "Error" in shown.err) == (0, False), "it shows what was searched before"
    own = 'max_trials=2, executor="joblib", project_name="second", overwrite=True'
    script.write_text(
        AFTER_SEARCH.replace("print(1 / 0)", f"kt.GridSearch(Model(), {own}).search(1)")
    )
    both = hptune.start("run", "script.py", "--study", "first").wait()
    counts = [len(trials(hptune.directory / name)) for name in ("first", "second")]
    assert (both.code, counts) == (0, [1, 2]), both.err
    refused = hptune.start("run", "script.py", "--detach").wait()
    assert (refused.code, "--detach is given, but script.py" in refused.err) == (2, True)


def test_an_objective_has_the_direction_that_its_name_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """KerasTuner minimises each of Keras's metrics that its own list lacks."""
    library = SimpleNamespace(Objective=lambda name, direction: f"{name}:{direction}")
    monkeypatch.setattr(oracle_settings, "library", lambda: library)
    directed = oracle_settings.directed
    given = ["val_f1_score", "val_loss", "val_mean_io_u"]
    assert directed(given) == ["val_f1_score:max", "val_loss:min", "val_mean_io_u:max"]
    assert directed("glossiness") == "glossiness"  # KerasTuner asks for a direction
    assert directed(None) is None
    of_oracle = SimpleNamespace(name="val_f1_score", direction="min")
    with pytest.warns(UserWarning, match="optimised towards min, as the oracle says"):
        assert oracle_settings._objective(of_oracle) == "val_f1_score:min"


@pytest.mark.parametrize("given", [{}, {"batch_size": 16}])
def test_each_training_of_a_trial_has_its_batch_size(given: dict[str, int]) -> None:
    trained: list[object] = []
    model = SimpleNamespace(fit=lambda *_, **keywords: trained.append(keywords["batch_size"]))
    repeated = keras_tuner._Repeated(SimpleNamespace(build=lambda _: model), 2)
    repeated.fit(SimpleNamespace(known_values={"batch_size": 8}), model, [1.0], **given)
    assert trained == [8, 8]


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        ("interrupted before the study began", "interrupted before the study began"),
        (
            "interrupted: 1/2 trials. Continue with: a call",
            "interrupted: 1/2 trials. The same script continues the study in out/one",
        ),
    ],
)
def test_an_interrupted_search_says_what_continues_it(
    monkeypatch: pytest.MonkeyPatch, heard: str, said: str
) -> None:
    def fit(*_: object, **__: object) -> None:
        raise KeyboardInterrupt(heard)

    monkeypatch.setattr(Tuner, "fit", fit)
    tuner = keras_tuner.RandomSearch(lambda hp: hp, "val_loss", directory="out", project_name="one")
    with pytest.raises(KeyboardInterrupt) as caught:
        tuner.search([1.0], [1.0])
    assert str(caught.value) == said


def _search(folder: Path, **given: Any) -> keras_tuner.RandomSearch:
    return keras_tuner.RandomSearch(
        lambda hp: hp, "val_loss", directory=folder, project_name="one", **given
    )


@pytest.mark.parametrize("wrong", [{"prunner": "asha"}, {"trials": 0}, {"max_jobs": 3}])
def test_a_study_is_removed_only_for_one_that_can_begin(
    tmp_path: Path, wrong: dict[str, object]
) -> None:
    study = typical(tmp_path / "one")
    with pytest.raises(UsageError, match=next(iter(wrong))):
        _search(tmp_path, overwrite=True, **wrong)
    assert study.has_ledger
    study.database.write_text("damaged")
    _search(tmp_path, overwrite=True)
    assert not study.path.exists()


@pytest.mark.parametrize(
    ("own", "all_of_them"),
    [
        ({}, ["params<=9"]),
        ({"constraints": "val_mae<1"}, ["val_mae<1", "params<=9"]),
        ({"constraints": ["val_mae<1", "seconds_per_epoch<2"]},
         ["val_mae<1", "seconds_per_epoch<2", "params<=9"]),
    ],
)  # fmt: skip
def test_a_model_size_is_one_of_the_constraints(
    tmp_path: Path, own: dict[str, Any], all_of_them: list[str]
) -> None:
    tuner = _search(tmp_path, max_model_size=9, resume=True, **own)
    assert tuner._settings["constraints"] == all_of_them


@pytest.mark.parametrize("asked_for", [None, 5])
def test_a_seed_that_is_asked_for_is_compared_with_that_of_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked_for: int | None
) -> None:
    """An oracle draws another one each time."""
    typical(tmp_path / "one")
    if asked_for is not None:
        monkeypatch.setitem(keras_tuner.script_settings, "seed", asked_for)
    tuner = _search(tmp_path)
    assert ("seed=" in repr(tuner._tuner(tuner._path))) == (asked_for is not None)
