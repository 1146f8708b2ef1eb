"""Reading a Keras model file in a child: its space, and what it can be judged by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from attempts import Attempts
from hptune.core.space.space import SearchSpace
from hptune.errors import ModelFileError
from hptune.user_code.model_file import check_path
from hptune.user_code.source import Found
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.orders import ProbeOrder

pytestmark = pytest.mark.keras

KERAS = """
import keras

def build_model(hp):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 1, 4))])
    model.compile("sgd", "mse")
    return model

def load_data():
    import numpy
    x, y = numpy.zeros((4, 2)), numpy.zeros(4)
    return (x, y), (x, y)
"""


@pytest.fixture
def probe(attempts: Attempts) -> Any:
    return attempts.probe


def test_a_loss_without_source(probe: Any) -> None:
    loss = 'eval("lambda y, p: (y - p) ** 2"), metrics=["mae", keras.metrics.MeanSquaredError()]'
    found = probe(KERAS.replace('"mse"', loss))
    assert {"val_mae", "val_mean_squared_error"} <= set(found.metrics)


def test_names_for_which_keras_chooses_by_the_data(probe: Any) -> None:
    for loss in ('"crossentropy"', '"CE"'):
        by_data = f'{loss}, metrics=["accuracy", "ACC", "acc"]'
        assert "val_accuracy" in probe(KERAS.replace('"mse"', by_data)).metrics
    with pytest.raises(ModelFileError, match="the metric is 'ce', which Keras does not know"):
        probe(KERAS.replace('"mse"', '"mse", metrics=["ce"]'))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("    return model", ""), ["build_model(hp) returned None", "compiled Keras model"]),
        (("    return model", "    return 3"), ["build_model(hp) returned 3"]),
        (
            ("    return model", "    return type('Forest', (), {'fit': print})()"),
            ["compiled Keras model; train other models in objective(hp, trial)"],
        ),
        (('    model.compile("sgd", "mse")\n', ""), ["not compiled", "model.compile"]),
        (
            ("    return model", "    return keras.Sequential"),
            ["returned the class Sequential", "Sequential(…)"],
        ),
        (('"mse"', '"mse", metrics=["acuracy"]'), ["the metric is 'acuracy'", "accuracy?"]),
        (('"mse"', '"mse", weighted_metrics=["maee"]'), ["the metric is 'maee'"]),
        (("mse", "mean_squared_eror"), ["the loss is 'mean_squared_eror'", "mean_squared_error?"]),
        (("def load_data", "def read_data"), ["no load_data()", "((x, y), (x_val, y_val))"]),
        (("return (x, y), (x, y)", "return x, y, x, y"), ["a tuple of 4", "(train, validation)"]),
        (("return (x, y), (x, y)", "return x, y"), ["two arrays", "((x, y), (x_val, y_val))"]),
        (("return (x, y), (x, y)", "return x"), ["a ndarray", "(train, validation)"]),
        (("return (x, y), (x, y)", "return (x, y, x, y), None"), ["data of 4 parts", "(x, y)"]),
        (
            ("return (x, y), (x, y)", "return (x, y), (x[:0], y[:0])"),
            ["has no sample", "None"],
        ),
        (
            ("return (x, y), (x, y)", "return (x, y[:3]), (x, y)"),
            ["the training data has unequal lengths: x has 4, y has 3; give each sample"],
        ),
        (
            ("return (x, y), (x, y)", "return (x, y, y[:2]), None"),
            ["the training data has unequal lengths: x has 4, y has 4, sample_weight has 2"],
        ),
        (
            ("return (x, y), (x, y)", "return (x, y), (x[:1], y)"),
            ["the validation data has unequal lengths: x has 1, y has 4"],
        ),
        (("return (x, y), (x, y)", "pass"), ["a NoneType", "(train, validation)"]),
    ],
)
def test_a_keras_file_that_cannot_work(
    probe: Any, change: tuple[str, str], words: list[str]
) -> None:
    with pytest.raises(ModelFileError) as caught:
        probe(KERAS.replace(*change))
    for word in words:
        assert word in caught.value.message
    assert caught.value.detail == ""


@pytest.mark.parametrize(
    ("loss", "labels", "words"),
    [
        ('"sparse_categorical_crossentropy"', "[1, 2, 3, 4]", "labels from 1 to 4"),
        ("keras.losses.SparseCategoricalCrossentropy()", "[-1, 0, 1, 2]", "labels from -1 to 2"),
        ("keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)", "[-1, 0, 1, 3]", ""),
        ("keras.losses.sparse_categorical_crossentropy", "[0., 1., 2., 4.]", "from 0 to 4"),
        ('"sparse_categorical_crossentropy"', "[0, 1, 2, 3]", ""),
        ('"mse"', "[1, 2, 3, 4]", ""),
    ],
)
@pytest.mark.parametrize("kind", ["training", "validation"])
def test_labels_that_are_no_class_of_the_model(
    probe: Any, loss: str, labels: str, words: str, kind: str
) -> None:
    pair = f"(x, numpy.array({labels}))"
    data = f"return {pair}, (x, y)" if kind == "training" else f"return (x, y), {pair}"
    text = KERAS.replace('"mse"', loss).replace("return (x, y), (x, y)", data)
    text = text.replace('hp.Int("units", 1, 4)', '4 + 0 * hp.Int("units", 1, 4)')
    if not words:
        assert "val_loss" in probe(text).metrics
        return
    with pytest.raises(ModelFileError, match=f"^y of the {kind} data.*{words}.*takes 0 to 3"):
        probe(text)


OWN_FIT = """
import keras, keras_tuner

