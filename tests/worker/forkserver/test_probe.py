"""Reading the user's file in a child: what it declares, or what is wrong with it."""

from __future__ import annotations

import contextlib
import itertools
import sys
from pathlib import Path
from typing import Any

import pytest

from attempts import Attempts
from hptune.cli.output import show_error
from hptune.core.space.space import SearchSpace
from hptune.errors import ModelFileError
from hptune.user_code.model_file import check_path
from hptune.user_code.source import Found
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.orders import ProbeOrder
from requirements import require

GOOD = """\
def objective(hp, trial):
    return hp.Float("x", 0, 1)
"""


@pytest.fixture
def probe(attempts: Attempts) -> Any:
    return attempts.probe


# One message, and nothing of the user's to show.
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "def train(): pass",
            ["no entry point", "found the functions train", "build_model(hp)", "HyperModel",
             "objective(hp, trial)"],
        ),
        ("build_model = 3", ["no entry point", "found no function"]),
        ("x = 1\ndef f(:", ["model.py:2: SyntaxError: invalid syntax: def f(:"]),
        ("import os; os._exit(3)", ["exited with status 3", "must not end the process"]),
        ("import os; os.kill(os.getpid(), 11)", ["SIGSEGV", "must not end the process"]),
        ("def objective(hp, trial): hp.Float('x', 0, 1)", ["objective() returned None"]),
        ("def tune(hp, trial): return 1\ndef other(hp, trial): hp.Float('x', 0, 1)",
         ["model.py has 2 entry points (tune, other); say with --entry NAME which one"]),
        ("def objective(hp): return 1", ["objective(hp) is no entry point: hptune calls"]),
        (f"EPOCHS = 'three'\n{GOOD}", ["EPOCHS is 'three'", "a whole number"]),
        (f"EPOCHS = True\n{GOOD}", ["EPOCHS is True", "a whole number"]),
        (f"OBJECTIVE = 3\n{GOOD}", ["OBJECTIVE is 3", "name of a metric"]),
        (f"DIRECTION = 'max'\n{GOOD}", ["DIRECTION is 'max'", "OBJECTIVE = 'value:max'"]),
        (f"HYPERPARAMETERS = 3\n{GOOD}", ["HYPERPARAMETERS is 3", "a dict of fixed values"]),
        (f"FIT = {{'batch_size': 3}}\n{GOOD}", ["FIT has no effect", "objective() trains"]),
        ("FIT = 3\ndef build_model(hp): pass", ["FIT is 3", "a dict of arguments"]),
        ("FIT = {'epoch': 3}\ndef build_model(hp): pass", ["FIT has 'epoch'", "epochs?"]),
        (f"RESOURCES = 3\n{GOOD}", ["RESOURCES is 3", "hptune.Resources"]),
    ],
)  # fmt: skip
def test_what_cannot_be_used(probe: Any, text: str, words: list[str]) -> None:
    with pytest.raises(ModelFileError) as caught:
        probe(text)
    for word in words:
        assert word in caught.value.message
    assert caught.value.detail == ""


