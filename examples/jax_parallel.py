"""Plain JAX on scikit-learn's handwritten digits, in one or more processes.

    pip install jax
    hptune run examples/jax_parallel.py --processes-per-trial 2 --trials 20

Every process (rank) runs `objective`, and holds its share of each batch; JAX computes the gradient
of the whole batch. `batch_size` is the batch of all ranks together, so a configuration means the
same whatever their number.
"""

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

try:
    import jax
except ModuleNotFoundError as err:
    raise ImportError(
        "examples/jax_parallel.py needs JAX, which is not installed. Install it with\n"
        "  pip install jax\n"
        "or, for NVIDIA GPUs, with\n"
        "  pip install 'jax[cuda13]'"
    ) from err

import jax.numpy as jnp

OBJECTIVE = "val_accuracy"
EPOCHS = 10


def objective(hp: Any, trial: Any) -> dict[str, float]:
    if trial.world_size > 1:
        # The address of rank 0 is in the environment. Nothing else is to be detected: a rank sees
        # its own devices only.
        jax.distributed.initialize(
            num_processes=trial.world_size,
            process_id=trial.rank,
            cluster_detection_method="deactivate",
            initialization_timeout=60,
        )
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    on_all = jax.NamedSharding(mesh, jax.P())
    divided = jax.NamedSharding(mesh, jax.P("data"))

    x_train, x_val, y_train, y_val = load_arrays()
    width = hp.Choice("width", [16, 32, 64, 128])
    learning_rate = hp.Float("learning_rate", 1e-2, 1.0, sampling="log")
    batch_size = hp.Choice("batch_size", [32, 64, 128])
    weights = first_weights(width, seed=trial.seed)
    momenta = [np.zeros_like(each) for each in weights]

    # Every rank continues from the checkpoint that rank 0 has written.
    checkpoint = Path(trial.checkpoint_dir) / "state.npz"
    epochs_done, metrics = 0, {}
    if checkpoint.exists():
        with np.load(checkpoint) as stored:
            epochs_done = int(stored["epochs_done"])
            metrics = {name: float(stored[name]) for name in ("val_loss", "val_accuracy")}
            weights = [stored[f"weights{i}"] for i in range(len(weights))]
            momenta = [stored[f"momenta{i}"] for i in range(len(momenta))]
    weights, momenta = (
        [jax.make_array_from_process_local_data(on_all, each) for each in arrays]
        for arrays in (weights, momenta)
    )

    for epoch in range(epochs_done + 1, EPOCHS + 1):
        # All ranks draw the same order, and each takes its share of every batch.
        order = np.random.default_rng(epoch).permutation(len(x_train))
        for start in range(0, len(order) - batch_size + 1, batch_size):
            share = np.split(order[start : start + batch_size], trial.world_size)[trial.rank]
            x, y = (
                jax.make_array_from_process_local_data(divided, each[share])
                for each in (x_train, y_train)
            )
            weights, momenta = step(weights, momenta, x, y, learning_rate)

        # Every rank has all weights.
        local = [np.asarray(each.addressable_data(0)) for each in weights]
        logits = predict(local, x_val)
        metrics = {
            "val_loss": float(cross_entropy(logits, y_val)),
            "val_accuracy": float(np.mean(np.argmax(logits, axis=1) == y_val)),
        }
        if trial.rank == 0:
            state: dict[str, Any] = {"epochs_done": epoch, **metrics}
            state |= {f"weights{i}": each for i, each in enumerate(local)}
            for i, each in enumerate(momenta):
                state[f"momenta{i}"] = np.asarray(each.addressable_data(0))
            fresh = checkpoint.with_suffix(".new")
            with fresh.open("wb") as file:
                np.savez(file, **state)
            # In one step, so that an interruption leaves the old or the new checkpoint.
            fresh.replace(checkpoint)
        trial.report(epoch, **metrics)  # rank 0's reports count
        if trial.should_stop():  # the same answer on every rank
            break
    return metrics


def predict(weights: Any, x: Any) -> Any:
    hidden = jax.nn.relu(x @ weights[0] + weights[1])
    return hidden @ weights[2] + weights[3]


def cross_entropy(logits: Any, y: Any) -> Any:
    return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * jax.nn.one_hot(y, 10), axis=1))


@jax.jit
def step(weights: Any, momenta: Any, x: Any, y: Any, learning_rate: float) -> Any:
    """One step of gradient descent with momentum, on the batch of all ranks."""
    gradients = jax.grad(lambda each: cross_entropy(predict(each, x), y))(weights)
    momenta = jax.tree.map(lambda old, new: 0.9 * old + new, momenta, gradients)
    return jax.tree.map(lambda old, way: old - learning_rate * way, weights, momenta), momenta


def first_weights(width: int, *, seed: int) -> list[Any]:
    draw = np.random.default_rng(seed)
    shapes = [(64, width), (width,), (width, 10), (10,)]
    scales = [0.1, 0.0, 0.1, 0.0]
    return [
        (scale * draw.standard_normal(shape)).astype("float32")
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def load_arrays() -> list[Any]:
    pixels, labels = load_digits(return_X_y=True)
    return list(
        train_test_split(
            pixels.astype("float32") / 16, labels, test_size=0.25, random_state=0, stratify=labels
        )
    )