class Own(keras_tuner.HyperModel):
    def build(self, hp):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 1, 4))])
        model.compile("sgd", "mse")
        return model

    def fit(self, hp, model, *args, **kwargs):
        return model.fit(*args, **kwargs)
"""


def test_a_fit_that_gets_no_data_to_pass_on(probe: Any) -> None:
    with pytest.raises(ModelFileError, match=r"calls model\.fit without data, and .* no load_data"):
        probe(OWN_FIT)
    own_data = OWN_FIT.replace("(*args, **kwargs)", "([[1.0, 2.0]], [1.0], **kwargs)")
    assert names(probe(own_data)) == {"units"}


def test_a_fit_of_ones_own_may_take_data_of_unequal_lengths(probe: Any) -> None:
    text = OWN_FIT.replace("*args, **kwargs", "x, y, **kwargs").replace(
        "(x, y, **kwargs)\n", "(x[:3], y, **kwargs)\n"
    )
    data = "\ndef load_data():\n    import numpy\n    return (numpy.zeros((4, 2)), numpy.zeros(3))"
    assert names(probe(f"{text}{data}, None\n")) == {"units"}


def test_a_list_of_samples_is_passed_on_whole(probe: Any) -> None:
    text = OWN_FIT.replace("*args, **kwargs", "samples, **kwargs").replace(
        "(samples, **kwargs)\n", "(x=samples, y=hp.Int('samples', 1, len(samples)), **kwargs)\n", 1
    )
    found = probe(text + "\ndef load_data():\n    return [(1, 2)] * 5, None\n")
    declared = {each.name: each.values for each in SearchSpace.from_json(found.space)}
    assert declared["samples"] == range(1, 6)


def test_a_fit_that_sets_its_own_epochs_is_noticed(probe: Any) -> None:
    data = KERAS.partition("def load_data")[2]
    for sets, own in (
        ("**{**kwargs, 'epochs': 7}", 7),
        ("epochs=7, **kwargs", 7),
        ("epochs=hp.Int('n', 3, 7), **kwargs", None),
        ("**kwargs", None),
    ):
        text = OWN_FIT.replace("(*args, **kwargs)\n", f"(*args, {sets})\n")
        found = probe(text + "\ndef load_data" + data)
        assert found.own_epochs == own, sets


def test_what_a_fit_is_called_with_has_no_inner_name(probe: Any) -> None:
    text = OWN_FIT.replace(
        "return model.fit", "print(kwargs['callbacks'][0].best)\n        model.fit"
    )
    with pytest.raises(Exception, match="'Callback' object has no attribute 'best'") as caught:
        probe(text + "\ndef load_data" + KERAS.partition("def load_data")[2])
    assert "locals" not in str(caught.value)


def names(found: Found) -> set[str]:
    return {parameter.name for parameter in SearchSpace.from_json(found.space)}


def test_a_keras_file(probe: Any) -> None:
    found = probe(KERAS)
    assert (found.is_keras, names(found), found.warnings) == (True, {"units"}, ())
    assert found.is_complete


@pytest.mark.parametrize(
    ("change", "metric"),
    [
        (("", ""), "val_loss"),
        (('"mse")', '"mse", metrics=["mae", "accuracy"])'), "val_accuracy"),
        (('"mse")', '"mse", metrics=["acc"])'), "val_acc"),
        (('"mse")', '"mse", metrics=[keras.metrics.BinaryAccuracy()])'), "val_binary_accuracy"),
        (('"mse")', '"mse", metrics=[keras.metrics.Accuracy(name="hits")])'), "val_loss"),
        (('"mse")', '"mse", metrics=["mae"])'), "val_loss"),
        (('"mse")', '"mse", metrics={"dense": ["mae", "accuracy"]})'), "val_accuracy"),
        (("return (x, y), (x, y)", "return (x, y), None"), "loss"),
    ],
)
def test_what_a_model_can_be_judged_by(probe: Any, change: tuple[str, str], metric: str) -> None:
    """The name is the one that its training reports."""
    text = KERAS.replace(*change) if change[0] else KERAS
    assert probe(text).metric == metric


def test_a_training_loop_of_the_users_own_is_not_waited_for(
    warm_keras: ForkServer, tmp_path: Path
) -> None:
    model = tmp_path / "model.py"
    model.write_text(
        KERAS
        + """