# Their own traceback, trimmed to their file, and one message.
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "def objective(hp, trial): return hp.Float('x', 0, 1) + hp.Int('x', 0, 3)",
            ["x is declared as Float 0.0..1.0 and as Int 0..3", "another name"],
        ),
        ("import json\njson.loads('{')", ["line 2", "json.loads('{')", "JSONDecodeError"]),
        (
            "import no_such_module",
            ["line 1", "No module named 'no_such_module'; install it in", f"({sys.prefix}), or"],
        ),
        ("import sys\nsys.exit('no data')", ["line 2", "SystemExit: no data"]),
        ("input('which one? ')\n", ["line 1", "EOFError"]),
        (
            "def objective(hp, trial):\n trial.report(1, 0.5)",
            [
                "line 2",
                "trial.report: too many positional arguments; write trial.report(epoch, loss",
            ],
        ),
        (
            "def objective(hp, trial):\n return hp.Int('units', 10, 1)",
            ["line 2", "units: the lower bound 10 is above the upper bound 1"],
        ),
        (
            "def objective(hp, trial):\n return hp.Float('rate', 0, 1, sampling='log')",
            ["line 2", "rate: the lower bound is 0", "log scale; it must be above 0"],
        ),
        (
            "def objective(hp, trial):\n return hp.Float('rate', 1, 2, sampling='lgo')",
            ["line 2", "rate: the sampling is 'lgo'; allowed are linear, log, reverse_log"],
        ),
        (
            "def objective(hp, trial):\n return hp.Choice('act', [])",
            ["line 2", "act: there are no choices", "at least one"],
        ),
        (
            "def objective(hp, trial):\n return hp.Choice('act', ['a', 1])",
            ["line 2", "act: the choices ['a', 1]", "one type"],
        ),
        (
            (
                "def objective(hp, trial):\n"
                " with hp.conditional_scope('deep', [True]): hp.Int('n', 1, 2)"
            ),
            ["line 2", "deep is not declared; declare it before"],
        ),
        (
            (
                "def objective(hp, trial):\n hp.Boolean('deep')\n"
                " hp.Int('n', 1, 2, parent_name='deep', parent_values=[])"
            ),
            ["line 3", "a condition on deep has no values"],
        ),
    ],
)
def test_what_the_users_code_raises(
    probe: Any, text: str, words: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelFileError) as caught:
        probe(text)
    assert "model.py cannot be used" in caught.value.message
    capfd.readouterr()
    show_error(caught.value)
    shown = capfd.readouterr().err
    for word in words:
        assert shown.count(word) == 1, "said once, in the message or in the frames"
    assert "direct cause" not in text
    files = [line for line in caught.value.detail.splitlines() if line.startswith('  File "')]
    assert ["model.py" in line for line in files] == [True]


def names(found: Found) -> set[str]:
    return {parameter.name for parameter in SearchSpace.from_json(found.space)}


def test_an_objective_is_read_up_to_its_first_report(probe: Any) -> None:
    found = probe("""
        EPOCHS, OBJECTIVE = 3, "value:max"

        def objective(hp, trial):
            x = hp.Float("x", 0, 1)
            try:
                trial.report(1, value=x)
            except Exception:
                pass
            raise SystemError("it trained")
    """)
    assert (found.is_keras, names(found)) == (False, {"x"})
    assert dict(found.constants) == {"EPOCHS": 3, "OBJECTIVE": "value:max"}


def test_an_objective_may_ask_whether_it_continues_before_it_declares_anything(probe: Any) -> None:
    found = probe("""
        def objective(hp, trial):
            start = trial.resumed_from or 0
            is_new = trial.is_first_attempt and trial.halt is None
            for step in range(start, hp.Int("steps", 1, 3)):
                trial.report(step, value=hp.Float("x", 0, 1))
    """)
    assert names(found) == {"steps", "x"}


def test_the_branches_of_an_objective_are_opened(probe: Any) -> None:
    found = probe("""
        def objective(hp, trial):
            rate = hp.Float("rate", 0, 1)
            if hp.Boolean("deep"):
                rate += hp.Float("drop", 0.0, 0.5)
            if hp.Choice("head", ["flat", "pool"]) == "pool":
                rate += hp.Int("size", 1, 3)
                with hp.conditional_scope("head", ["flat"]):
                    hp.Int("flat", 1, 3)
                assert "flat" not in hp
                raise SystemError("this branch is broken, which is its trials' affair")
            for i in range(hp.Choice("layers", [1, 2, 4])):
                hp.Int(f"units_{i}", 1, 8)
            trial.report(1, value=rate)
            raise SystemError("it trained")
    """)
    assert names(found) == {
        "rate", "deep", "drop", "head", "size", "flat", "layers",
        "units_0", "units_1", "units_2", "units_3",
    }  # fmt: skip
    assert found.is_complete


