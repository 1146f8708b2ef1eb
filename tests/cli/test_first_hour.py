"""What a newcomer is told in the first hour: of a script, of epochs, of what is not read."""

from __future__ import annotations

import pytest

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
    refused(ended, cli.directory, f"hptune run --command 'python train.py {said}' --space space")
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
    run = cli("run", "model.py", *LIGHT, "--trials", "2", "--objective", "loss:min")
    said = "trial 0 reports epoch 0, but a report says how many are done, from 1"
    assert said in run.err
    assert said in " ".join(cli("status", "study").out.split())
