"""LARS and LAMB against steps computed by hand, and against Keras where it agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tuner.core.space.space import SearchSpace
from tuner.training.hyperparameters import make_hyperparameters

keras = pytest.importorskip("keras")

STEPS = 4
Array = NDArray[np.float64]


def norm(values: Array) -> float:
    return float(np.linalg.norm(values))


def gradients() -> list[list[Array]]:
    rng = np.random.default_rng(0)
    return [[rng.normal(size=(3, 2)), rng.normal(size=2), np.zeros((2, 2))] for _ in range(STEPS)]


def start() -> list[Array]:
    rng = np.random.default_rng(1)
    return [rng.normal(size=(3, 2)), np.zeros(2), np.zeros((2, 2))]


def trained(optimizer: Any, steps: list[list[Array]]) -> list[Array]:
    variables = [keras.Variable(each, dtype="float64") for each in start()]
    for step in steps:
        optimizer.apply([keras.ops.convert_to_tensor(g) for g in step], variables)
    return [keras.ops.convert_to_numpy(each + 0.0) for each in variables]


def test_lars_is_that_of_its_paper() -> None:
    from tuner.optimizers import Lars

    weights, momenta = start(), [np.zeros_like(each) for each in start()]
    for step in gradients():
        for i, (w, g) in enumerate(zip(weights, step, strict=True)):
            rate, update = 2.0, g
            if w.ndim > 1:
                if norm(w) and norm(g):
                    rate = 2.0 * 0.01 * norm(w) / (norm(g) + 0.1 * norm(w))
                update = g + 0.1 * w
            momenta[i] = 0.8 * momenta[i] + rate * update
            weights[i] = w - momenta[i]
    found = trained(Lars(2.0, 0.8, weight_decay=0.1, trust_coefficient=0.01), gradients())
    for ours, expected in zip(found, weights, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-6, atol=1e-9)


def test_lamb_is_that_of_its_paper() -> None:
    from tuner.optimizers import Lamb

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
    found = trained(Lamb(0.05, weight_decay=0.1), gradients())
    for ours, expected in zip(found, weights, strict=True):
        np.testing.assert_allclose(ours, expected, rtol=1e-5, atol=1e-9)


def test_lamb_without_decay_is_keras_where_all_is_scaled() -> None:
    from tuner.optimizers import Lamb

    steps = [step[:1] for step in gradients()]
    (ours,) = trained(Lamb(0.05, weight_decay=0.0), steps)[:1]
    (theirs,) = trained(keras.optimizers.Lamb(0.05, epsilon=1e-6), steps)[:1]
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


def test_the_schedule_counts_epochs_and_all_are_saved_with_a_model() -> None:
    from tuner.optimizers import Lamb, Lars, WarmUp

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
    from tuner.optimizers import Lars, large_batch_space

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
