"""LARS and LAMB against steps computed by hand, against optax, and Keras where it agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from child import answer_of
from hptune.core.space.space import SearchSpace
from hptune.training.hyperparameters import make_hyperparameters
from requirements import require

require("keras")

STEPS = 4
K = (3, 3, 2, 2)
Array = NDArray[np.float64]


def norm(values: Array) -> float:
    return float(np.linalg.norm(values))


def gradients() -> list[list[Array]]:
    rng = np.random.default_rng(0)
    return [
        # The last one has the shape of a convolution's kernel.
        [*(rng.normal(size=shape) for shape in ((3, 2), 2)), np.zeros((2, 2)), rng.normal(size=K)]
        for _ in range(STEPS)
    ]


def start() -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(3, 2)), np.zeros(2), np.zeros((2, 2)), rng.normal(size=K)]


def as_lists() -> list[Any]:
    """Return the start and the gradients of all steps."""
    return [[x.tolist() for x in start()], [[x.tolist() for x in step] for step in gradients()]]


def trained(optimizer: Any, steps: list[list[Array]]) -> list[Array]:
    import keras

    variables = [keras.Variable(each, dtype="float64") for each in start()]
    for step in steps:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in step], variables)
    return [keras.ops.convert_to_numpy(each + 0.0) for each in variables]


def lars_by_hand(decay: float = 0.1) -> list[Array]:
    weights, momenta = start(), [np.zeros_like(each) for each in start()]
    for step in gradients():
        for i, (w, g) in enumerate(zip(weights, step, strict=True)):
            rate, update = 2.0, g
            if w.ndim > 1:
                if norm(w) and norm(g):
                    rate = 2.0 * 0.01 * norm(w) / (norm(g) + decay * norm(w))
                update = g + decay * w
            momenta[i] = 0.8 * momenta[i] + rate * update
            weights[i] = w - momenta[i]
    return weights


def lamb_by_hand() -> list[Array]:
    weights = start()
    first = [np.zeros_like(each) for each in weights]
    second = [np.zeros_like(each) for each in weights]
    for t, step in enumerate(gradients(), start=1):
        for i, (w, g) in enumerate(zip(weights, step, strict=True)):
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g**2
            update = first[i] / (1 - 0.9**t) / (np.sqrt(second[i] / (1 - 0.999**t)) + 1e-6)
            rate = 0.05
            if w.ndim > 1:
                update = update + 0.1 * w
                if norm(w) and norm(update):
                    rate *= norm(w) / norm(update)
            weights[i] = w - rate * update
    return weights


def assert_equal(found: list[Any], expected: list[Array], *, rtol: float, atol: float) -> None:
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=rtol, atol=atol)


def test_lars_is_that_of_its_paper() -> None:
    from hptune.optimizers import Lars

    found = trained(Lars(2.0, 0.8, weight_decay=0.1, trust_coefficient=0.01), gradients())
    assert_equal(found, lars_by_hand(), rtol=1e-6, atol=1e-9)


def test_lamb_is_that_of_its_paper() -> None:
    from hptune.optimizers import Lamb

    found = trained(Lamb(0.05, weight_decay=0.1), gradients())
    assert_equal(found, lamb_by_hand(), rtol=1e-5, atol=1e-9)


STEPS_OF_A_BACKEND = """
import json, sys

import keras
from hptune.optimizers import Lamb, Lars

start, gradients = json.load(sys.stdin)
made = {
    "lars": Lars(2.0, 0.8, weight_decay=0.1, trust_coefficient=0.01),
    "lamb": Lamb(0.05, weight_decay=0.1),
}
found = {"backend": keras.backend.backend()}
for name, optimizer in made.items():
    variables = [keras.Variable(each, dtype="float32") for each in start]
    for step in gradients:
        optimizer.apply([keras.ops.convert_to_tensor(g, "float32") for g in step], variables)
    found[name] = [keras.ops.convert_to_numpy(each.value).tolist() for each in variables]
print(json.dumps(found))
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["jax", "torch"])
def test_the_steps_are_the_same_on_other_backends(backend: str) -> None:
    require(backend)
    found = answer_of(STEPS_OF_A_BACKEND, given=as_lists(), KERAS_BACKEND=backend)
    assert found["backend"] == backend
    assert_equal(found["lars"], lars_by_hand(), rtol=1e-5, atol=1e-6)
    assert_equal(found["lamb"], lamb_by_hand(), rtol=1e-5, atol=1e-6)


STEPS_OF_OPTAX = """
import json, sys

import numpy as np
import optax

start, gradients = json.load(sys.stdin)
as_arrays = lambda lists: [np.array(each, "float32") for each in lists]
scaled = [each.ndim > 1 for each in as_arrays(start)]
# With decay, the ratio of optax's LARS is that of |g + d w|; the paper's is of |g| + d |w|.
lars = optax.lars(2.0, 0.0, trust_coefficient=0.01, momentum=0.8, trust_ratio_mask=scaled)
lamb_steps = [
    optax.scale_by_adam(eps=1e-6),
    optax.add_decayed_weights(0.1, scaled),
    optax.masked(optax.scale_by_trust_ratio(), scaled),  # optax.lamb scales the biases too
    optax.scale_by_learning_rate(0.05),
]
found = []
for optimizer in (lars, optax.chain(*lamb_steps)):
    weights = as_arrays(start)
    state = optimizer.init(weights)
    for step in gradients:
        updates, state = optimizer.update(as_arrays(step), state, weights)
        weights = optax.apply_updates(weights, updates)
    found.append([np.asarray(each).tolist() for each in weights])
print(json.dumps(found))
"""


