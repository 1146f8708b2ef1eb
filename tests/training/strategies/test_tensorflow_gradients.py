"""Gradients of all replicas give the steps that Keras takes on one device."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest

from hptune.errors import ModelFileError


def weighted_gradients(optimizer: Any) -> AbstractContextManager[Any]:
    # Here, as it imports Keras, and every process of the tests collects this file.
    from hptune.training.strategies import tensorflow_gradients

    return tensorflow_gradients.weighted_gradients(optimizer)


@pytest.mark.parametrize("limit", ["clipnorm", "global_clipnorm", "clipvalue"])
@pytest.mark.parametrize("scale", [None, 8.0])
def test_a_limit_holds_for_the_gradients_of_the_loss_whatever_scales_it(
    limit: str, scale: float | None
) -> None:
    import keras
    import tensorflow as tf

    def trained(*, weighted: bool) -> Any:
        weights = [keras.Variable(np.zeros(n), dtype="float32") for n in (3, 2)]
        optimizer = keras.optimizers.SGD(1.0, loss_scale_factor=scale, **{limit: 1.0})
        gradients = [(scale or 1.0) * tf.constant(each) for each in ([3.0, 4.0, 0.0], [0.3, 0.4])]
        with weighted_gradients(optimizer) as share:
            share.factor = 1.0 if weighted else None
            optimizer.apply(gradients, weights)
        return np.concatenate([keras.ops.convert_to_numpy(each + 0.0) for each in weights])

    np.testing.assert_allclose(trained(weighted=True), trained(weighted=False), rtol=1e-6)


class OneOfTwo:
    """The context of a replica beside another one that has the same gradients."""

    num_replicas_in_sync = 2

    def all_reduce(self, _: object, gradients: Any) -> Any:
        return [each + each for each in gradients]


def test_each_of_several_optimizers_limits_the_gradients_of_all_replicas(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import keras
    import tensorflow as tf

    def trained(factor: float | None) -> Any:
        weights = [keras.Variable(np.zeros(2), dtype="float32", name=name) for name in ("a", "b")]
        some = keras.optimizers.SGD(1.0, clipvalue=1.0)
        chosen = keras.optimizers.OptimizerMap(some, {"b": keras.optimizers.SGD(1.0, clipnorm=2.0)})
        gradients = [tf.constant(each) for each in ([1.6, -0.4], [3.0, 4.0])]
        optimizer = keras.optimizers.MultiOptimizer(chosen)
        with weighted_gradients(optimizer) as share:
            share.factor = factor
            optimizer.apply(gradients, weights)
        return np.concatenate([keras.ops.convert_to_numpy(each + 0.0) for each in weights])

    expected = trained(None)
    np.testing.assert_allclose(expected, [-1.0, 0.4, -1.2, -1.6], rtol=1e-6)
    monkeypatch.setattr(tf.distribute, "get_replica_context", OneOfTwo)
    np.testing.assert_allclose(trained(0.5), expected, rtol=1e-6)


def test_a_limit_of_0_is_none() -> None:
    import keras
    import tensorflow as tf

    for name in ("clipnorm", "global_clipnorm", "clipvalue"):
        weights = keras.Variable(np.zeros(2), dtype="float32")
        optimizer = keras.optimizers.SGD(1.0, **{name: 0.0})
        with weighted_gradients(optimizer) as share:
            share.factor = 1.0
            optimizer.apply([tf.constant([3.0, 4.0])], [weights])
        np.testing.assert_allclose(keras.ops.convert_to_numpy(weights + 0.0), [-3.0, -4.0])


@pytest.mark.parametrize("limits", [{}, {"clipnorm": 0.1}])
def test_the_gradient_of_an_embedding_may_have_a_row_twice(limits: dict[str, float]) -> None:
    import keras
    import tensorflow as tf

    rows = tf.IndexedSlices(
        tf.constant([[1.0, 2.0], [3.0, 4.0], [0.1, 0.2]]),
        tf.constant([1, 1, 0]),
        tf.constant([3, 2]),
    )

    def trained(gradient: Any, factor: float | None) -> Any:
        weights = keras.Variable(np.ones((3, 2)), dtype="float32")
        optimizer = keras.optimizers.Adam(0.1, **limits)
        with weighted_gradients(optimizer) as share:
            share.factor = factor
            optimizer.apply([gradient], [weights])
        return keras.ops.convert_to_numpy(weights + 0.0)

    # With a limit, Keras on one device takes the two for different rows when it squares them.
    expected = trained(tf.convert_to_tensor(rows) if limits else rows, None)
    np.testing.assert_allclose(trained(rows, 1.0), expected, rtol=1e-6)


def test_what_keras_cannot_do_on_several_devices_is_refused() -> None:
    import keras

    inner = keras.optimizers.SGD(gradient_accumulation_steps=3)
    several = keras.optimizers.MultiOptimizer(keras.optimizers.OptimizerMap(inner))
    for optimizer in (inner, several, keras.optimizers.LossScaleOptimizer(inner)):
        with (
            pytest.raises(ModelFileError, match=r"gradient_accumulation_steps=3, .* leave it out"),
            weighted_gradients(optimizer),
        ):
            pass


def test_limits_of_several_optimizers_below_the_scale_of_a_loss_are_refused() -> None:
    import keras

    both = keras.optimizers.OptimizerMap(
        keras.optimizers.SGD(), {".*bias": keras.optimizers.SGD(clipvalue=0.5)}
    )
    several = keras.optimizers.MultiOptimizer(both)
    with weighted_gradients(several):
        pass
    with (
        pytest.raises(ModelFileError, match=r"clipvalue=0.5, .* leave it out"),
        weighted_gradients(keras.optimizers.LossScaleOptimizer(several)),
    ):
        pass


def test_an_option_that_keras_does_not_use_is_not_refused() -> None:
    import keras

    with weighted_gradients(keras.optimizers.SGD(use_ema=False, ema_overwrite_frequency=5)):
        pass
    with (
        pytest.raises(ModelFileError, match="ema_overwrite_frequency=5"),
        weighted_gradients(keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=5)),
    ):
        pass
