"""A `fit` of the user's own: what it takes, trains and returns."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from attempts import Attempts
from hptune.config.objectives import resolve_goals
from hptune.core.attempt import Cause
from hptune.core.trial import Direction
from keras_models import BUILD, DATA, evaluated

pytestmark = pytest.mark.keras

HYPERMODEL = BUILD.replace("def build_model(hp):", "def _build(hp):") + DATA


FITS = {
    "passes all on": ("*args, **kwargs", "return model.fit(*args, **kwargs)", [1, 2]),
    "tunes epochs": (
        "*args, **kwargs",
        'return model.fit(*args, epochs=hp.Int("epochs", 3, 5), **kwargs)',
        [1, 2, 3],
    ),
    "tunes the batch size": (
        "*args, **kwargs",
        'return model.fit(*args, batch_size=hp.Choice("batch_size", [4, 8]), **kwargs)',
        [1, 2],
    ),
    "names what it takes": (
        "x, y, validation_data, callbacks=None",
        "return model.fit(x, y, validation_data=validation_data, callbacks=callbacks)",
        [1],
    ),
    "names them in another order": (
        "callbacks, *, y, x, **kwargs",
        "return model.fit(x, y, callbacks=deepcopy(callbacks), **kwargs)",
        [1, 2],
    ),
    "trains twice": (
        "x, y, **kwargs",
        "model.fit(x, y, **kwargs)\n        return model.fit(x, y, **kwargs)",
        [1, 2, 3, 4],
    ),
    "swallows the callbacks": (
        "x, y, validation_data, **kwargs",
        "return model.fit(x, y, validation_data=validation_data, epochs=3)",
        [],
    ),
}


@pytest.mark.parametrize(
    ("way", "form"), [*((way, "class") for way in FITS), ("passes all on", "instance")]
)
def test_a_hypermodel_with_its_own_fit(attempts: Attempts, way: str, form: str) -> None:
    signature, body, steps = FITS[way]
    text = f"""{HYPERMODEL}
class Mine(keras_tuner.HyperModel):
    def build(self, hp):
        return _build(hp)

    def fit(self, hp, model, {signature}):
        {body}

{"mine = Mine()" if form == "instance" else ""}
"""
    result = attempts.run(text)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.steps == steps
    assert math.isfinite(result.ending.metrics["val_loss"])
    assert result.ending.step in (steps or [1, 2, 3])
    if way == "tunes epochs":
        assert result.used is None or result.used.values["epochs"] == 3


def test_a_fit_that_has_trained_is_not_called_again(attempts: Attempts) -> None:
    """The model is trained by then, and would be trained further."""
    text = f"""{HYPERMODEL}
class Mine(keras_tuner.HyperModel):
    def build(self, hp):
        return _build(hp)

    def fit(self, hp, model, *args, **kwargs):
        model.fit(*args, **kwargs)
        return model.fit(*args, epochs=3, **kwargs)
"""
    result = attempts.run(text)
    assert (result.ending.cause, result.steps) == (Cause.EXCEPTION, [1, 2])
    assert "model.fit with epochs twice: by name and in **kwargs" in result.ending.reason


@pytest.mark.parametrize(
    ("returned", "value", "metrics"),
    [
        ("0.25", 0.25, {"val_loss"}),
        ("np.float32(0.25)", 0.25, {"val_loss"}),
        ("np.array([0.25])", 0.25, {"val_loss"}),
        ("{'val_loss': keras.ops.convert_to_tensor([0.25])}", 0.25, {"val_loss"}),
        ("{'val_loss': 0.25, 'size': 3, 'note': 'small'}", 0.25, {"val_loss", "size"}),
    ],
)
def test_a_fit_that_returns_its_value(
    attempts: Attempts, returned: str, value: float, metrics: set[str]
) -> None:
    text = f"""{HYPERMODEL}
class Mine(keras_tuner.HyperModel):
    def build(self, hp):
        return _build(hp)

    def fit(self, hp, model, *args, callbacks, **kwargs):
        for callback in callbacks:
            callback.set_model(model)
        for epoch in range(2):
            for callback in callbacks:
                callback.on_epoch_end(epoch, logs={{"val_loss": 1.0 - epoch / 10}})
        return {returned}
