"""Samplers and pruners from a Python file beside the model file, also faulty ones."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest

from in_process import InProcess
from real_runs import trials

MODEL = """
def objective(hp, trial):
    x = hp.Float("x", 0.0, 1.0)
    for step in (1, 2, 3):
        trial.report(step, value=x)
    return x
"""

SAMPLER = """
import numpy as np
from hptune.core.sampler import Sampler
from hptune.core.trial import Suggestion

class Own(Sampler):
    \"\"\"Draws uniformly.\"\"\"

    def __init__(self, space, seed, *, directions, shift=0.0):
        self.seed, self.shift = seed, shift

    def ask(self, numbers):
        return [Suggestion({"x": self.value(n)}, "own") for n in numbers]

    def value(self, number):
        drawn = np.random.default_rng([self.seed, number]).random()
        return (float(drawn) + self.shift) % 1.0

    def tell(self, trial):
        pass
"""

PRUNER = """
from hptune.core.pruner import Decision, NeverPrune

class Own(NeverPrune):
    def __init__(self, *, directions, epochs, limit=2):
        self.limit = limit
"""


def forget(module: str) -> None:
    """Let the next command import the module again, as another process would."""
    sys.modules.pop(module, None)


FAST = ("--executor", "joblib", "--study", "study", "-q")


def test_a_sampler_of_a_file_is_run_resumed_and_replayed(cli: InProcess) -> None:
    cli.file("model.py", MODEL)
    cli.file("samplers_of_mine.py", SAMPLER)
    search = ("--search", "samplers_of_mine:Own", "--option", "search.shift=0.25")
    ended = cli("run", "model.py", *search, "--trials", 3, *FAST)
    assert ended.code == 0, ended.err
    ended = cli("resume", "study", "--trials", 5, "-q")
    assert ended.code == 0, ended.err
    assert [trial["origin"] for trial in trials(cli.study())] == ["defaults", *["own"] * 4]
    assert cli("replay", "study").out == "5 suggestions, all equal\n"
    (cli.directory / "samplers_of_mine.py").rename(cli.directory / "moved.py")
    forget("samplers_of_mine")
    ended = cli("resume", "study", "--trials", 6)
    assert ended.code == 2
    assert "samplers_of_mine is not installed, and there is no such file in" in ended.err


def test_a_project_may_be_moved(cli: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("model.py", MODEL), ("pruners_of_mine.py", PRUNER)):
        (cli.directory / "before").mkdir(exist_ok=True)
        cli.file(f"before/{name}", text)
    monkeypatch.chdir("before")
    options = ("--pruner", "pruners_of_mine:Own", "--notify", "cat >> told")
    assert cli("run", "model.py", "--trials", 1, *options, *FAST).code == 0
    (cli.directory / "before").rename(cli.directory / "moved")
    forget("pruners_of_mine")
    monkeypatch.chdir(cli.directory / "moved")
    Path("told").unlink()
    ended = cli("resume", "study", "--trials", 2, "--model-file", "model.py")
    assert (ended.code, "--notify" in ended.err) == (0, False), ended.err
    assert Path("told").exists()
    assert cli("replay", "study").out == "2 suggestions, all equal\n"


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("return [1][number]", "IndexError: list index out of range"),
        ("return 7.0", "{'x': 7.0} lies outside the space: x is 7.0; allowed is 0.0..1.0"),
        ("return np.float64(0.5)", f"x is {np.float64(0.5)!r} of type numpy.float64; allowed are"),
    ],
)
def test_a_faulty_sampler_is_named_and_loses_nothing(cli: InProcess, fault: str, said: str) -> None:
    name = f"faulty_{abs(hash(fault))}"
    cli.file("model.py", MODEL)
    cli.file(f"{name}.py", SAMPLER.replace("drawn =", f"{fault}\n        drawn ="))
    ended = cli("run", "model.py", "--search", f"{name}:Own", "--trials", 3, *FAST)
    assert ended.code == 1
    assert f"the search {name}:Own failed: {said}" in ended.err
    assert ended.err.count("Error") <= 3, "no bare traceback"
    cli.file(f"{name}.py", SAMPLER)
    forget(name)
    ended = cli("resume", "study", "-q")
    assert ended.code == 0, ended.err
    assert len(trials(cli.study())) == 3


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("None", "ask returned None; it must be a list of Suggestion"),
        ("[Suggestion({'x': 0.5}, 'own')] * 99", "ask returned 99 suggestions for"),
        ("[{'x': 0.5}]", "ask returned {'x': 0.5}; it must be a Suggestion"),
    ],
)
def test_an_answer_of_another_form_is_refused(cli: InProcess, answer: str, said: str) -> None:
    name = f"odd_{abs(hash(answer))}"
    cli.file("model.py", MODEL)
    cli.file(
        f"{name}.py", SAMPLER.replace("return [Sugg", f"return {answer}\n        return [Sugg")
    )
    ended = cli("run", "model.py", "--search", f"{name}:Own", "--trials", 3, *FAST)
    assert (ended.code, f"the search {name}:Own failed: {said}" in ended.err) == (1, True)


def test_what_makes_no_sampler_is_refused(cli: InProcess) -> None:
    cli.file("model.py", MODEL)
    cli.file("no_sampler.py", "def make(space, seed, *, directions):\n    return 3\n")
    ended = cli("run", "model.py", "--search", "no_sampler:make", *FAST)
    assert ended.code == 2
    assert "--search is no_sampler:make, which is no Sampler, but made 3" in ended.err
    assert not cli.study().exists()
    cli.file("too_few.py", "def make(space):\n    return 3\n")
    ended = cli("run", "model.py", "--search", "too_few:make", "--study", "other")
    assert ended.code == 2
    assert "cannot be called as too_few:make(space, seed, directions=…)" in ended.err
    assert not cli.study("other").exists()
    cli.file("broken_file.py", "import nothing_of_this_name\n")
    ended = cli("run", "model.py", "--search", "broken_file:make", "--study", "other")
    assert (ended.code, "broken_file cannot be imported: ModuleNotFound" in ended.err) == (2, True)


def test_a_pruner_of_a_file_is_used_and_changed(cli: InProcess) -> None:
    cli.file("model.py", MODEL)
    cli.file("pruners_of_mine.py", PRUNER)
    pruner = ("--pruner", "pruners_of_mine:Own", "--option", "pruner.limit=3")
    ended = cli("run", "model.py", *pruner, "--trials", 2, *FAST)
    assert ended.code == 0, ended.err
    ended = cli("resume", "study", "--option", "pruner.limit=4")
    assert "nothing is left to do" not in ended.err, "the option is kept for the next run"
    ended = cli("resume", "study", "--pruner", "median", "--epochs", 9, "--trials", 3, "-q")
    assert ended.code == 0, ended.err
    ended = cli("run", "model.py", "--pruner", "pruners_of_mine:Own", "--option", "pruner.l=3")
    assert "--option pruner.l is given, but --pruner is pruners_of_mine:Own" in ended.err


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("def decide(self, trial): return 'stop it'", "decide returned 'stop it'; it must be"),
        ("def decide(self, trial): return 1 / 0", "ZeroDivisionError: division by zero"),
        ("rungs = [1]", "rungs is [1]; it must be a tuple of ascending steps"),
    ],
)
def test_a_faulty_pruner_is_named(cli: InProcess, method: str, said: str) -> None:
    name = f"faulty_pruner_{abs(hash(method))}"
    cli.file("model.py", MODEL)
    cli.file(f"{name}.py", f"{PRUNER}\n    {method}\n")
    ended = cli("run", "model.py", "--pruner", f"{name}:Own", "--trials", 2, *FAST)
    assert (ended.code, f"the pruner {name}:Own failed: {said}" in ended.err) == (1, True), (
        ended.err
    )


@pytest.mark.parametrize("what", ["search", "pruner"])
def test_one_that_refuses_its_options_leaves_no_study(cli: InProcess, what: str) -> None:
    text, before = (SAMPLER, "self.seed, ") if what == "search" else (PRUNER, "self.limit")
    cli.file("model.py", MODEL)
    cli.file(
        f"strict_{what}.py", text.replace(before, f"raise ValueError('no')\n        {before}", 1)
    )
    ended = cli("run", "model.py", f"--{what}", f"strict_{what}:Own", "--trials", 2, *FAST)
    assert ended.code == 2
    assert f"--{what} is strict_{what}:Own, which failed: ValueError: no" in ended.err
    assert not cli.study().exists()


def test_one_that_refuses_its_options_leaves_a_resumed_study_as_it_is(cli: InProcess) -> None:
    cli.file("model.py", MODEL)
    strict = "if limit > 2:\n            raise ValueError('no')\n        self.limit"
    cli.file("strict_again.py", PRUNER.replace("self.limit", strict))
    assert cli("run", "model.py", "--trials", 2, *FAST).code == 0
    pruner = ("--pruner", "strict_again:Own", "--option", "pruner.limit=3")
    ended = cli("resume", "study", *pruner, "--trials", 3)
    assert ended.code == 2
    assert "--pruner is strict_again:Own, which failed: ValueError: no" in ended.err
    assert '"finish_reason": "done"' in cli("status", "study", "--json").out


def test_the_example_of_the_guide_runs(cli: InProcess) -> None:
    page = (Path(__file__).parents[2] / "docs/guide/plugins.md").read_text()
    code, command = re.findall(r"^```(?:python|sh)\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[:2]
    assert code.startswith("# mine.py\n")
    cli.file("mine.py", code)
    cli.file("model.py", MODEL)
    program, *arguments = shlex.split(command)
    ended = cli(*arguments, "--trials", 4, *FAST)
    assert (program, ended.code) == ("hptune", 0), ended.err
    assert {trial["origin"] for trial in trials(cli.study())} == {"defaults", "first"}
    assert cli("replay", "study").out == "4 suggestions, all equal\n"
