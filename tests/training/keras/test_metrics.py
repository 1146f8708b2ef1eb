"""The metrics of Keras models: those of the training, and those that hptune measures itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from attempts import Attempts
from hptune.config.objectives import resolve_goals
from hptune.core.attempt import Cause
from hptune.core.trial import Direction, Score
from hptune.errors import UsageError
from keras_models import BUILD, DATA
from requirements import require

pytestmark = pytest.mark.keras


def test_an_unknown_metric_lists_those_there_are(attempts: Attempts) -> None:
    text = BUILD.replace('OBJECTIVE = "val_loss"', 'OBJECTIVE = "val_auc:max"')
    # Without the callback, which may report it, no trial would start.
    result = attempts.run(text + DATA + "FIT = {'callbacks': [keras.callbacks.Callback()]}\n")
    assert result.ending.cause is Cause.UNKNOWN_METRIC
    assert result.ending.reason == (
        "the study needs the metric 'val_auc'; the trial reports: loss, val_loss"
    )


@pytest.mark.parametrize(
    ("metrics", "metric", "direction"),
    [("", "val_loss", Direction.MIN), (', metrics=["accuracy"]', "val_accuracy", Direction.MAX)],
)
def test_the_goal_that_nobody_named(
    attempts: Attempts, metrics: str, metric: str, direction: Direction
) -> None:
    text = BUILD.replace('OBJECTIVE = "val_loss"', "").replace('"mse")', f'"mse"{metrics})')
    found = attempts.probe(text + DATA)
    goals, notes = resolve_goals(found)
    goal = goals.goal
    assert (goal.metric, goal.direction) == (metric, direction)
    assert metric in notes[0]


def test_a_misspelt_metric_is_told_of_before_the_first_trial(attempts: Attempts) -> None:
    text = BUILD.replace('"mse")', '"mse", metrics=["mae"])') + DATA
    found = attempts.probe(text)
    reported = attempts.run(text, epochs=1).reports[0][1]
    assert {*reported} == {"loss", "mae", "val_loss", "val_mae"}
    assert {*reported, "params"} <= {*found.metrics}
    assert resolve_goals(found, ["val_mae"], ["params<2e6"])[1] == []
    with pytest.raises(UsageError, match="is called 'quirk': it reports loss, mae, val_loss"):
        resolve_goals(found, ["quirk"])  # although its direction is not known
    with pytest.raises(UsageError, match=r"is called 'parms': did you mean params\?"):
        resolve_goals(found, [], ["parms<2e6"])
    # A callback of the user's may report it.
    found = replace(found, reports_others=True)
    _, notes = resolve_goals(found, ["val_mea:min"])
    assert [note.partition("?")[0] for note in notes] == [
        "no metric of the model is called 'val_mea': did you mean val_mae:min"
    ]
    _, notes = resolve_goals(found, ["quirk:min"])
    assert notes[0].startswith("'quirk' is not among the model's own metrics (loss, ")
    with pytest.raises(UsageError, match=r"did you mean val_mae.*If a callback reports it"):
        resolve_goals(found, ["val_mea"])


def test_names_are_read_from_the_model_without_tensorflow(attempts: Attempts) -> None:
    """Keras imports it on each backend to tell how a model is compiled, which takes seconds."""
    require("torch")
    data = DATA.replace(
        "    return", "    import sys\n    assert 'tensorflow' not in sys.modules\n    return"
    )
    attempts.probe(BUILD + data)  # which loads the data when it has read the names


def test_only_a_model_without_code_of_the_users_cannot_report_other_metrics(
    attempts: Attempts,
) -> None:
    text = BUILD + DATA.replace("arrays(8)", "None")
    found = attempts.probe(text + "FIT = {'callbacks': [keras.callbacks.Callback()]}\n")
    assert found.reports_others
    assert (
        "there is no validation data, so loss is measured" in resolve_goals(found, ["loss"])[1][0]
    )
    found = replace(found, reports_others=False)
    with pytest.raises(UsageError, match="called 'val_loss': there is no validation data"):
        resolve_goals(found)
    with pytest.raises(UsageError, match=r"called 'val_lss': did you mean loss\?"):
        resolve_goals(found, ["val_lss"])


KEPT = """
import keras

