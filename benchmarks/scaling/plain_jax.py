"""Plain JAX: one program over a mesh of one device from each process."""

from __future__ import annotations

import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from scaling import case


def _initial() -> dict[str, Any]:
    draw = np.random.default_rng(0)
    first, second = case.FILTERS
    shapes = {"a": (3, 3, 1, first), "b": (3, 3, first, second), "c": (second * 25, 10)}
    return {
        name: (draw.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))).astype("float32")
        for name, shape in shapes.items()
    }


def _loss(weights: dict[str, Any], x: Any, y: Any) -> Any:
    for name in "ab":
        x = jax.lax.conv_general_dilated(
            x, weights[name], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        x = jax.lax.reduce_window(
            jax.nn.relu(x), -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        )
    scores = jax.nn.log_softmax(x.reshape(len(x), -1) @ weights["c"])
    return -jnp.take_along_axis(scores, y[:, None], 1).mean()


@jax.jit
def _step(weights: Any, velocity: Any, x: Any, y: Any) -> Any:
    loss, gradients = jax.value_and_grad(_loss)(weights, x, y)
    velocity = jax.tree.map(lambda v, g: case.MOMENTUM * v - case.LEARNING_RATE * g,
                            velocity, gradients)  # fmt: skip
    return jax.tree.map(jnp.add, weights, velocity), velocity, loss


def train() -> None:
    """Train all epochs, and record each."""
    if case.world_size() > 1:
        address = os.environ["JAX_COORDINATOR_ADDRESS"]
        jax.distributed.initialize(address, case.world_size(), case.rank())
    mesh = jax.make_mesh((jax.device_count(),), ("batch",))
    spec: Any = PartitionSpec
    whole, parted = (NamedSharding(mesh, spec(*axes)) for axes in ((), ("batch",)))
    local: Any = jax.make_array_from_process_local_data
    images, labels = case.data()

    def replicated(value: Any) -> Any:
        return jax.make_array_from_callback(value.shape, whole, lambda index: value[index])

    weights = jax.tree.map(replicated, _initial())
    velocity = jax.tree.map(jnp.zeros_like, weights)
    for epoch in range(case.EPOCHS):
        loss: Any = 0.0
        for rows in case.parts(epoch, len(images)):
            x, y = (local(parted, each[rows]) for each in (images, labels))
            weights, velocity, loss = _step(weights, velocity, x, y)
        case.record("epoch", epoch, loss=float(loss))


if __name__ == "__main__":
    train()