"""
    result = attempts.run(text)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.ending.metrics["val_loss"] == value
    assert set(result.ending.metrics) == metrics
    assert result.steps == [1, 2]
    assert (result.directory / "model.keras").exists()


def test_a_fit_may_return_what_no_epoch_reports(attempts: Attempts) -> None:
    """A number is minimised under a name of its own; names in a dict are free; lists are means."""
    text = (
        BUILD.replace('OBJECTIVE = "val_loss"', "").replace(
            '"mse")', '"mse", metrics=["accuracy"])'
        )
        + DATA
        + """
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    history = model.fit(x, y, epochs=epochs, callbacks=callbacks, validation_data=validation)
    return RESULT
"""
    )
    number = text.replace("RESULT", "[4.0, min(history.history['val_loss']) * 0 + 2.0]")
    goals, notes = resolve_goals(attempts.probe(number))
    assert (goals.goal.metric, goals.goal.direction) == ("objective", Direction.MIN)
    assert "the objective is what fit() returns, minimised" in notes[0]
    result = attempts.run(number)
    assert (result.ending.metrics, result.steps) == ({"objective": 3.0}, [1, 2]), result.log

    own = text.replace("RESULT", '{"val_f1": 0.5, "cost": 2.0}')
    assert resolve_goals(attempts.probe(own), ["val_f1:max"])[1] == []
    result = attempts.run(own, objectives=["val_f1:max"])
    assert (result.ending.metrics, result.steps) == ({"val_f1": 0.5, "cost": 2.0}, [1, 2])
    measured = attempts.run(own, objectives=["params:min"]).ending
    assert (set(measured.metrics), measured.step) == ({"val_f1", "cost", "params"}, None)

    for each in ("[history, history]", "[[history.history], [history]]", "history.history"):
        folds = text.replace("RESULT", each)
        result = attempts.run(folds, objectives=["val_loss"])
        least = min(metrics["val_loss"] for _, metrics in result.reports)
        assert result.ending.metrics["val_loss"] == least, result.ending


@pytest.mark.parametrize(
    ("goal", "returned", "callbacks", "expected"),
    [
        ("loss", "[history, history]", "callbacks", ({"loss"}, None)),
        ("val_loss", "[history, history]", "callbacks", ({"val_loss"}, None)),
        ("val_loss", "history", "None", ({"loss", "val_loss"}, 4)),
        ("val_loss", "history.history", "None", ({"loss", "val_loss"}, 4)),
        ("val_loss", "history", "callbacks", ({"loss", "val_loss"}, 4)),
    ],
)
def test_a_fit_that_validates_every_second_epoch(
    attempts: Attempts, goal: str, returned: str, callbacks: str, expected: tuple[set[str], object]
) -> None:
    text = f"""{BUILD}{DATA}
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    history = model.fit(x, y, validation_data=validation, validation_freq=2, epochs=epochs,
                        callbacks={callbacks})
    return {returned}
"""
    ending = attempts.run(text, epochs=4, objectives=[goal]).ending
    assert ending.cause is Cause.RETURNED, ending
    assert (set(ending.metrics), ending.step) == expected


def test_a_fit_whose_history_was_taken_for_a_number_says_what_to_name(attempts: Attempts) -> None:
    text = BUILD.replace('OBJECTIVE = "val_loss"', "") + DATA
    text += """
def fit(hp, model, data, callbacks, epochs):
    return trained(model, data, callbacks)

def trained(model, data, callbacks):
    (x, y), validation = data
    return model.fit(x, y, callbacks=callbacks, validation_data=validation)
"""
    assert resolve_goals(attempts.probe(text))[0].goal.metric == "objective"
    result = attempts.run(text)
    assert result.ending.cause is Cause.UNKNOWN_METRIC
    assert "fit() returned a History and no number: name the metric" in result.ending.reason
    assert result.ending.reason.endswith("the trial reports: loss, val_loss")


@pytest.mark.parametrize("returned", ["history", "{'val_loss': history.history['val_loss'][-1]}"])
def test_a_fit_that_trains_another_model_has_that_one_kept(
    attempts: Attempts, tmp_path: Path, returned: str
) -> None:
    text = f"""{BUILD}{DATA}
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    other = build_model(hp)
    other.compile("sgd", "mse")
    history = other.fit(
        x, y, validation_data=validation, epochs=epochs, callbacks=callbacks, shuffle=False
    )
    return {returned}
"""
    result = attempts.run(text, epochs=2)
    assert result.ending.cause is Cause.RETURNED, result.log
    measured = evaluated(attempts, tmp_path / "model.py", result.directory / "model.keras")
    assert measured == pytest.approx(result.ending.metrics["val_loss"], abs=1e-5)


LORA = f"""{BUILD}{DATA}
def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    some = {{"validation_data": validation, "callbacks": callbacks}}
    model.fit(x, y, **some)
    model.layers[0].enable_lora(2)
    model.compile(keras.optimizers.SGD(10.0), "mse")
    history = model.fit(x, y, **some)
    model.name
    return history
