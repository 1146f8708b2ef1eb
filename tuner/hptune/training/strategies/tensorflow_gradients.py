"""Gradients of Keras on TensorFlow, made those of the global batch in the optimizer's `apply`.

Keras adds the gradients of the replicas up itself, but counts each replica alike, clips before it
adds up, and decides on each replica alone whether a scaled gradient is finite.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from ...errors import ModelFileError
from .optimizer_calls import innermost, replaced_apply

_LIMITS = ("clipnorm", "global_clipnorm", "clipvalue")


class Share(threading.local):
    """Holds what a step's gradients are multiplied by, for each replica's thread.

    Attributes:
        factor: The factor; None outside of a step.
    """

    factor: Any = None


@contextlib.contextmanager
def weighted_gradients(optimizer: Any) -> Iterator[Share]:
    """Weight the gradients that any Keras optimizer gets by the factor of the yielded share.

    A replica sets its own in its step, and None after it.

    Raises:
        ModelFileError: Keras cannot use the optimizer on several devices.
    """
    _check(optimizer)
    share = Share()

    def weighted(called: Any, gradients: list[Any]) -> list[Any]:
        if share.factor is None:
            return gradients
        factor, scale = share.factor, 1.0
        if isinstance(called, keras.optimizers.LossScaleOptimizer):
            factor = _finite_on_all(factor, gradients)
            scale = called.dynamic_scale
            called = called.inner_optimizer
        elif called.loss_scale_factor is not None:
            scale = called.loss_scale_factor
        found = [_multiplied(gradient, factor) for gradient in gradients if gradient is not None]
        limits = [getattr(called, name) for name in _LIMITS]
        if any(limits):
            found = _clipped(found, limits, scale)
        rest = iter(found)
        return [None if gradient is None else next(rest) for gradient in gradients]

    with replaced_apply(optimizer, weighted):
        yield share


def _check(optimizer: Any) -> None:
    found = innermost(optimizer)
    for each in found:
        names = ["gradient_accumulation_steps"]
        if getattr(each, "use_ema", False):
            names.append("ema_overwrite_frequency")
        if len(found) > 1 and hasattr(optimizer, "inner_optimizer"):
            # They get their gradients after the scale of the loss is removed, which is too late.
            names += _LIMITS
        for name in names:
            if value := getattr(each, name, None):
                raise ModelFileError(
                    f"the optimizer has {name}={value}, which Keras on TensorFlow cannot use on "
                    "several devices; leave it out, or use KERAS_BACKEND=jax or torch"
                )


def _multiplied(gradient: Any, factor: Any) -> Any:
    """Return a gradient times a factor; that of an embedding stays the list of rows that it is."""
    factor = tf.cast(factor, gradient.dtype)
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * factor


def _finite_on_all(factor: Any, gradients: list[Any]) -> Any:
    """Return NaN if the gradients of any replica are not finite, so that all skip the step."""
    finite = [
        tf.reduce_all(tf.math.is_finite(gradient)) for gradient in gradients if gradient is not None
    ]
    others = tf.cast(tf.logical_not(tf.reduce_all(finite)), "float32")
    total = tf.distribute.get_replica_context().all_reduce("SUM", others)
    return tf.where(total > 0, float("nan"), factor)


def _clipped(gradients: list[Any], limits: Sequence[Any], scale: Any) -> list[Any]:
    """Return each replica's equal share of the global gradients, clipped.

    Keras clips the share with the same limit once more, which it does not reach.

    Args:
        gradients: This replica's.
        limits: The optimizer's clipnorm, global_clipnorm and clipvalue.
        scale: What the loss is multiplied by.
    """
    replica = tf.distribute.get_replica_context()
    # Equal shares of a list of rows would be several lists to Keras, which squares each alone.
    whole = [tf.convert_to_tensor(gradient) for gradient in gradients]
    gradients = replica.all_reduce("SUM", whole)
    # Keras takes 0 for no limit.
    norm, global_norm, value = (limit and limit * tf.cast(scale, "float32") for limit in limits)
    if limits[0]:
        gradients = [tf.clip_by_norm(gradient, norm) for gradient in gradients]
    elif limits[1]:
        gradients, _ = tf.clip_by_global_norm(gradients, global_norm)
    else:
        gradients = [tf.clip_by_value(gradient, -value, value) for gradient in gradients]
    return [gradient / replica.num_replicas_in_sync for gradient in gradients]
