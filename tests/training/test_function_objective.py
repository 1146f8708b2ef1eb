"""Results of an objective, joined with its reports."""

from __future__ import annotations

import textwrap

import pytest

import hptune
from attempts import Attempts
from hptune.core.attempt import NEVER_ASKED, Cause, Halt
from in_process import InProcess
from real_runs import trials

LIGHT = ("--executor", "joblib")
OBJECTIVE = """
OBJECTIVE = "score:max"

def objective(hp, trial):
    hp.Int("n", 0, 9)
    for step, score in enumerate([0.3, 0.9, 0.5], start=1):
        trial.report(step, score=score, loss=1.0 - score, memory=step)
    return {returned}
"""


@pytest.mark.parametrize(
    ("returned", "metrics", "step"),
    [
        ("score", {"score": 0.5, "loss": 0.5, "memory": 3.0}, 3),
        # An epoch's value is that epoch's, with all that was measured then.
        ("0.9", {"score": 0.9, "loss": 1.0 - 0.9, "memory": 2.0}, 2),
        # A number that no epoch had comes after the last one, and is of none.
        ("0.7", {"score": 0.7, "loss": 0.5, "memory": 3.0}, None),
        ('{"size": 4}', {"score": 0.5, "loss": 0.5, "memory": 3.0, "size": 4.0}, 3),
        # What is returned counts for more than what was reported.
        ('{"score": 0.9, "memory": 8, "size": 4}',
         {"score": 0.9, "loss": 1.0 - 0.9, "memory": 8.0, "size": 4.0}, 2),
    ],
)  # fmt: skip
def test_what_was_reported_belongs_to_the_result(
    attempts: Attempts, returned: str, metrics: dict[str, float], step: int | None
) -> None:
    ending = attempts.run(OBJECTIVE.replace("{returned}", returned)).ending
    assert ending.cause is Cause.RETURNED, ending
    assert dict(ending.metrics) == metrics
    assert ending.step == step


@pytest.mark.parametrize(("returned", "more"), [("None", {}), ('{"size": 4}', {"size": 4.0})])
def test_a_report_without_the_objective_is_not_the_result(
    attempts: Attempts, returned: str, more: dict[str, float]
) -> None:
    text = OBJECTIVE.replace("    return", "    trial.report(4, size=8)\n    return")
    ending = attempts.run(text.replace("{returned}", returned)).ending
    assert dict(ending.metrics) == {"score": 0.5, "loss": 0.5, "memory": 3.0, **more}
    assert ending.step == 3


@pytest.mark.parametrize(
    ("returned", "reason"),
    [
        (
            '{"scor": 0.9, "size": 4}',
            "objective() returned 'scor' and no 'score', so the score that it reported counts",
        ),
        ('{"score": 0.9, "scor": 4}', ""),
        ('{"best_score": 0.9, "size": 4}', ""),
    ],
)
def test_a_misspelt_name_in_a_result_is_told(
    attempts: Attempts, returned: str, reason: str
) -> None:
    ending = attempts.run(OBJECTIVE.replace("{returned}", returned)).ending
    assert (ending.cause, ending.reason) == (Cause.RETURNED, reason)


@pytest.mark.parametrize(
    ("steps", "resumed_from", "ended_early"),
    [
        ([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], None, False),
        ([0, 1, 2, 3, 4, 5, 6, 7, 8, 9], None, False),
        ([3, 6, 9], None, False),
        ([0, 4, 8], None, False),
        ([10], None, False),
        ([9], 6, False),
        ([1, 2, 3, 4, 5, 6], None, True),
        ([3, 6], None, True),
        ([0, 4], None, True),
        ([], None, None),
    ],
)
def test_a_result_tells_whether_a_further_report_would_have_been_due(
    attempts: Attempts, steps: list[int], resumed_from: int | None, ended_early: bool | None
) -> None:
    text = f"""
OBJECTIVE = "score:max"

def objective(hp, trial):
    for step in {steps}:
        trial.report(step, score=0.5)
    return 0.5
"""
    number = int(resumed_from is not None)
    ending = attempts.run(text, epochs=10, number=number, resume_from=resumed_from).ending
    assert ending.cause is Cause.RETURNED, ending
    assert ending.ended_early is ended_early


def test_without_reports_the_result_is_what_is_returned(attempts: Attempts) -> None:
    text = textwrap.dedent(OBJECTIVE).replace("trial.report", "dict").replace("step, score=", "a=")
    ending = attempts.run(text.replace("{returned}", "score")).ending
    assert ending.cause is Cause.RETURNED, ending
    assert (dict(ending.metrics), ending.step) == ({"score": 0.5}, None)