OBJECTIVE = "count:min"

def objective(hp, trial):
    trial.should_stop()  # the model file is read until here
    model = keras.models.load_model({model!r})
    count = sum(keras.ops.size(each) for each in model.trainable_weights)
    return {{"count": count, "bytes": sum(each.numpy().nbytes for each in model.weights)}}
"""


def test_what_is_named_is_measured(attempts: Attempts) -> None:
    result = attempts.run(
        BUILD + DATA,
        objectives=("val_loss", "params"),
        constraints=("model_bytes<1e9", "seconds_per_epoch<100"),
        epochs=3,
    )
    assert result.ending.cause is Cause.RETURNED
    metrics = result.ending.metrics
    kept = attempts.run(KEPT.format(model=str(result.directory / "model.keras")))
    assert metrics["params"] == kept.ending.metrics["count"] > 0
    assert metrics["model_bytes"] == kept.ending.metrics["bytes"]
    assert 0.0 < metrics["seconds_per_epoch"] < 100.0
    for _, reported in result.reports:
        assert reported["params"] == metrics["params"]
    # The first objective decides the epoch.
    assert metrics["val_loss"] == min(reported["val_loss"] for _, reported in result.reports)


def test_a_model_is_kept_while_its_energy_is_unknown(attempts: Attempts) -> None:
    best = Score((-1.0,))  # which no other is as good as
    for constraints, is_kept in ((), False), (("energy_kwh<1",), True):
        result = attempts.run(BUILD + DATA, constraints=constraints, incumbents=[best])
        assert result.ending.cause is Cause.RETURNED
        assert (result.directory / "model.keras").exists() is is_kept


def test_what_nobody_named_is_not_measured(attempts: Attempts) -> None:
    assert set(attempts.run(BUILD + DATA).ending.metrics) == {"loss", "val_loss"}


def test_a_measured_metric_may_be_the_only_objective(attempts: Attempts) -> None:
    result = attempts.run(BUILD + DATA, objectives=("seconds_per_epoch",), epochs=3)
    assert result.ending.cause is Cause.RETURNED
    assert result.ending.step == 3, "the last epoch, where none is better than another"
    assert (result.directory / "model.keras").exists()


def test_the_best_epoch_is_one_that_keeps_the_constraints(attempts: Attempts) -> None:
    free = attempts.run(BUILD + DATA, epochs=4)
    losses = [reported["loss"] for _, reported in free.reports]
    bound = sorted(losses)[-2]  # kept by all epochs but one
    result = attempts.run(
        BUILD + DATA, objectives=("val_loss:max",), constraints=(f"loss<={bound!r}",), epochs=4
    )
    kept = [r["val_loss"] for _, r in result.reports if r["loss"] <= bound]
    assert result.ending.metrics["val_loss"] == max(kept)


def test_a_metric_of_one_element_is_its_number(attempts: Attempts) -> None:
    """F1Score has one element for each output of the model."""
    metric = 'metrics=[keras.metrics.F1Score(threshold=0.5, name="f1")])'
    text = BUILD.replace('"mse")', f'"mse", {metric}') + DATA.replace("arrays(8)", "some(8)")
    text = text.replace("arrays(32)", "some(32)")
    text += """
def some(count):
    x, y = arrays(count)
    return x, (y > 0).astype("float32")
"""
    result = attempts.run(text, objectives=["val_f1:max"])
    assert result.ending.cause is Cause.RETURNED, result.ending
    assert 0.0 <= result.ending.metrics["val_f1"] <= 1.0
