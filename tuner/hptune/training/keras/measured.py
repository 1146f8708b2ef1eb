"""The metrics that hptune measures itself in a Keras trial: `core.goals.MEASURED`."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable
from typing import Any


class EpochTimes:
    """The times of epochs.

    The first epoch of a process compiles the model, so it counts only while there is no other.

    Attributes:
        seconds: The times of all epochs that count, including those of earlier attempts.
    """

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._first_seconds: float | None = None
        self._since = time.perf_counter()

    def begin(self) -> None:
        """Begin an epoch."""
        self._since = time.perf_counter()

    def end(self) -> None:
        """End an epoch; the next one may begin without a call of `begin`."""
        now = time.perf_counter()
        if self._first_seconds is None:
            self._first_seconds = now - self._since
        else:
            self.seconds.append(now - self._since)
        self._since = now

    @property
    def mean_seconds(self) -> float:
        """The mean; without any epoch, the time since `begin`."""
        if self.seconds:
            return sum(self.seconds) / len(self.seconds)
        if self._first_seconds is not None:
            return self._first_seconds
        return time.perf_counter() - self._since


def measure(names: Iterable[str], model: Any, times: EpochTimes) -> dict[str, float]:
    """Return those of the named metrics that hptune measures itself.

    Args:
        names: Names of any metrics.
        model: A Keras model whose weights are built.
        times: The times of its epochs.
    """
    known = {
        "params": lambda: float(sum(math.prod(w.shape) for w in model.trainable_weights)),
        "seconds_per_epoch": lambda: times.mean_seconds,
        "model_bytes": lambda: float(sum(_bytes_of(w) for w in model.weights)),
    }
    return {name: known[name]() for name in names if name in known}


def _bytes_of(weight: Any) -> float:
    # NumPy does not know bfloat16 and float8_e4m3fn; bool has no number in its name.
    bits = re.search(r"\d+", str(weight.dtype))
    return float(math.prod(weight.shape)) * (int(bits[0]) / 8 if bits else 1)