def test_a_tuple_has_a_value_for_each_objective_and_a_list_is_averaged(attempts: Attempts) -> None:
    text = OBJECTIVE.replace('"score:max"', '["score:max", "size:min"]', 1)
    for returned, *values in [
        ("(score, 4)", 0.5, 4.0),
        ("[(1, 3), (3, 5)]", 2.0, 4.0),
        ('[{"score": 1, "size": 2, "more": 1}, {"score": 3, "size": 2}]', 2.0, 2.0),
    ]:
        ending = attempts.run(text.replace("{returned}", returned)).ending
        assert [ending.metrics["score"], ending.metrics["size"]] == values
        assert "more" not in ending.metrics
    ending = attempts.run(text.replace("{returned}", "(1, 2, 3)")).ending
    assert ending.cause is Cause.UNKNOWN_METRIC  # which ends the run with exit 2
    assert "returned 3 values for score, size; name an objective for each" in ending.reason


def test_the_code_may_prune_its_trial_give_it_up_or_end_the_study(attempts: Attempts) -> None:
    text = """
    import hptune

    class FailedTrialError(Exception): __module__ = "keras_tuner.src.errors"
    class FatalError(Exception): __module__ = "keras_tuner.src.errors"
    class FatalValueError(FatalError, ValueError): __module__ = "keras_tuner.src.errors"
    class TrialPruned(Exception): __module__ = "optuna.exceptions"

    def objective(hp, trial):
        n = hp.Int("n", 0, 5)
        trial.report(1, value=n)
        if n == 0 and not trial.should_prune():
            raise hptune.TrialPruned
        if n == 5:
            trial.suggest_float("x", 0, 1)
        if n == 4:
            hp.Flot("x", 0, 1)
        raise [0, TrialPruned, FailedTrialError("too slow"), FatalValueError("bad"), ValueError][n]
    """
    endings = [attempts.run(text, n=n).ending for n in range(6)]
    assert [each.cause for each in endings] == [
        Cause.PRUNED, Cause.PRUNED, Cause.GIVEN_UP, Cause.FATAL, Cause.EXCEPTION, Cause.EXCEPTION,
    ]  # fmt: skip
    assert endings[2].reason == "FailedTrialError: too slow"
    assert "no attribute 'Flot'; did you mean Float?" in endings[4].reason
    assert "no attribute 'suggest_float'; hyperparameters are declared with hp.Float" in (
        endings[5].reason
    )


def test_an_objective_that_never_asks_whether_it_is_pruned(attempts: Attempts) -> None:
    text = """
    import time

    def objective(hp, trial):
        x = hp.Float("x", 0, 1)
        trial.report(1, value=x)
        while trial._halt is None:
            time.sleep(0.01)
        if hp.Boolean("asks"):
            trial.should_stop()
        if hp.Boolean("reports_all"):
            trial.report(2, value=x)
        return x
    """
    stop = (1, Halt.PRUNE)
    whole = attempts.run(text, halt=stop, asks=False, reports_all=True).ending
    assert (whole.cause, whole.reason) == (Cause.RETURNED, NEVER_ASKED)
    half = attempts.run(text, halt=stop, asks=False, reports_all=False).ending
    assert (half.cause, half.reason) == (Cause.RETURNED, NEVER_ASKED), "it knew of no order"
    obeyed = attempts.run(text, halt=stop, asks=True, reports_all=False).ending
    assert (obeyed.cause, obeyed.reason) == (Cause.PRUNED, Halt.PRUNE.reason)
    good = attempts.run(
        text.replace("while trial._halt is None", "while False"),
        rungs=(1,),
        asks=False,
        reports_all=True,
    ).ending
    assert (good.cause, good.reason) == (Cause.RETURNED, NEVER_ASKED)
    asked = attempts.run(text, halt=stop, asks=True, reports_all=True).ending
    assert (asked.cause, asked.reason) == (Cause.RETURNED, "")


@pytest.mark.parametrize(
    ("steps", "resumed_from", "cause"),
    [
        ([1, 2, 3], None, Cause.RETURNED),
        ([0, 1, 2], None, Cause.RETURNED),
        ([3], 2, Cause.RETURNED),
        ([], 3, Cause.RETURNED),
        ([1, 2], None, Cause.PRUNED),
        ([0, 1], None, Cause.PRUNED),
        # Of folds that count from 1 again, the last one is not complete.
        ([1, 2, 3, 1, 2], None, Cause.PRUNED),
        ([], 2, Cause.PRUNED),
    ],
)
def test_a_result_after_the_last_epoch_comes_before_an_order(
    attempts: Attempts, steps: list[int], resumed_from: int | None, cause: Cause
) -> None:
    text = f"""
    OBJECTIVE = "loss:min"

    from hptune.core.attempt import Halt

    def objective(hp, trial):
        trial.should_stop()
        for step in {steps}:
            trial.report(step, loss=0.5)
        trial.request_stop(Halt.PRUNE)
        trial.should_stop()
        return 0.5
    """
    number = int(resumed_from is not None)
    ending = attempts.run(text, epochs=3, number=number, resume_from=resumed_from).ending
    assert ending.cause is cause, ending


@pytest.mark.parametrize(("epochs", "cause"), [(3, Cause.RETURNED), (4, Cause.PRUNED)])
def test_hydras_report_of_the_last_epoch_ends_no_trial(
    attempts: Attempts, epochs: int, cause: Cause
) -> None:
    text = """
    OBJECTIVE = "loss:min"

    from hptune.core.attempt import Halt
    from hptune.hydra import report

    def objective(hp, trial):
        trial.should_stop()
        for step in (1, 2, 3):
            if step == 3:
                trial.request_stop(Halt.PRUNE)
            report(step, loss=0.5)
        return 0.5
    """
    assert attempts.run(text, epochs=epochs).ending.cause is cause


