"""Which function, class or object of a model file is tuned."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from hptune import Tuner, UsageError
from hptune.core.goals import objective_texts
from hptune.errors import ModelFileError
from hptune.user_code.model_file import UserCode, load
from hptune.user_code.source import ObjectiveSource, SourceKind
from in_process import InProcess
from real_runs import trials


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., UserCode]]:
    """Reads a model file in this process, with a stand-in for KerasTuner."""
    stand_in = ModuleType("keras_tuner")
    text = """
    class HyperModel:
        def build(self, hp): ...
        def fit(self, hp, model, *args, **kwargs): ...
    class HyperParameters:
        def get_config(self): return {"space": []}
    class Tuner:
        def __init__(self, *args, **kwargs): ...
    class RandomSearch(Tuner): ...
    class Objective:
        def __init__(self, name, direction): self.name, self.direction = name, direction
    """
    exec(textwrap.dedent(text), vars(stand_in))
    monkeypatch.setitem(sys.modules, "keras_tuner", stand_in)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = set(sys.modules)

    def read(text: str, entry: str = "", **others: str) -> UserCode:
        for name, content in others.items():
            (tmp_path / f"{name}.py").write_text(textwrap.dedent(content))
        path = tmp_path / f"model_{len(list(tmp_path.iterdir()))}.py"
        path.write_text("import keras_tuner as kt\n" + textwrap.dedent(text))
        return load(ObjectiveSource(SourceKind.FILE, str(path), entry))

    yield read
    for name in set(sys.modules) - before:
        del sys.modules[name]


BUILDER = "def {}(hp): return 1\n"
OBJECTIVE = "def objective(hp, trial): return 1\n"
MAKES_A_STUDY = """\
import optuna
def main(): make().optimize(print)
def make(): return optuna.create_study()
"""
HYPERMODEL = "class {}(kt.HyperModel):\n    def build(self, hp): return 1\n"


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (BUILDER.format("model_builder"), "model_builder"),
        ("build_cnn = lambda hp: 1\n", "build_cnn"),
        ("def make(hps: kt.HyperParameters, width=3): return 1\n", "make"),
        ("def make(given: 'kt.HyperParameters'): return 1\n", "make"),
        ("from functools import partial\ndef _f(n, hp): return 1\nmake = partial(_f, 3)", "make"),
        ("if True:\n    def build_cnn(hp): return 1\n", "build_cnn"),
        ("def build_model(parameters): return 1\n", "build_model"),
        ("def tune(hp, trial): return 1\n", "tune"),
        ("def objective(hp, trial=None): return 1\n", "objective"),
        # objective comes first, then a HyperModel, then build_model, then another function.
        ("def objective(hp, trial): return build_model(hp)\n" + BUILDER.format("build_model"),
         "objective"),
        (BUILDER.format("build_model") + BUILDER.format("train"), "build_model"),
        (OBJECTIVE + "def run(hp, trial): return 1\n", "objective"),
        (HYPERMODEL.format("Mine") + "mine = Mine()\ndef show(hp): mine.build(hp)\n", "mine"),
        (BUILDER.format("build_model") + "class Mine(kt.HyperModel):\n"
         "    def build(self, hp): return build_model(hp)\n", "Mine"),
        ("def train(hp): return make().fit()\n", "train"),
        # A name with an underscore is a helper's.
        ("def net(hp): return [_layers(hp) for _ in 'ab']\n" + BUILDER.format("_layers"), "net"),
        ("def tune(hp, trial): return _run(hp, trial)\ndef _run(hp, trial): return 1\n", "tune"),
        (BUILDER.format("net")
         + "def fit(hp, model, data, callbacks, epochs): return net(hp).fit()\n", "net"),
        ("def make(hp):\n    scaler.fit()\n    net(hp).compile()\n", "make"),
        ("def build_model(n_features, depth): return 1\n" + OBJECTIVE, "objective"),
        ("def build_model(n_features): return 1\n" + HYPERMODEL.format("Mine"), "Mine"),
        ("def load_data(hp): return 1\ndef RESOURCES(hp): return 1\n" + OBJECTIVE, "objective"),
        (HYPERMODEL.format("Base") + "class Mine(Base): ...\n", "Mine"),
        ("from typing import *\nclass P(Protocol): ...\n" + HYPERMODEL.format("Mine"), "Mine"),
        (f"{HYPERMODEL.format('Mine')}    def __init__(self, n): ...\nmine = Mine(3)\n", "mine"),
        # What the file defines comes before what it imports.
        ("from other import theirs\n" + OBJECTIVE, "objective"),
        ("from other import theirs\n" + HYPERMODEL.format("Mine"), "Mine"),
        ("from other import theirs\n", "theirs"),
        ("from other import *\n", "theirs"),
        ("from other import build_cnn\n", "build_cnn"),
        ("from other import *\ndef net(hp): return 1\n", "net"),
        ("from other import build_cnn as _cnn\n" + OBJECTIVE, "objective"),
        # A name that is imported and bound again, or imported where nothing runs, is its own.
        ("from other import build_cnn\n_cnn = build_cnn\n" + BUILDER.format("build_cnn"),
         "build_cnn"),
        (BUILDER.format("build_model") + BUILDER.format("layers")
         + "def main():\n    from model import build_model\n", "build_model"),
        ("from other import build_cnn\nbuild_model = lambda hp: build_cnn(hp)\n", "build_model"),
        # Two names of one function are no choice.
        (BUILDER.format("create") + "model_fn = create\n", "create"),
    ],
)  # fmt: skip
def test_one_is_found(read: Callable[..., UserCode], text: str, taken: str) -> None:
    other = (
        "import keras_tuner as kt\nclass Theirs(kt.HyperModel):\n"
        "    def __init__(self, n): ...\n    def build(self, hp): return 1\n"
    )
    imported = "theirs = Theirs(1)\n" if "theirs" in text + taken else BUILDER.format("build_cnn")
    code = read(text, other=other + imported)
    assert (code.entry, code.notes) == (taken, ())
    assert (code.objective is None) == (taken not in ("objective", "tune"))


def test_one_of_several_is_named(read: Callable[..., UserCode]) -> None:
    two = BUILDER.format("build_mlp") + BUILDER.format("build_cnn")
    assert read(two, "build_mlp").entry == "build_mlp"
    assert read(BUILDER.format("build_model") + OBJECTIVE, "build_model").objective is None


@pytest.mark.parametrize(
    ("text", "entry", "words"),
    [
        ("class Mine(kt.HyperModel):\n    def __init__(self, n, k=1): ...\n", "",
         ["the class Mine needs arguments (n)", "hypermodel = Mine(n=…)"]),
        ("class Mine(kt.HyperModel):\n    def __init__(self, n, k=1): ...\n", "Mine",
         ["the class Mine needs arguments (n)"]),
        ("class Mine(kt.RandomSearch):\n    def run_trial(self, trial): ...\n", "",
         ["no entry point", "Mine.run_trial is not used", "objective(hp, trial)"]),
        ("def objective(trial): return trial.suggest_float('x', 0, 1)", "",
         ["objective(trial) is no entry point: hptune calls objective(hp, trial)", "hp.Float"]),
        ("def tune(trial): return trial.suggest_float('x', 0, 1)", "",
         ["tune(trial) is no entry point: hptune calls objective(hp, trial)", "hp.Float"]),
        ("def tune(trial): return trial.suggest_float('x', 0, 1)", "tune", ["hp.Float"]),
        ("def objective(hp): return 1", "", ["objective(hp) is no", "objective(hp, trial)"]),
        ("def build_model(hp, input_shape): ...", "",
         ["build_model(hp, input_shape) needs input_shape", "def build_model_of(hp):",
          "return build_model(hp, input_shape=…)"]),
        ("def make(hp, shape, classes): ...", "make", ["needs shape and classes"]),
        ("def main():\n    def build(hp): ...\n    build(1)\n", "", ["found the functions main()"]),
        (BUILDER.format("build_mlp") + BUILDER.format("build_cnn"), "",
         ["has 2 entry points (build_mlp, build_cnn); say with --entry NAME which"]),
        (HYPERMODEL.format("One") + HYPERMODEL.format("Two"), "", ["(One, Two); say with --entry"]),
        (BUILDER.format("build_cnn"), "build_mlp", ["has no build_mlp", "it has build_cnn"]),
        ("def make(a, b, c): ...", "make", ["make(a, b, c) is no entry point", "allowed are"]),
        ("def make(a, b, c): ...", "", ["found the functions make(a, b, c)", "--entry NAME"]),
        ("kt.RandomSearch(None).search()\n" + OBJECTIVE, "",
         ["runs a search when", ".search(…)", 'if __name__ == "__main__":', "`hptune run` runs"]),
        ("import hptune\n" + OBJECTIVE + "hptune.Tuner(objective).fit()\n", "",
         ["runs a search when", ".fit(…)", "__name__", "`python model_0.py` runs it as it is"]),
        *((f"import {search}(print)\n", "",
           ["runs a search when", f"{method}(…)", "`python model_0.py` runs it as it is"])
          for search, method in (
              ("hptune\nhptune.open_study('a').trials_to_run", ".trials_to_run"),
              ("hptune\nhptune.open_study('a').ask", ".ask"),
              ("hptune.optuna as optuna\noptuna.create_study().optimize", ".optimize"),
          )),
        *((f"{search}\n" + OBJECTIVE, "",
           ["runs a search when", ".optimize(…)", "`hptune help from-optuna`"])
          for search in (
              "import optuna\noptuna.create_study().optimize(print)",
              "from optuna import create_study\ncreate_study().optimize(print)",
              "import optuna as op\nop.load_study(study_name='a').optimize(print)",
              MAKES_A_STUDY + "main()",
          )),
    ],
)  # fmt: skip
def test_what_cannot_be_tuned_is_told(
    read: Callable[..., UserCode], text: str, entry: str, words: list[str]
) -> None:
    with pytest.raises(ModelFileError) as refused:
        read(text, entry)
    for word in words:
        assert word in refused.value.message


FIT = "def fit(model, data): return 1\n"
LOAD = "def load_data(path, size): return 1\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BUILDER.format("build_model") + FIT, "fit(model, data) takes other arguments; hptune "),
        (BUILDER.format("make") + LOAD, "load_data(path, size) takes other arguments; hptune "),
        (HYPERMODEL.format("Mine") + LOAD, "hptune calls load_data() or load_data(hp)"),
        (BUILDER.format("build_model") + "fit = 3\n", "fit is 3, which is no function; hptune"),
        (BUILDER.format("build_model") + "def load_data(path='x', *more): ...\n", ""),
        (BUILDER.format("build_model") + "def load_data(hp): ...\n", ""),
        (BUILDER.format("build_model") + "def fit(*given): ...\n", ""),
        (HYPERMODEL.format("Mine") + FIT, ""),
        (OBJECTIVE + FIT + LOAD, ""),
    ],
)
def test_functions_that_hptune_calls_take_what_it_gives(
    read: Callable[..., UserCode], text: str, said: str
) -> None:
    if not said:
        assert read(text).entry
        return
    with pytest.raises(ModelFileError) as refused:
        read(text)
    assert said in refused.value.message


def test_a_function_of_more_than_hp_is_refused_in_python() -> None:
    def build_model(hp: object, input_shape: object) -> None: ...

    with pytest.raises(UsageError, match="needs input_shape"):
        Tuner(build_model)


@pytest.mark.parametrize("entry", ["", "objective"])
def test_an_objective_may_name_its_trial_as_it_likes(
    read: Callable[..., UserCode], entry: str
) -> None:
    assert read("def objective(hp, run): return 1\n", entry).objective is not None


def test_what_has_no_effect_is_told(read: Callable[..., UserCode]) -> None:
    code = read(
        "hp = kt.HyperParameters()\nHYPERPARAMETERS = kt.HyperParameters()\n"
        "class Mine(kt.Tuner):\n    def run_trial(self, trial): ...\n" + OBJECTIVE
    )
    assert len(code.notes) == 2
    assert "HyperParameters object hp is not used" in code.notes[0]
    assert "Mine.run_trial is not used" in code.notes[1]
    used = "space = kt.HyperParameters()\nHYPERPARAMETERS = space\n"
    assert read(used + OBJECTIVE).notes == ()


def test_objectives_may_be_objects_of_keras_tuners(read: Callable[..., UserCode]) -> None:
    one = read('OBJECTIVE = kt.Objective("val_auc", "max")\n' + OBJECTIVE)
    assert one.constants["OBJECTIVE"] == "val_auc:max"
    two = read('OBJECTIVE = ["size:min", kt.Objective("val_auc", "max")]\n' + OBJECTIVE)
    assert two.constants["OBJECTIVE"] == ["size:min", "val_auc:max"]
    kind = sys.modules["keras_tuner"].Objective
    for given in (kind("auc", "up"), [kind("auc", "up")]):
        assert "auc:up" in str(objective_texts(given))
        with pytest.raises(UsageError, match="'auc:up' has the direction 'up'"):
            Tuner(lambda hp: hp, given)


def test_resumed_studies_take_the_same_one(cli: InProcess) -> None:
    """Also when the file has got a candidate that would be found first."""
    first = "def tune(hp, trial):\n    return hp.Float('x', 0, 1)\n"
    model = cli.file("model.py", first + "def other(hp, trial):\n    return hp.Int('n', 1, 2)\n")
    run = ("run", model, "--trials", "1", "--executor", "joblib", "--study", cli.study())
    ended = cli(*run, "--entry", "tune")
    assert ended.code == 0, ended.err
    model.write_text(model.read_text() + OBJECTIVE)
    ended = cli("resume", cli.study(), "--trials", "2")
    assert ended.code == 0, ended.err
    assert "entry points" not in ended.err
    assert [list(each["params"]) for each in trials(cli.study())] == [["x"], ["x"]]
    shown = cli("space", model)
    assert "0 hyperparameters" in shown.out, "of objective"
    assert "x" in cli("space", model, "--entry", "tune").out
    model.write_text(OBJECTIVE)
    ended = cli("resume", cli.study(), "--trials", "3")
    assert ended.code == 2
    assert "model.py has no tune; it has objective" in ended.err