def test_members_of_an_enum_are_read_without_their_class(probe: Any) -> None:
    found = probe("""
        import enum

        class Word(enum.StrEnum):
            ADAM, LOSS = "adam", "loss"

        class Whole(enum.IntEnum):
            ONE = 1

        OBJECTIVE, EPOCHS = [Word.LOSS], Whole.ONE
        RESOURCES = {"cpus": Whole.ONE}

        def objective(hp, trial):
            with hp.conditional_scope(hp.Choice("p", [Word.ADAM]) and "p", [Word.ADAM]):
                hp.Fixed("q", Whole.ONE)
            trial.report(1, loss=0.5)
    """)
    space = [(each.name, each.values) for each in SearchSpace.from_json(found.space)]
    assert repr(space) == "[('p', ('adam',)), ('q', (1,))]"
    read = {"OBJECTIVE": ("loss",), "EPOCHS": 1, "RESOURCES": {"cpus": 1}}
    assert repr(dict(found.constants)) == repr(read)


def test_the_branches_of_choices_with_none_are_opened(probe: Any) -> None:
    found = probe("""
    def objective(hp, trial):
        if hp.Choice("head", [None, "pool"]) == "pool":
            hp.Float("pooled", 0, 1)
        if hp.Choice("clip", [0.5, None]) is None:
            hp.Float("unclipped", 0, 1)
        for i in range(hp.Choice("layers", [None, 1, 3]) or 0):
            hp.Float(f"width{i}", 0, 1)
        trial.report(1, value=0.5)
    """)
    assert names(found) >= {"pooled", "unclipped", "width0", "width2"}


def test_a_count_within_a_branch_is_opened(probe: Any) -> None:
    """With and without a scope; otherwise a grid would be smaller than the space."""
    found = probe(
        """
        def objective(hp, trial):
            if hp.Choice("kind", ["shallow", "deep"]) == "deep":
                with hp.conditional_scope("kind", ["deep"]):
                    count = hp.Int("count", 1, 3)
                    for i in range(count):
                        with hp.conditional_scope("count", list(range(i + 1, 4))):
                            hp.Int(f"units_{i}", 1, 2)
            if hp.Choice("head", ["flat", "pool"]) == "pool":
                for i in range(hp.Int("pools", 1, 2)):
                    if hp.Boolean(f"batch_{i}"):
                        hp.Int(f"width_{i}", 1, 2)
            trial.report(1, value=1.0)
        """
    )
    assert names(found) >= {"units_0", "units_1", "units_2", "width_0", "width_1"}
    assert found.is_complete


def test_declarations_of_the_file_come_before_those_of_the_function(probe: Any) -> None:
    text = """
        from hptune import HyperParameters

        HYPERPARAMETERS = HyperParameters()
        HYPERPARAMETERS.Fixed("fixed", 3)
        HYPERPARAMETERS.Choice("narrow", [2, 4])

        def objective(hp, trial):
            hp.get("fixed")
            return hp.Int("fixed", 1, 9) + hp.Int("narrow", 1, 9) + hp.Float("new", 0, 1)
    """

    def bounds(text: str) -> list[str]:
        return [each.bounds for each in SearchSpace.from_json(probe(text).space)]

    assert bounds(text) == ["Fixed 3", "Choice of 2, 4", "Float 0.0..1.0"]
    assert bounds(f"{text}\n        TUNE_NEW_ENTRIES = False")[-1] == "Fixed 0.0"
    assert bounds(f"{text}\n        HYPERPARAMETERS = {{'fixed': 1}}")[0] == "Fixed 1"


def test_an_objective_that_trains_is_called_once(probe: Any, tmp_path: Path) -> None:
    found = probe(f"""
        import pathlib, time

        def objective(hp, trial):
            with pathlib.Path({str(tmp_path / "calls")!r}).open("a") as calls:
                calls.write("x")
            deep = hp.Boolean("deep")
            time.sleep(0.6)
            return float(deep)
    """)
    assert (tmp_path / "calls").read_text() == "x"
    assert (names(found), found.is_complete) == ({"deep"}, False)


def test_an_objective_that_fails_after_its_declarations_is_a_trials_affair(probe: Any) -> None:
    for ending in ("raise ValueError", "import os; os._exit(3)", "import sys; sys.exit(3)"):
        found = probe(f"""
            def objective(hp, trial):
                x = hp.Float("x", 0, 1)
                {ending}
        """)
        assert names(found) == {"x"}