def test_the_energy_is_not_the_codes_to_give(attempts: Attempts) -> None:
    text = """
    from hptune.core.attempt import Halt

    def objective(hp, trial):
        trial.should_stop()
        for step in (1, 2):
            trial.report(step, loss=0.5)
        if hp.Boolean("is_told"):
            trial.request_stop(Halt.PRUNE)
            trial.should_stop()
        return 0.5, 4
    """
    objectives = ("loss:min", "energy_kwh", "size:min")
    for is_told in (False, True):
        ending = attempts.run(text, objectives=objectives, is_told=is_told).ending
        assert ending.cause is Cause.RETURNED, ending
        assert ending.metrics == {"loss": 0.5, "size": 4.0}


@pytest.mark.keras  # with PyTorch
def test_a_tensor_with_a_gradient_is_reported_without_a_warning(attempts: Attempts) -> None:
    text = """
    import warnings
    import torch

    OBJECTIVE = "loss:min"

    def objective(hp, trial):
        warnings.simplefilter("error")
        loss = (torch.tensor([0.5], requires_grad=True) * 1).sum()
        trial.report(1, loss=loss)
        return loss
    """
    pytest.importorskip("torch")
    ending = attempts.run(text).ending
    assert (ending.cause, ending.metrics) == (Cause.RETURNED, {"loss": 0.5}), ending


CALL = "write trial.report(epoch, loss=0.5)"
WRITE = f", and each metric has a name: {CALL}"


def test_a_report_that_is_no_number_is_the_trials_error(attempts: Attempts) -> None:
    for arguments, said in {
        '1, loss="lower"': "trial.report: loss is 'lower'; a metric is a number",
        '1, loss="0.50"': "trial.report: loss is '0.50'; a metric is a number",
        '"one", loss=1': f"trial.report: the step is 'one'; a step is a whole number{WRITE}",
        "0.5, loss=1": f"trial.report: the step is 0.5; a step is a whole number{WRITE}",
        "{'loss': 1}": f"trial.report: the step is {{'loss': 1}}; a step is a whole number{WRITE}",
        "loss=0.5": f"trial.report: missing a required argument: 'step'; {CALL}",
        "0.5, 3": f"trial.report: too many positional arguments; {CALL}",
    }.items():
        text = OBJECTIVE.replace("step, score=score, loss=1.0 - score, memory=step", arguments)
        ending = attempts.run(text.replace("{returned}", "0.5")).ending
        assert (ending.cause, ending.reason) == (Cause.EXCEPTION, f"TypeError: {said}")


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (OBJECTIVE, "loss, memory, score"),
        (OBJECTIVE.replace('OBJECTIVE = "score:max"', ""), "loss, memory, score, value"),
        # A number is what OBJECTIVE says, also where nothing was reported.
        (OBJECTIVE.replace("trial.report(step, ", "dict("), "score"),
    ],
)
def test_a_number_is_not_called_what_the_command_line_asks_for(
    cli: InProcess, model: str, known: str
) -> None:
    path = cli.file("model.py", model.replace("{returned}", "score"))
    ended = cli("run", path, *LIGHT, "--objective", "accuracy", "--study", cli.study())
    assert ended.code == 2
    assert f"the study needs the metric 'accuracy'; the trial reports: {known}" in ended.err
    assert not cli.study().exists()


def test_of_several_metrics_the_one_asked_for_counts_and_not_the_number_that_is_returned(
    cli: InProcess,
) -> None:
    path = cli.file("model.py", OBJECTIVE.replace("{returned}", "0.9"))
    study = cli.study()
    ended = cli("run", path, *LIGHT, "--objective", "loss", "--study", study, "--trials", 1)
    assert ended.code == 0, ended.err
    assert trials(study)[0]["value"] == pytest.approx(0.1)  # of the step that had this score


@pytest.mark.parametrize("written", [False, True])
def test_a_checkpoint_directory_stays_only_if_anything_lies_in_it(
    cli: InProcess, written: bool
) -> None:
    lines = ["OBJECTIVE = 'loss'", "def objective(hp, trial):", "    here = trial.checkpoint_dir"]
    lines += ["    (here / 'kept').touch()"] * written + ["    return hp.Float('x', 0.0, 1.0)"]
    model = cli.file("keeps.py", "\n".join(lines))
    study = cli.study()
    assert cli("run", model, *LIGHT, "--study", study, "--trials", 1).code == 0
    assert (study / "trials" / "0" / "checkpoint").exists() == written


@pytest.mark.parametrize("arguments", ["loss=0.5", "0.5, 3"])
def test_a_report_without_a_trial_says_how_it_is_called(arguments: str) -> None:
    with pytest.raises(TypeError, match=r"hptune\.report: .*; write hptune\.report\(epoch, loss"):
        eval(f"report({arguments})", {"report": hptune.report})