"""


def test_only_epochs_since_lora_was_enabled_are_those_of_the_kept_model(
    attempts: Attempts, tmp_path: Path
) -> None:
    """The others are of a model with fewer weights."""
    result = attempts.run(LORA, epochs=2)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.ending.metrics["val_loss"] > result.reports[0][1]["val_loss"]
    measured = evaluated(attempts, tmp_path / "model.py", result.directory / "model.keras")
    assert measured == pytest.approx(result.ending.metrics["val_loss"], abs=1e-5)
    result = attempts.run(LORA.replace("model.name", "model.quantize('int8')"), epochs=2)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert "The model is kept as it is, and not as after its best epoch" in result.log


@pytest.mark.parametrize("built", ["(object(), object())", "Own()"])
def test_a_fit_that_trains_no_keras_model(attempts: Attempts, built: str) -> None:
    result = attempts.run(
        f"""
        OBJECTIVE = "value:max"

        class Own:
            pass

        def build_model(hp):
            hp.Float("x", 0, 1)
            return {built}

        def load_data():
            return None

        def fit(hp, model, data, callbacks, epochs):
            return 1.0
        """
    )
    assert result.ending.cause is Cause.RETURNED, result.log
    assert "has no method save" in result.log


@pytest.mark.parametrize(
    ("returned", "cause", "words"),
    [
        ("'good'", Cause.EXCEPTION, "fit() returned str"),
        ("None", Cause.EXCEPTION, "fit() returned NoneType"),
        ("{'other': 1.0}", Cause.UNKNOWN_METRIC, "the study needs the metric 'val_loss'"),
        ("float('nan')", Cause.RETURNED, ""),  # which the engine rejects
    ],
)
def test_a_fit_that_returns_no_value(
    attempts: Attempts, returned: str, cause: Cause, words: str
) -> None:
    fit = f"\ndef fit(hp, model, data, callbacks, epochs):\n    return {returned}\n"
    result = attempts.run(BUILD + DATA + fit)
    assert result.ending.cause is cause
    assert words in result.ending.reason


def test_a_hypermodel_may_make_its_own_data(attempts: Attempts) -> None:
    fit = """
    def fit(self, hp, model, **keywords):
        return model.fit(*arrays(32), validation_data=arrays(8), **keywords)
"""
    build = BUILD.replace("def build_model(hp):", "def _build(hp):")
    text = f"{build}\nclass Model(keras_tuner.HyperModel):\n    build = staticmethod(_build)\n{fit}"
    assert attempts.run(text).ending.cause is Cause.RETURNED


ADDS_A_METRIC = """
class Extra(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        logs["val_extra"] = 1.0 / (1 + epoch)

def fit(hp, model, data, callbacks, epochs):
    (x, y), validation = data
    model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), "mse")
    return model.fit(x, y, validation_data=validation, epochs=epochs, callbacks=[*callbacks, MORE])
"""


def test_a_callback_after_ours_may_add_a_metric(attempts: Attempts) -> None:
    text = BUILD + DATA + ADDS_A_METRIC.replace("MORE", "Extra()")
    result = attempts.run(text, objectives=["val_extra:min"], epochs=3)
    assert result.ending.cause is Cause.RETURNED, result.log
    assert result.ending.metrics["val_extra"] == pytest.approx(1 / 3)
    assert [metrics["val_extra"] for _, metrics in result.reports] == pytest.approx(
        [1, 1 / 2, 1 / 3]
    )


@pytest.mark.parametrize("at_epochs", [True, False])
def test_the_kept_model_has_the_weights_that_were_validated(
    attempts: Attempts, tmp_path: Path, at_epochs: bool
) -> None:
    """This callback exchanges the weights with their averages for the validation."""
    swap = f"keras.callbacks.SwapEMAWeights(swap_on_epoch={at_epochs})"
    result = attempts.run(BUILD + DATA + ADDS_A_METRIC.replace("MORE", swap), epochs=3)
    assert result.ending.cause is Cause.RETURNED, result.log
    measured = evaluated(attempts, tmp_path / "model.py", result.directory / "model.keras")
    assert measured == pytest.approx(result.ending.metrics["val_loss"], abs=1e-5)