def fit(hp, model, data, callbacks, epochs):
    hp.Choice("batch_size", [1, 2])
    import threading
    threading.Event().wait()
"""
    )
    order = ProbeOrder(check_path(model), str(tmp_path), quiet_seconds=3.0)
    found = warm_keras.probe(order)
    assert names(found) == {"units", "batch_size"}
    assert (found.metric, found.is_complete) == ("val_loss", False)


def test_conditions_and_branches_are_opened(probe: Any) -> None:
    build = """
    layers = hp.Int("layers", 1, 3)
    for i in range(layers):
        hp.Int(f"units_{i}", 1, 8)
    if hp.Boolean("norm"):
        hp.Float("momentum", 0.1, 0.9)
    head = hp.Choice("head", ["flat", "pool", "attention"])
    with hp.conditional_scope("head", ["attention"]):
        if head == "attention":
            kind = hp.Choice("kind", ["dot", "additive"])
            with hp.conditional_scope("kind", ["additive"]):
                if kind == "additive":
                    hp.Int("attention_units", 1, 8)
    if head == "pool":
        hp.Choice("pooling", ["max", "mean"])
    """
    found = probe(KERAS.replace("    model.compile", f"{build.rstrip()}\n    model.compile"))
    assert names(found) == {
        "units", "layers", "units_0", "units_1", "units_2", "norm", "momentum", "head", "kind",
        "attention_units", "pooling",
    }  # fmt: skip


@pytest.mark.parametrize("passes_callbacks", [True, False])
def test_the_users_own_training_is_read_and_not_run(probe: Any, passes_callbacks: bool) -> None:
    """A training loop of the user's own is read up to its first epoch."""
    loop = """
    for callback in callbacks:
        callback.on_train_begin()
    """
    found = probe(
        KERAS
        + f"""
def fit(hp, model, data, callbacks, epochs):
    hp.Choice("batch_size", [1, 2])
    {"".join(loop) if passes_callbacks else ""}
    model.fit(*data[0], epochs=hp.Int("epochs", 1, 3))
    raise SystemError("it trained")
"""
    )
    expected = {"units", "batch_size"} if passes_callbacks else {"units", "batch_size", "epochs"}
    assert names(found) == expected


