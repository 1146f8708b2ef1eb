"""The names of a Keras model's metrics are read from the model, before the first trial."""

from __future__ import annotations

import pytest

from attempts import Attempts
from hptune.config.objectives import resolve_goals
from hptune.core.attempt import Cause
from hptune.core.goals import MEASURED
from hptune.errors import ModelFileError, UnknownMetricError
from hptune.user_code.source import Found
from hptune.worker.forkserver.client import ForkServer
from keras_models import BUILD, DATA

pytestmark = pytest.mark.keras
ON_TENSORFLOW = pytest.mark.tensorflow  # which each child would import elsewhere

KINDS = {
    "text": ('"mae"', ["mae"]),
    "the same twice": ('"mae"', ["mae_1"]),
    "class": ("keras.metrics.MeanSquaredError", ["mean_squared_error"]),
    "object": ('keras.metrics.MeanSquaredError(name="own")', ["own"]),
    "function": ("bias", ["bias"]),
    "partial": ("functools.partial(bias)", ["partial"]),
    "lambda": ("lambda y, p: bias(y, p)", ["lambda"]),
    "callable object": ("Other()", ["other"]),
    "dict": ("Pair()", ["low", "high"]),
}
NAMES = [(kind, name) for kind, (_, names) in KINDS.items() for name in names]
CODE = """
import functools

def bias(y, p):
    return keras.ops.mean(p - y)

class Other:
    def __call__(self, y, p):
        return bias(y, p)

class Pair(keras.metrics.Mean):
    def update_state(self, y, p, sample_weight=None):
        return super().update_state(bias(y, p))

    def result(self):
        return {"low": super().result(), "high": super().result() + 1}
"""


def measuring(metrics: str, data: str = DATA) -> str:
    """Return a model file whose model is compiled with these metrics."""
    return BUILD.replace('"mse")', f'"mse", metrics={metrics})') + CODE + data


class Seen:
    """A model with a metric of each kind: what is known before a trial, and what one reports."""

    def __init__(self, attempts: Attempts) -> None:
        text = measuring(f"[{', '.join(made for made, _ in KINDS.values())}]")
        self.found = attempts.probe(text)
        result = attempts.run(text, epochs=1)
        assert result.ending.cause is Cause.RETURNED, result.log
        self.reported = {*result.reports[0][1]}


@pytest.fixture(scope="module")
def seen(warm_keras: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return Seen(Attempts(warm_keras, tmp_path_factory.mktemp("kinds")))


@pytest.mark.parametrize("way", ["objective", "with val_", "constraint"])
@pytest.mark.parametrize(("kind", "name"), NAMES, ids=str)
def test_a_metric_of_each_kind_can_be_named_in_each_way(
    seen: Seen, kind: str, name: str, way: str
) -> None:
    name = f"val_{name}" if way == "with val_" else name
    named = ([], [f"{name}<1"]) if way == "constraint" else ([f"{name}:min"], [])
    goals, notes = resolve_goals(seen.found, *named)
    assert name in goals.metrics
    assert not any(name in note for note in notes), kind
    assert name in seen.reported


def test_the_names_of_the_probe_are_those_of_the_trial(seen: Seen) -> None:
    assert {*seen.found.metrics} - {*MEASURED} == seen.reported
    assert not seen.found.reports_others
    with pytest.raises(UnknownMetricError, match="is called 'pair'"):
        resolve_goals(seen.found, ["pair:min"])


@pytest.mark.parametrize(
    ("metrics", "default"),
    [
        ('[["accuracy"]]', "val_accuracy"),
        ('{"dense_1": ["acc"]}', "val_acc"),
        ('["mae"]', "val_loss"),
    ],
)
def test_the_default_is_the_accuracy_wherever_it_is_given(
    attempts: Attempts, metrics: str, default: str
) -> None:
    assert attempts.probe(measuring(metrics)).metric == default


SEVERAL = """
def load_data():
    x, _ = arrays(32)
    y = keras.utils.to_categorical((x[:, 0] > 0).astype(int) + (x[:, 1] > 0), 3)
    return (x, y), (x[:8], y[:8])
"""


def of_classes(metrics: str) -> str:
    text = measuring(metrics, SEVERAL).replace("Dense(1)", 'Dense(3, "softmax")')
    return text.replace('"mse", metrics', '"categorical_crossentropy", metrics')


def test_a_vector_is_no_objective_and_is_left_out_with_a_line(attempts: Attempts) -> None:
    found = attempts.probe(of_classes("[keras.metrics.F1Score(average=None)]"))
    for name in ("val_f1_score:max", "f1_score:max"):
        with pytest.raises(UnknownMetricError, match=r'several numbers.*average="macro"'):
            resolve_goals(found, [name])
    _, notes = resolve_goals(found, ["val_loss"])
    assert [note for note in notes if "left out" in note and "f1_score" in note]
    found = attempts.probe(of_classes('[keras.metrics.F1Score(average="macro")]'))
    assert resolve_goals(found, ["val_f1_score:max"])[1] == []


def test_a_metric_of_some_configurations_is_named(attempts: Attempts) -> None:
    found: Found = attempts.probe(measuring('["mae"] if hp.Boolean("deep") else ["mape"]'))
    with pytest.raises(UnknownMetricError, match="measures 'val_mae': not with the default"):
        resolve_goals(found, ["val_mae"])
    with pytest.raises(UnknownMetricError, match=r"measures 'mape': not with .*deep=True"):
        resolve_goals(found, [], ["mape<3"])
    assert resolve_goals(found, ["val_loss"])[1] == []


OWN_STEP = """
class Own(keras.Sequential):
    def train_step(self, data):
        return {**super().train_step(data), "mine": 1.0}
"""


def test_a_step_of_the_users_own_may_report_others(attempts: Attempts) -> None:
    text = measuring("[]").replace("model = keras.Sequential", "model = Own") + OWN_STEP
    found = attempts.probe(text)
    assert found.reports_others
    assert found.metric == "val_loss"
    resolve_goals(found, ["mine:max"])


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("return (x, y), (x, y[:, :2])", "does not fit the validation data.*same shape"),
        ("return (x[:, :1], y), None", "does not fit the data.*expected axis -1"),
        ("return (x, y[:, :2]), None", "same shape"),
        ("return ((x, x), y[:, 0]), None", "same shape|same rank"),
        pytest.param("return tf(x, y[:, :2]), None", "same shape", marks=ON_TENSORFLOW),
        pytest.param(
            "return (x, y), tf(x[:, :1], y)",
            "does not fit the validation data",
            marks=ON_TENSORFLOW,
        ),
        ("return Batches(x[:, :1], y), None", "does not fit the data"),
    ],
)
def test_a_wrong_shape_is_found_before_the_first_trial(
    attempts: Attempts, data: str, words: str
) -> None:
    text = f"""
def tf(*parts):
    import tensorflow
    return tensorflow.data.Dataset.from_tensor_slices(parts).batch(8)

class Batches(keras.utils.PyDataset):
    def __init__(self, *parts):
        super().__init__()
        self.parts = parts

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return self.parts

def load_data():
    x, y = arrays(32)[0], np.eye(3)[[0, 1] * 16]
    {data}
"""
    with pytest.raises(ModelFileError, match=words):
        attempts.probe(of_classes("[]").replace(SEVERAL, text))
