"""What all variants share: the data, the sizes, and the record of the epochs."""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np

FOLDER = Path(os.environ.get("FASHION_MNIST", "/usr/share/datasets/fashion-mnist"))
BATCH_SIZE = 2048
LEARNING_RATE = 0.05
MOMENTUM = 0.9
FILTERS = (16, 32)
RECORD = "STRONG_SCALING_RECORD"
"""Environment variable: the file that gets a line for each epoch, or step, of a rank."""
IMAGES = int(os.environ.get("STRONG_SCALING_IMAGES", "16384"))
EPOCHS = int(os.environ.get("STRONG_SCALING_EPOCHS", "4"))


def data() -> tuple[np.ndarray, np.ndarray]:
    """Return images as floats, of shape (n, 28, 28, 1), and labels; a whole number of batches."""

    def read(name: str, skipped: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress((FOLDER / name).read_bytes())[skipped:], "uint8")

    count = IMAGES // BATCH_SIZE * BATCH_SIZE
    images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)[:count]
    labels = read("train-labels-idx1-ubyte.gz", 8)[:count]
    return (images / np.float32(255)).astype("float32"), labels.astype("int64")


def rank() -> int:
    """Return this process's rank."""
    return int(os.environ.get("RANK", "0"))


def world_size() -> int:
    """Return the number of processes."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def parts(epoch: int, count: int) -> Iterable[np.ndarray]:
    """Yield the samples of this rank's part of each global batch of an epoch."""
    order = np.random.default_rng(epoch).permutation(count)
    for batch in order.reshape(-1, BATCH_SIZE):
        yield np.array_split(batch, world_size())[rank()]


def record(kind: str, number: int, **more: float) -> None:
    """Write what just ended, with the time."""
    line = {"kind": kind, "number": number, "rank": rank(), "pid": os.getpid(),
            "at": time.monotonic(), **more}  # fmt: skip
    with Path(os.environ[RECORD]).open("a") as file:
        file.write(json.dumps(line) + "\n")