@pytest.mark.parametrize(
    ("signature", "keywords"),
    [
        ("x, y, **kwargs", "**kwargs"),
        ("*args, **kwargs", "**kwargs"),
        ("x, y, validation_data, callbacks=None", ""),
        ("x, y, validation_data, callbacks, epochs", ""),
        ("x, y, of_search, **kwargs", "**kwargs"),
    ],
)
def test_a_hypermodel_with_its_own_fit(probe: Any, signature: str, keywords: str) -> None:
    found = probe(f"""
import keras
import keras_tuner

FIT = {{"of_search": 1}} if "of_search" in "{signature}" else {{}}

class Mine(keras_tuner.HyperModel):
    def build(self, hp):
        model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 1, 4))])
        model.compile("sgd", "mse")
        if model.count_params() == 3:
            raise keras_tuner.errors.FailedTrialError("too small")
        return model

    def fit(self, hp, model, {signature}):
        model = self.build(hp)  # as for each fold of a cross-validation
        return model.fit(
            epochs=hp.Int("epochs", 1, 3), batch_size=hp.Choice("batch_size", [1, 2]), {keywords}
        )

def load_data():
    import numpy
    x, y = numpy.zeros((4, 2)), numpy.zeros(4)
    return (x, y), (x, y)
""")
    assert names(found) == {"units", "epochs", "batch_size"}
    assert not found.warnings, "a configuration that the code gives up is no mistake"


def test_a_model_that_is_pruned_when_it_is_built_is_no_mistake(probe: Any) -> None:
    found = probe("""
import keras
import hptune

def build_model(hp):
    units = hp.Choice("units", [1, 2])
    if hp.Boolean("is_wide"):
        raise hptune.TrialPruned
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(units)])
    model.compile("sgd", "mse")
    return model

def load_data():
    import numpy
    x, y = numpy.zeros((4, 2)), numpy.zeros(4)
    return (x, y), (x, y)
""")
    assert names(found) == {"units", "is_wide"}
    assert not found.warnings


def test_keras_tuner_itself_neither_searches_nor_ends_a_study_unseen(
    probe: Any, tmp_path: Path
) -> None:
    """What other tests do with stand-ins for KerasTuner is true of it."""
    text = f"""
import keras
import keras_tuner
from hptune.training.context import stated_cause

def model_builder(hp):
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(hp.Int("units", 1, 4))])
    model.compile("sgd", "mse")
    return model

OBJECTIVE = [keras_tuner.Objective("val_loss", "min")]
errors = keras_tuner.errors
stated = [stated_cause(each("")) for each in (errors.FatalValueError, errors.FailedTrialError)]
assert stated == ["fatal error", "given up"]
search = keras_tuner.RandomSearch(model_builder, "val_loss", directory={str(tmp_path)!r})
SEARCH
def load_data():
    import numpy
    x, y = numpy.zeros((4, 2)), numpy.zeros(4)
    return (x, y), (x, y)
"""
    with pytest.raises(ModelFileError, match="runs a search when it is imported"):
        probe(text.replace("SEARCH", "search.search([1], [2])"))
    found = probe(text.replace("SEARCH", "print(search.search)"))
    assert (found.entry, names(found)) == ("model_builder", {"units"})
    assert found.constants["OBJECTIVE"] == ("val_loss:min",)
