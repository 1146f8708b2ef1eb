"""The check that all devices of a trial hold equal weights.

A framework that does not average the gradients trains each device on its own part of the data, and
raises no error. So the weights are compared after the first batch, and on CPUs after each epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import keras

from ...text import some
from .base import ParallelTrainingError, Strategy

_DIGEST_BYTES = 8


def check(strategy: Strategy, model: Any, when: str) -> None:
    """Check that the trainable weights are equal, bit by bit; every rank calls it.

    Args:
        strategy: What trains the model.
        model: The model.
        when: After what, for the message.

    Raises:
        ParallelTrainingError: They are not.
    """
    copies = [_digests(copy) for copy in strategy.copies(model)]
    names = list(copies[0])
    known = [list(copy.values()) for copy in copies]
    if strategy.ranks is not None:
        packed = b"".join(digest for each in known for digest in each)
        gathered = strategy.ranks.gather(packed)
        known = [each for data in gathered for each in _unpacked(data, len(names))]
    unequal = [name for i, name in enumerate(names) if len({each[i] for each in known}) > 1]
    if not unequal:
        return
    raise ParallelTrainingError(
        f"the {strategy.replicas} devices of this trial do not train one model: after {when} they "
        f"hold different weights ({some(unequal, 1)}). A train_step of your own that updates the "
        "weights itself can be the cause; --strategy none trains on one device"
    )


def _digests(weights: Mapping[str, Any]) -> dict[str, bytes]:
    return {
        name: hashlib.blake2b(array.tobytes(), digest_size=_DIGEST_BYTES).digest()
        for name, array in weights.items()
    }


def _unpacked(data: bytes, count: int) -> list[list[bytes]]:
    parts = [data[at : at + _DIGEST_BYTES] for at in range(0, len(data), _DIGEST_BYTES)]
    return [parts[at : at + count] for at in range(0, len(parts), count or 1)]


class EqualWeights(keras.callbacks.Callback):
    """Makes the check after the first batch, and on CPUs after each epoch."""

    def __init__(self, strategy: Strategy) -> None:
        super().__init__()
        self._strategy = strategy
        self._has_checked = False

    def __deepcopy__(self, _copies: Any) -> Any:
        return self

    def on_train_batch_end(self, batch: int, *_: Any, **__: Any) -> None:
        """Check the weights after the first batch."""
        if not self._has_checked:
            self._has_checked = True
            check(self._strategy, self.model, f"batch {batch + 1}")

    def on_epoch_end(self, epoch: int, *_: Any, **__: Any) -> None:
        """Check the weights on CPUs, where that costs little."""
        if self._strategy.on_cpu:
            check(self._strategy, self.model, f"epoch {epoch + 1}")