@pytest.mark.timeout(100)  # a server that seems to import is waited for longer
def test_a_process_that_the_file_forks_does_not_hide_the_death_of_the_server(probe: Any) -> None:
    with pytest.raises(ModelFileError, match="killed by SIGKILL"):
        probe("""
            import os, signal, time
            imports, waits = os.getpid(), not os.fork()
            if waits:
                while os.getppid() == imports:
                    time.sleep(0.01)
                signal.alarm(200)
                signal.pause()
            os.kill(imports, signal.SIGKILL)
        """)


def test_a_declaration_without_effect_is_told_once(probe: Any) -> None:
    found = probe("""
import hptune

HYPERPARAMETERS = hptune.HyperParameters()
HYPERPARAMETERS.Int("given", 1, 2)

def objective(hp, trial):
    hp.Int("given", 1, 9)  # as intended
    hp.Int("units", 1, 8)
    hp.Int("units", 1, 8, default=3)
    hp.Int("units", 2, 16)
    hp.Choice("size", [1, 2, 2])
    hp.Float(5, 0, 1)
    hp.Int("width", 2, 4, step=3)
    hp.Boolean("again")
    trial.should_stop()
""")
    first, *others = found.warnings
    assert first.startswith("units is declared as Int 1..8, and again as Int 2..16, which has no")
    assert others == [
        "size: 2 is given twice; it counts once",
        (
            "the name of a hyperparameter is 5, which is no text; it is called '5' (the name "
            "comes first, then its values)"
        ),
        "width: the step 3 is larger than the range, so 2 is its only value",
    ]


def test_a_choice_of_lists_is_refused_with_what_is_allowed(probe: Any) -> None:
    with pytest.raises(ModelFileError, match=r"units: \[64, 32\] is not allowed as a value; give"):
        probe("def objective(hp, trial):\n    return hp.Choice('units', [[64, 32], [128]])\n")


def test_a_hyperparameter_that_is_missing_may_be_one_of_the_files(probe: Any) -> None:
    with pytest.raises(ModelFileError, match=r"units does not exist.*HYPERPARAMETERS"):
        probe("def objective(hp, trial):\n    return hp.get('units')\n")


@pytest.mark.parametrize("of_module", ["import mlflow", ""], ids=["in the module", "in a function"])
def test_reading_the_code_leaves_no_run_in_mlflow_or_weights_and_biases(
    attempts: Attempts, tmp_path: Path, of_module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    require("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    text = f"""
    import os
    os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
    OBJECTIVE = "loss:min"
    {of_module}

    def objective(hp, trial):
        {"" if of_module else "import mlflow"}
        mlflow.set_tracking_uri("{tmp_path}/runs")
        with mlflow.start_run():
            mlflow.log_param("mode", os.environ.get("WANDB_MODE"))
            if hp.Boolean("deep"):
                hp.Int("layers", 1, 3)
            trial.report(1, loss=0.5)
        return 0.5
    """
    found = attempts.probe(text)
    assert "layers" in str(found.space)
    import mlflow

    client = mlflow.MlflowClient(f"{tmp_path}/runs")
    assert client.search_runs(["0"]) == []
    (left, *_) = client.search_runs(["0"], run_view_type=mlflow.entities.ViewType.DELETED_ONLY)
    assert left.data.params["mode"] == "disabled"
    attempts.run(text)
    (run,) = client.search_runs(["0"])
    assert run.data.params["mode"] == "None"


def test_what_takes_time_is_said_while_code_is_read(attempts: Attempts) -> None:
    said: list[str] = []
    attempts.probe(GOOD, busy=said.append)
    assert said[0] == ""
    assert said[-1] == "finding the hyperparameters"


def test_imports_are_said_while_the_server_starts(tmp_path: Path) -> None:
    """A file of its own, next to packages of these names."""
    (tmp_path / "jax.py").write_text("import time\ntime.sleep(0.5)\n")
    model = tmp_path / "model.py"
    model.write_text(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport jax\n{GOOD}")
    said: list[str] = []
    with contextlib.closing(ForkServer(check_path(model))) as server:
        server.probe(ProbeOrder(check_path(model), str(tmp_path)), said.append)
    assert [words for words, _ in itertools.groupby(said) if words] == [
        "importing JAX", "finding the hyperparameters"
    ]  # fmt: skip
