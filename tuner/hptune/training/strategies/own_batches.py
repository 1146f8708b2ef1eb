"""The batches of a training loop that is not Keras's: arrays, a `PyDataset`, or a `tf.data`."""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ...errors import ModelFileError
from ..fit_data import is_dataset
from .batches import DEFAULT_BATCH_SIZE, whole_batches


class OwnBatches:
    """Batches of one epoch after the other, as Keras's `fit` makes them.

    Attributes:
        steps: Batches of an epoch; None if unknown.

    Args:
        data: Arrays (a tuple of inputs, targets and weights), a `PyDataset` or a `tf.data.Dataset`.
        steps: Batches of an epoch, if the data does not say it. The next epoch then continues
            where this one ended. An epoch in which the data ends is shorter.
        batch_size: Of arrays, which are not shuffled.
        class_weight: Weights of the samples by their class.
        shuffle: Whether to take the batches of a `PyDataset` in the order that Python's `random`
            draws.
    """

    def __init__(
        self,
        data: Any,
        *,
        steps: int | None = None,
        batch_size: int | None = None,
        class_weight: Mapping[int, float] | None = None,
        shuffle: Any = False,
    ) -> None:
        if isinstance(data, tuple | list):
            data = whole_batches(data, batch_size or DEFAULT_BATCH_SIZE)
        self._data = data
        self._given_steps = steps
        self._class_weight = class_weight
        self._shuffle = bool(shuffle)
        self._iterator: Iterator[Any] | None = None
        self.steps = steps or self._steps_of_data()

    def _steps_of_data(self) -> int | None:
        if is_dataset(self._data):
            count = int(self._data.cardinality().numpy())
            return count if count >= 0 else None
        number: int | None = self._data.num_batches
        return number

    def first(self) -> Any:
        """Return a first batch, of which only the shapes count."""
        return next(self._once())

    def epoch(self) -> Iterator[Any]:
        """Yield the batches of an epoch: tuples of inputs, targets and weights.

        Raises:
            ModelFileError: An endless dataset has no number of steps.
        """
        if self._given_steps is None:
            if self.steps is None and not is_dataset(self._data):
                raise ModelFileError("a PyDataset without num_batches needs steps_per_epoch")
            yield from map(self._weighted, self._once())
            return
        for step in range(self._given_steps):
            batch = None if self._iterator is None else next(self._iterator, None)
            if batch is None and step:
                break
            if batch is None:
                self._iterator = self._once()
                batch = next(self._iterator)
            yield self._weighted(batch)

    def _once(self) -> Iterator[Any]:
        return iter(self._data) if is_dataset(self._data) else self._of_py_dataset()

    def _of_py_dataset(self) -> Iterator[Any]:
        """Yield the batches, made ahead by threads."""
        data = self._data
        data.on_epoch_begin()
        numbers: Iterator[int] = itertools.count()
        if data.num_batches is not None:
            order = list(range(data.num_batches))
            if self._shuffle:
                random.shuffle(order)
            numbers = iter(order)
        ahead: deque[Any] = deque()
        with ThreadPoolExecutor(max(1, data.workers)) as threads:
            try:
                # The first one alone, as it may draw the order of the epoch.
                for number in itertools.islice(numbers, 1):
                    yield data[number]
                for number in itertools.islice(numbers, max(1, data.workers) + 1):
                    ahead.append(threads.submit(data.__getitem__, number))
                while ahead:
                    batch = ahead.popleft().result()
                    for number in itertools.islice(numbers, 1):
                        ahead.append(threads.submit(data.__getitem__, number))
                    yield batch
            finally:
                for each in ahead:
                    each.cancel()
        data.on_epoch_end()

    def _weighted(self, batch: Any) -> Any:
        batch = tuple(batch) if isinstance(batch, tuple | list) else (batch,)
        if self._class_weight is None or len(batch) < 2:
            return tuple(each for each in batch if each is not None)
        if len(batch) > 2 and batch[2] is not None:
            raise ModelFileError("class_weight and sample_weight cannot both be given")
        return (*batch[:2], class_weights(batch[1], self._class_weight))


def class_weights(targets: Any, weights: Mapping[int, float]) -> Any:
    """Return the weight of each sample: that of its class, or 1.

    Args:
        targets: Class numbers, or one column for each class.
        weights: Weights by class number.
    """
    classes = np.asarray(targets)
    if classes.ndim > 1:
        classes = classes.argmax(-1) if classes.shape[-1] > 1 else classes[..., 0]
    return np.array([weights.get(int(each), 1.0) for each in classes.round()], "float32")
