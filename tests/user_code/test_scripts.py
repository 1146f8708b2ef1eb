"""Whole scripts of other tuners, known by their source."""

from __future__ import annotations

import ast

import pytest

from hptune.user_code.scripts import is_keras_tuner_script
from in_process import InProcess, refused
from stored_study import typical

TUNED = "tuner = kt.Hyperband(build_model)\n{0}tuner.search(x, y)\n"
PLAIN = "import keras_tuner as kt\n"
DATA = "def load_data(): return 1\n"


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        (PLAIN + TUNED.format(""), True),
        ("from hptune import keras_tuner as kt\n" + TUNED.format(""), True),
        ("from kerastuner.tuners import RandomSearch\nt = RandomSearch()\nt.search()\n", True),
        (PLAIN + "class MyTuner(kt.Tuner): ...\nMyTuner().search()\n", True),
        (PLAIN + "class Mine(kt.Hyperband): ...\nMine().search()\n", True),
        (PLAIN + f"def main():\n    {TUNED.format('    ')}main()\n", True),
        (PLAIN + f"if __name__ == '__main__':\n    {TUNED.format('    ')}", True),
        (PLAIN + "def build_model(hp): ...\n" + TUNED.format(""), True),
        (PLAIN + "def build_model(hp): ...\nkt.Hyperband(build_model).results_summary()\n", True),
        (PLAIN + "def build_model(hp): ...\nkt.Hyperband(build_model).reload()\n", True),
        # One with data for hptune is a model file, unless it cannot be imported.
        (PLAIN + DATA + f"if __name__ == '__main__':\n    {TUNED.format('    ')}", False),
        (PLAIN + DATA + f"if type(PLAIN).__name__ != 'x':\n    {TUNED.format('    ')}", True),
        (PLAIN + "def objective(hp, trial): ...\n", False),
        (PLAIN + DATA + TUNED.format(""), True),
        (PLAIN + DATA + f"def main():\n    {TUNED.format('    ')}main()\n", True),
        (PLAIN + DATA + f"def main():\n    {TUNED.format('    ')}", False),
        (PLAIN + "def build_model(hp): ...\n" + DATA, False),
        (PLAIN + "import re\nTuner()\nre.search('a', 'b')\n", False),
        ("X = A()" + ".b()" * 400, False),  # a long chain is no deep recursion
        (TUNED.format(""), False),
        (PLAIN + "kt.HyperModel().search()\n", False),
    ],
)
def test_a_script_of_keras_tuner_is_known(text: str, is_one: bool) -> None:
    assert is_keras_tuner_script(ast.parse(text)) == is_one


@pytest.mark.parametrize(
    ("text", "library", "lines"),
    [
        ("from hyperopt import fmin, hp, tpe\nfmin(print, {}, algo=tpe.suggest)", "hyperopt",
         ["- lr = params", "hp.loguniform", "+ lr = hp.Float"]),
        ("import skopt\nskopt.gp_minimize(print, [])", "skopt", ["- lr, = params"]),
        ("import talos\ntalos.Scan(1, 2, {}, print)", "talos", ["- def train(x, y, x_val, y_val"]),
        ("from ray import tune\ntune.Tuner(print).fit()", "ray", ["- def train(config):"]),
    ],
)  # fmt: skip
def test_a_script_of_another_tuner_gets_the_lines_to_change(
    cli: InProcess, text: str, library: str, lines: list[str]
) -> None:
    script = cli.file("tune.py", text)
    # With --detach at once too, not when the master starts, perhaps hours later.
    for where in ((), ("--slurm", "slurm.toml", "--detach")):
        ended = cli("run", script, *where)
        refused(ended, cli.directory, f"tune.py is a script of {library}", *lines)
        assert "hptune run tune.py --trials 50" in ended.err


@pytest.mark.parametrize(
    ("text", "page", "words"),
    [
        ("import optuna\ndef objective(trial): ...\noptuna.create_study()", "from-optuna",
         "`import hptune.optuna as optuna` instead of `import optuna` lets `python tune.py`"),
        ("def objective(trial): return trial.suggest_int('x', 0, 1)\n", "from-optuna", "hp.Float"),
        ("def objective(hp, trial): return trial.suggest_int('x', 0, 1)\n", "from-optuna", "hp.F"),
        ("from ray import tune\ntune.run(print)", "from-ray-tune", "tune.report"),
        ("import wandb\nsweep = wandb.sweep({})\nwandb.agent(sweep)\n", "from-wandb", "--command"),
        ("import hydra\n@hydra.main(version_base=None)\ndef app(config): ...\n", "from-hydra",
         "`python tune.py --multirun hydra/sweeper=hptune …` tunes it as it is"),
    ],
)  # fmt: skip
def test_a_script_of_another_tuner_gets_its_page(
    cli: InProcess, text: str, page: str, words: str
) -> None:
    ended = cli("run", cli.file("tune.py", text))
    refused(ended, cli.directory, f"`hptune help {page}`", words)
    assert cli("help", page).code == 0


def test_a_file_for_a_later_python_is_not_refused_before_its_job(cli: InProcess) -> None:
    file = cli.file("model.py", "a syntax of the future\n")
    assert "SyntaxError" in cli("run", file, "--slurm", "slurm.toml", "--detach").err
    python = ("--python", "/only/in/the/job/python")
    ended = cli("run", file, *python, "--slurm", "slurm.toml", "--detach")
    assert "slurm.toml" in ended.err
    assert "SyntaxError" not in ended.err


def test_arguments_are_for_scripts_only(cli: InProcess) -> None:
    model = cli.file("model.py", "def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n")
    ended = cli("run", model, "--", "--tune")
    refused(ended, cli.directory, "--tune after -- is for a script of KerasTuner, which model.py")
    ended = cli("run", model, "--tune")
    refused(ended, cli.directory, "No such option --tune", "of a script of KerasTuner follow a --")
    for more in ((), ("--", "--tune"), ("--",)):
        ended = cli("run", model, "other.py", *more)
        refused(ended, cli.directory, "unexpected arguments: other.py; a study")
    assert cli("run", "--", model, "--tune").err.startswith("Error: --tune after -- is for")


def test_a_study_that_is_run_again_is_resumed(cli: InProcess) -> None:
    typical(cli.directory / "mine")
    ended = cli("run", "mine")
    assert (ended.code, "mine is a study; `hptune resume mine`" in ended.err) == (2, True)


def test_a_model_file_may_use_other_tuners(cli: InProcess) -> None:
    text = "import optuna\ndef objective(hp, trial):\n    return hp.Float('x', 0, 1)\n"
    text += "if __name__ == '__main__':\n    optuna.create_study()\n"
    ended = cli("space", cli.file("model.py", text))
    assert "1 hyperparameter" in ended.out
