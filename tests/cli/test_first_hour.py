"""What a newcomer is told in the first hour: of a script, of epochs, of what is not read."""

from __future__ import annotations

import json
import re

import pytest

from hptune.text import NOTHING
from in_process import InProcess, refused

LIGHT = ("--executor", "joblib", "--seed", "3", "--study", "study")

OBJECTIVE = """
    EPOCHS = {epochs}

    def objective(hp, trial):
        x = hp.Float("x", 0.5, 1)
        for epoch in {steps}:
            trial.report(epoch, loss=x / (epoch + 1))
        return {{"loss": x}}
    """
FROM_ONE, FROM_ZERO = "range(1, trial.epochs + 1)", "range(trial.epochs)"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            'p.add_argument("--lr", type=float)\np.add_argument("-n", "--num-layers", type=int)',
            "--lr {lr} --num-layers {num_layers}",
        ),
        ('p.add_argument("data")\np.add_argument("--name")', "--lr {lr}"),
    ],
)
def test_a_program_with_arguments_is_answered_with_the_command_that_tunes_it(
    cli: InProcess, arguments: str, said: str
) -> None:
    cli.file(
        "train.py",
        f"import argparse\np = argparse.ArgumentParser()\n{arguments}\n"
        "open('was-run', 'w')\nprint(p.parse_args())\n",
    )
    ended = cli("run", "train.py", *LIGHT)
    refused(ended, cli.directory, f"hptune run --command 'python train.py {said}'")
    assert "--space space.toml --objective METRIC." in ended.err
    assert not (cli.directory / "was-run").exists()


def test_an_objective_may_have_a_program_beside_it(cli: InProcess) -> None:
    body = "if __name__ == '__main__':\n    import argparse\n    argparse.ArgumentParser()\n"
    cli.file("model.py", f"def objective(hp, trial):\n    return hp.Float('x', 0, 1)\n{body}")
    assert cli("run", "model.py", *LIGHT, "--trials", "1").code == 0


def test_epochs_that_are_not_given_are_named_where_they_are_missed(cli: InProcess) -> None:
    cli.file("model.py", OBJECTIVE.format(epochs=2, steps=FROM_ONE).replace("EPOCHS", "OTHER"))
    ended = cli("run", "model.py", *LIGHT, "--trials", "1", "--objective", "loss:min")
    assert "NoneType" in ended.err
    assert "; trial.epochs is None where no number of epochs is given: add --epochs" in ended.err


def test_what_a_resume_does_not_read_or_cannot_continue_is_said(cli: InProcess) -> None:
    cli.file("model.py", OBJECTIVE.format(epochs=2, steps=FROM_ONE))
    run = cli("run", "model.py", *LIGHT, "--trials", "2", "--objective", "loss:min")
    assert run.code == 0, run.err
    assert "has changed" not in cli("resume", "study").err
    cli.file("model.py", OBJECTIVE.format(epochs=3, steps=FROM_ONE))
    said = "EPOCHS in model.py has changed, and the file is read only if there is something to do\n"
    ended = cli("resume", "study")
    assert said in ended.err
    assert "nothing is left to do: 2 of 2 trials are over" in ended.err
    ended = cli("resume", "study", "--epochs", "4")
    assert "the 2 complete trials stay as they are (trained at most 2 epochs)" in ended.err
    assert "no checkpoint: objective() writes its own, to trial.checkpoint_dir" in ended.err


def test_a_status_repeats_what_the_run_said_of_the_reports(cli: InProcess) -> None:
    cli.file("model.py", OBJECTIVE.format(epochs=2, steps=FROM_ZERO))
    in_turn = ("--trials", "2", "--workers", "1", "--pack", "off")
    run = cli("run", "model.py", *LIGHT, *in_turn, "--objective", "loss:min")
    said = "trial 0 reports epoch 0, but a report says how many are done, from 1"
    assert said in run.err
    assert said in " ".join(cli("status", "study").out.split())


LAYERS = """
    def objective(hp, trial):
        {first}
        layers = {hp}Int("layers", 1, 3)
        return layers + sum({hp}Int(f"units_{{each}}", 16, 64) for each in range(layers)) / 1e3
    """


@pytest.mark.parametrize(
    ("first", "is_known"),
    [
        ("pass", True),
        ("trial.params", False),
        ("hp.values", False),
        ("hp.copy()", False),
        ("hp.get_config()", False),
        ("import copy; copy.deepcopy(hp)", False),
        ("import os; os.fork() or os._exit(0)", False),
    ],
)
def test_what_a_build_never_asked_for_is_shown_as_a_dash(
    cli: InProcess, first: str, *, is_known: bool
) -> None:
    cli.file("model.py", LAYERS.format(first=first, hp="hp."))
    run = cli("run", "model.py", *LIGHT, "--trials", "3", "--try", "layers=1", "--try", "layers=3")
    assert run.code == 0, run.err
    shown = cli("best", "study").out
    assert re.search(r"^ *layers +1$", shown, re.M)
    assert re.search(r"^ *units_0 +\d+$", shown, re.M)
    unused = NOTHING if is_known else r"\d+"
    assert re.search(rf"^ *units_1 +{unused}\n *units_2 +{unused}$", shown, re.M), shown
    assert f"units_2={NOTHING}" in cli("status", "study").out or not is_known
    best = json.loads(cli("best", "study", "--json").out)["best"]
    assert isinstance(best["params"]["units_2"], int), "which a next training needs"
    deep = cli("show", "study", "1").out
    assert NOTHING not in deep.partition("hyperparameters")[2].partition("metrics")[0]
    assert cli("replay", "study").code == 0