def test_optax_takes_the_same_steps() -> None:
    require("optax")
    lars, lamb = answer_of(STEPS_OF_OPTAX, given=as_lists())
    assert_equal(lars, lars_by_hand(decay=0.0), rtol=1e-5, atol=1e-6)
    assert_equal(lamb, lamb_by_hand(), rtol=1e-5, atol=1e-6)


def test_lamb_without_decay_is_keras_where_all_is_scaled() -> None:
    import keras

    from hptune.optimizers import Lamb

    steps = [step[:1] for step in gradients()]
    (ours,) = trained(Lamb(0.05, weight_decay=0.0), steps)[:1]
    (theirs,) = trained(keras.optimizers.Lamb(0.05, epsilon=1e-6), steps)[:1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize("kind", ["Lars", "Lamb"])
def test_a_variable_may_be_excluded_from_decay(kind: str) -> None:
    import keras

    from hptune import optimizers

    def stepped(decay: float, excluded: str) -> tuple[Array, Array]:
        optimizer = getattr(optimizers, kind)(0.1, weight_decay=decay)
        optimizer.exclude_from_weight_decay(var_names=[excluded])
        names = ("first", "second")
        both = [keras.Variable(start()[0], dtype="float64", name=name) for name in names]
        optimizer.apply([keras.ops.convert_to_tensor(gradients()[0][0])] * 2, both)
        first, second = (keras.ops.convert_to_numpy(each + 0.0) for each in both)
        return first, second

    first, second = stepped(0.1, "first")
    assert np.array_equal(first, stepped(0.0, "none")[0])
    assert np.array_equal(second, stepped(0.1, "none")[1])
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("kind", ["Lars", "Lamb"])
def test_an_embedding_may_read_a_row_several_times(kind: str) -> None:
    """TensorFlow has the gradient of an embedding as a list of rows."""
    import keras
    import tensorflow as tf

    import hptune.optimizers

    values = gradients()[0][0]
    rows = tf.IndexedSlices(tf.constant(values), tf.constant([1, 1, 0]), tf.constant([3, 2]))
    table = np.stack([values[2], values[0] + values[1], np.zeros(2)])
    found = []
    for gradient in (rows, tf.constant(table)):
        variable = keras.Variable(start()[0], dtype="float64")
        optimizer = getattr(hptune.optimizers, kind)(0.5, weight_decay=0.1)
        for _ in range(2):
            optimizer.apply([gradient], [variable])
        found.append(keras.ops.convert_to_numpy(variable + 0.0))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-9)


def test_the_schedule_counts_epochs_and_all_are_saved_with_a_model() -> None:
    import keras

    from hptune.optimizers import Lamb, Lars, WarmUp

    for steps_per_epoch in (10, 40):  # two batch sizes: the same rate at the same epoch
        rates = WarmUp(4.0, epochs=10, steps_per_epoch=steps_per_epoch, warm_up_epochs=2)
        at = [float(rates(epoch * steps_per_epoch)) for epoch in (1, 2, 6, 10)]
        assert at[0] == pytest.approx(2.0, rel=0.11)
        assert at[1:] == pytest.approx([4.0, 1.0, 0.0])
        assert float(rates(0)) > 0.0
    with pytest.raises(ValueError, match="warm_up_epochs is 11; allowed are 0 to 10"):
        WarmUp(1.0, epochs=10, steps_per_epoch=5, warm_up_epochs=11)
    for kind in (Lars, Lamb):
        made = kind(WarmUp(1.0, 3, 5, 1), weight_decay=0.3)
        again = keras.optimizers.deserialize(keras.optimizers.serialize(made))
        assert type(again) is kind
        assert again.decay == 0.3
        assert again.get_config() == made.get_config()


def test_the_space_offers_each_with_its_own_settings() -> None:
    from hptune.optimizers import Lars, large_batch_space

    names = {}
    for kind in ("sgd", "adam", "lars", "lamb"):
        hp = make_hyperparameters((), {"optimizer": kind})
        made = large_batch_space(hp, batch_size=1024, samples=50_000, epochs=10)
        names[kind] = {entry["config"]["name"] for entry in hp.get_config()["space"]}
        assert (type(made) is Lars) == (kind == "lars")
        SearchSpace.from_json(hp.get_config()["space"])
    assert "lars_learning_rate" in names["lars"]
    assert "trust_coefficient" in names["lars"]
    assert "trust_coefficient" not in names["lamb"]
    with pytest.raises(ValueError, match="unknown optimizers sdg"):
        large_batch_space(hp, batch_size=1, samples=1, epochs=1, optimizers=("sdg",))
