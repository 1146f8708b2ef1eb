"""Epochs of TensorFlow on one core, in a process that is scheduled as batch and in one that is not.

    python benchmarks/batch_scheduling.py [--rounds 3]

See benchmarks/README.md for what is measured and why.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence

SAMPLES = (1_000, 3_000, 6_000, 14_000, 50_000)
EPOCHS = 4
POLICIES = {"normal": os.SCHED_OTHER, "batch": os.SCHED_BATCH}
Seconds = dict[int, list[float]]
"""Seconds of each epoch, by the number of samples."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=3, help="how often all is measured [3]")
    parser.add_argument("--policy", choices=POLICIES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.policy is not None:
        print(json.dumps(list(_train(options.policy).items())))
        return
    found: dict[str, Seconds] = {name: {size: [] for size in SAMPLES} for name in POLICIES}
    for _ in range(options.rounds):
        for policy, epochs in found.items():
            for size, seconds in _run(policy):
                epochs[size].extend(seconds)
    print(f"Seconds of an epoch on one core: medians of {options.rounds} x {EPOCHS - 1} epochs")
    print("(least to greatest).\n\n| samples | normal | batch | ratio |\n|---:|---:|---:|---:|")
    for size in SAMPLES:
        normal, batch = found["normal"][size], found["batch"][size]
        ratio = statistics.median(normal) / statistics.median(batch)
        print(f"| {size:,} | {_cell(normal)} | {_cell(batch)} | {ratio:.2f} |")


def _cell(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds):.2f} ({min(seconds):.2f} to {max(seconds):.2f})"


def _run(policy: str) -> list[tuple[int, list[float]]]:
    """Train in a process of its own, because a framework fits its threads to its cores once."""
    one = {f"{name}_THREADS": "1" for name in ("OMP_NUM", "TF_NUM_INTRAOP", "TF_NUM_INTEROP")}
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    ran = subprocess.run(
        [sys.executable, __file__, "--policy", policy],
        env={**os.environ, **one, **quiet, "KERAS_BACKEND": "tensorflow"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    found: list[tuple[int, list[float]]] = json.loads(ran.stdout)
    return found


def _train(policy: str) -> Seconds:
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    os.sched_setscheduler(0, POLICIES[policy], os.sched_param(0))

    import time

    import keras
    import numpy as np

    class Clock(keras.callbacks.Callback):  # type: ignore[misc]  # Keras is not typed
        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:  # noqa: ARG002 - Keras's
            self.began = time.perf_counter()

        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            del logs
            if epoch:  # the first one traces the model
                seconds.append(time.perf_counter() - self.began)

    layers = keras.layers
    model = keras.Sequential(
        [
            layers.Input((8, 8, 1)),
            layers.Conv2D(8, 3, activation="relu"),
            layers.Flatten(),
            layers.Dense(10, activation="softmax"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    random = np.random.default_rng(0)
    found = Seconds()
    for size in SAMPLES:
        seconds = found[size] = []
        images = random.random((size, 8, 8, 1), dtype="float32")
        labels = random.integers(0, 10, size)
        model.fit(images, labels, batch_size=32, epochs=EPOCHS, verbose=0, callbacks=[Clock()])
    return found


if __name__ == "__main__":
    main()
