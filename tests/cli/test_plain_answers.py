"""What a run and its resumes say of limits, pruning, the space and epochs that have changed."""

from __future__ import annotations

import pytest

from hptune.master import run
from hptune.study.study import Study
from in_process import InProcess

LIGHT = ("--executor", "joblib", "--seed", "3", "--study", "study")

SILENT = """
    def objective(hp, trial):
        return hp.Float("x", 0, {high})
    """

EPOCHS = """
    OBJECTIVE = "value:max"

    def objective(hp, trial):
        x = hp.Float("x", 0.5, 1)
        for epoch in range((trial.resumed_from or 0) + 1, trial.epochs + 1):
            (trial.checkpoint_dir / "epoch").write_text(str(epoch))
            trial.report(epoch, value=x * epoch)
        return x * trial.epochs
    """


def test_limits_pruners_and_spaces_that_do_not_fit(cli: InProcess) -> None:
    cli.file("model.py", SILENT.format(high=1))
    limits = ("--timeout", "1h", "--budget", "5core-h")
    ended = cli("run", "model.py", *LIGHT, *limits, "--trials", "4", "--pruner", "asha")
    assert ended.code == 0, ended.err
    assert ended.err.count("--pruner asha can stop no trial: trial ") == 1

    refused = cli("resume", "study", "--budget", "0.0000001core-h")
    assert (refused.code, "--budget is the total" in refused.err) == (2, True)

    cli.file("model.py", SILENT.format(high=2))
    more = ("--trials", "6", "--timeout", "none", "--accept-space")
    ended = cli("resume", "study", *more, "--try", "x=1.75")
    assert ended.code == 0, ended.err
    assert "limits   5 core hours for all trials\n" in ended.err
    assert "the search space is another one: " in ended.err
    assert "finished trials stay" in ended.err
    said = "5 suggestions, all equal; 1 other trial came from --try, enqueue or --confirm\n"
    assert cli("replay", "study").out == said


def steps(cli: InProcess, trial: int) -> list[int]:
    return [each.step for each in Study(cli.study()).reports(trial)]


def test_epochs_that_were_lowered_and_are_raised_again(cli: InProcess) -> None:
    cli.file("model.py", EPOCHS)
    assert cli("run", "model.py", *LIGHT, "--trials", "2", "--epochs", "4").code == 0
    ended = cli("resume", "study", "--trials", "3", "--epochs", "2")
    assert "2 epochs instead of 4: the 2 complete trials stay as they are" in ended.err
    assert "resumed: 2 trials are over\n" in ended.err
    ended = cli("resume", "study", "--epochs", "4")
    assert "4 epochs instead of 2: 1 best trial trains on from epoch 2; the other 2" in ended.err
    assert steps(cli, 2) == [1, 2, 3, 4], "from its own checkpoint"
    ended = cli("resume", "study", "--epochs", "5", "--keep-checkpoints", "0")
    assert steps(cli, 0) == [1, 2, 3, 4, 5]
    ended = cli("resume", "study", "--epochs", "6")
    # Each trial was trained for as many epochs as were asked for then.
    assert "from epoch 5/5\n" in cli("best", "study").out.replace(")", "")
    stay = "the 3 complete trials stay as they are (trained at most 5 epochs), as no checkpoint"
    assert f"6 epochs instead of 5: {stay} of theirs is kept\n" in ended.err


def test_confirmed_trials_get_no_more_epochs(cli: InProcess) -> None:
    cli.file("model.py", EPOCHS)
    confirmed = ("--trials", "1", "--epochs", "1", "--confirm", "1", "--confirm-repeats", "1")
    assert cli("run", "model.py", *LIGHT, *confirmed).code == 0
    stay = "the 2 complete trials stay as they are (trained at most 1 epoch), as the repeats of"
    assert (
        f"2 epochs instead of 1: {stay} the best would not"
        in cli("resume", "study", "--epochs", "2").err
    )


def test_a_resume_that_reads_for_long_says_how_far_it_is(
    cli: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    cli.file("model.py", SILENT.format(high=1))
    assert cli("run", "model.py", *LIGHT, "--trials", "2").code == 0
    assert "reading the study's past" not in cli("resume", "study").err
    monkeypatch.setattr(run, "_READING_NOTE_SECONDS", 0.0)
    said = cli("resume", "study").err
    assert "reading the study's past: 0% of " in said
    monkeypatch.setattr(run, "_READING_NOTE_SECONDS", 60.0)
    assert "reading the study's past" not in cli("resume", "study").err
