"""Global batches, and the part of them that each rank trains.

Every rank makes the same global batches (of one permutation, seeded by the trial's seed and the
epoch) and trains a contiguous part of each. A batch whose size does not divide, as the last one of
an epoch, has parts that differ by one sample. Nothing is left out or counted twice, unless a batch
has fewer samples than there are ranks, all of which must take part in the step:

- To train, each rank gets the whole of it, which gives the right gradient.
- To validate, each rank gets one sample of it: the metrics of the epoch count a few samples twice.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from ...errors import ModelFileError
from ..fit_data import is_dataset

DEFAULT_BATCH_SIZE = 32
"""Keras's, for arrays."""


def part_of(size: int, *, rank: int, world_size: int, validates: bool = False) -> slice:
    """Return the samples of a batch that a rank trains or validates.

    >>> [part_of(10, rank=rank, world_size=3) for rank in range(3)]
    [slice(0, 3, None), slice(3, 6, None), slice(6, 10, None)]
    >>> part_of(2, rank=1, world_size=3)
    slice(0, 2, None)
    >>> [part_of(2, rank=rank, world_size=3, validates=True) for rank in range(3)]
    [slice(0, 1, None), slice(1, 2, None), slice(1, 2, None)]
    """
    if size >= world_size:
        return slice(size * rank // world_size, size * (rank + 1) // world_size)
    if not validates:
        return slice(0, size)
    first = max(0, min(rank, size - 1))
    return slice(first, min(first + 1, size))


def check_divides(batch_size: int, replicas: int) -> None:
    """Check that a global batch can be divided equally.

    Raises:
        ModelFileError: It cannot; names sizes that can.
    """
    if batch_size % replicas == 0:
        return
    below = batch_size // replicas * replicas
    near = [size for size in (below, below + replicas) if size]
    raise ModelFileError(
        f"the batch size is {batch_size}, which does not divide by the trial's {replicas} devices; "
        f"use {' or '.join(map(str, near))}, or --batch-rule linear to give it per device"
    )


def size_of(batch: Any) -> int | None:
    """Return the number of samples of a batch, or of arrays; None if it has no shape."""
    shapes = (getattr(each, "shape", None) for each in keras.tree.flatten(batch))
    return next((int(shape[0]) for shape in shapes if shape), None)


def is_arrays(x: Any) -> bool:
    """Return whether these are arrays, of which Keras makes the batches."""
    if isinstance(x, keras.utils.PyDataset) or is_dataset(x):
        return False
    flat = [each for each in keras.tree.flatten(x) if each is not None]
    return bool(flat) and all(
        hasattr(each, "shape") and hasattr(each, "__getitem__") for each in flat
    )


def numpy_permutation(count: int) -> Any:
    """Return a permutation, drawn as Keras does on JAX."""
    return np.random.permutation(count)


def local_arguments(
    arguments: dict[str, Any],
    *,
    rank: int,
    world_size: int,
    permutation: Callable[[int], Any] = numpy_permutation,
) -> dict[str, Any]:
    """Return the arguments of `fit` with the part of the data that a rank trains and validates.

    Arrays become a `PyDataset`. The validation arrays are divided once, as their batches do not
    matter.

    Args:
        arguments: Arguments of Keras's `fit`, by name.
        rank: The rank.
        world_size: Number of ranks.
        permutation: Draws the order of an epoch's samples, the same one on every rank.

    Raises:
        ModelFileError: The data is of a kind that cannot be divided.
    """
    local = _split_off_validation(dict(arguments))
    divided: dict[str, Any] = {"rank": rank, "world_size": world_size}
    x, batch_size = local.get("x"), local.get("batch_size")
    if is_arrays(x):
        data = _as_arrays(tuple(local.pop(name, None) for name in ("x", "y", "sample_weight")))
        steps = local.get("steps_per_epoch")
        count = size_of(data) or 0
        local.pop("batch_size", None)
        size = batch_size or (math.ceil(count / steps) if steps else DEFAULT_BATCH_SIZE)
        local["x"] = _PartOfArrays(
            data, size, local.pop("shuffle", True), permutation=permutation, **divided
        )
        local["shuffle"] = False
    else:
        local["x"] = _part_of_each(x, **divided)
    validation = local.get("validation_data")
    if isinstance(validation, tuple | list) and is_arrays(validation[0]):
        validation = _as_arrays(tuple(validation))
        if steps := local.pop("validation_steps", None):  # of batches of one device
            size = local.get("validation_batch_size") or batch_size or DEFAULT_BATCH_SIZE
            validation = _rows(validation, slice(0, steps * size))
        own = part_of(size_of(validation) or 0, **divided)
        local["validation_data"] = _rows(validation, own)
    elif validation is not None:
        local["validation_data"] = _part_of_each(validation, **divided, validates=True)
    return local


def whole_batches(data: Sequence[Any], batch_size: int) -> Any:
    """Return the batches of arrays (inputs, and perhaps targets and weights) as a `PyDataset`."""
    padded = (*data, None, None)[:3]
    alone: dict[str, Any] = {"rank": 0, "world_size": 1, "permutation": numpy_permutation}
    return _PartOfArrays(padded, batch_size, shuffle=False, **alone)


def _split_off_validation(arguments: dict[str, Any]) -> dict[str, Any]:
    """Divide the training arrays as Keras does with `validation_split`: the last ones validate."""
    fraction = arguments.pop("validation_split", 0.0)
    if not fraction or arguments.get("validation_data") is not None:
        return arguments
    names = ("x", "y", "sample_weight")
    data = _as_arrays(tuple(arguments.get(name) for name in names))
    count = size_of(data) or 0
    split = math.floor(count * (1.0 - fraction))
    train, validation = _rows(data, slice(0, split)), _rows(data, slice(split, count))
    return {**arguments, **dict(zip(names, train, strict=True)), "validation_data": validation}


def _as_arrays(data: Any) -> Any:
    def array(each: Any) -> Any:
        if type(each).__name__ == "RaggedTensor":
            raise ModelFileError(
                "a RaggedTensor cannot be divided among the processes of a trial; pad it with "
                "its to_tensor(), or train in one process"
            )
        if hasattr(each, "iloc"):  # of pandas
            return each.to_numpy()
        # A tensor of TensorFlow, which a layer may have returned, takes no list of rows.
        return each.numpy() if type(each).__module__.startswith("tensorflow.") else each

    return keras.tree.map_structure(array, data)


def _rows(data: Any, which: Any) -> Any:
    return keras.tree.map_structure(lambda each: None if each is None else each[which], data)


def _part_of_each(x: Any, *, rank: int, world_size: int, validates: bool = False) -> Any:
    how: dict[str, Any] = {"rank": rank, "world_size": world_size, "validates": validates}
    if isinstance(x, keras.utils.PyDataset):
        return _PartOfBatches(x, functools.partial(part_of, **how))
    if is_dataset(x):
        return _part_of_tf_dataset(x, **how)
    raise ModelFileError(
        f"load_data() returned a {type(x).__name__}, which cannot be divided among the processes "
        "of a trial; allowed are arrays, a keras.utils.PyDataset, and a tf.data.Dataset"
    )


def _part_of_tf_dataset(dataset: Any, *, rank: int, world_size: int, validates: bool) -> Any:
    """Do what `part_of` does, in TensorFlow's graph."""
    import tensorflow as tf

    def part(*batch: Any) -> Any:
        size = tf.shape(tf.nest.flatten(batch)[0])[0]
        first = tf.minimum(rank, size - 1)
        small = (first, first + 1) if validates else (0, size)
        is_small = size < world_size
        start = tf.where(is_small, small[0], size * rank // world_size)
        stop = tf.where(is_small, small[1], size * (rank + 1) // world_size)
        taken = tf.nest.map_structure(lambda each: each[start:stop], batch)
        return taken if len(taken) > 1 else taken[0]

    return dataset.map(part)


class _PartOfArrays(keras.utils.PyDataset):
    """Parts of the global batches of arrays."""

    def __init__(
        self,
        data: Any,
        batch_size: int,
        shuffle: Any,
        *,
        permutation: Callable[[int], Any],
        rank: int,
        world_size: int,
    ) -> None:
        super().__init__()
        self._data = data
        self._count = size_of(data) or 0
        self._batch_size = batch_size
        self._shuffle = shuffle
        self._permutation = permutation
        self._divided: dict[str, Any] = {"rank": rank, "world_size": world_size}
        self._order: Any = None

    def __len__(self) -> int:
        return math.ceil(self._count / self._batch_size)

    def on_epoch_begin(self) -> None:
        self._order = None

    def __getitem__(self, index: int) -> Any:
        start = index * self._batch_size
        size = min(self._batch_size, self._count - start)
        own = part_of(size, **self._divided)
        own = slice(start + own.start, start + own.stop)
        if self._shuffle == "batch":  # each batch in its own order
            order = self._permutation(size)[own.start - start : own.stop - start]
            return self._batch(np.asarray(order) + start)
        if not self._shuffle:
            return self._batch(own)
        if self._order is None:
            self._order = np.asarray(self._permutation(self._count))
        return self._batch(self._order[own])

    def _batch(self, which: Any) -> Any:
        x, y, weight = _rows(self._data, which)
        if weight is not None:
            return x, y, weight
        return (x,) if y is None else (x, y)


class _PartOfBatches(keras.utils.PyDataset):
    """Parts of the batches of another `PyDataset`, which are global ones."""

    def __init__(self, dataset: Any, part: Callable[[int], slice]) -> None:
        super().__init__(dataset.workers, dataset.use_multiprocessing, dataset.max_queue_size)
        self._dataset = dataset
        self._part = part

    @property
    def num_batches(self) -> int | None:
        batches: int | None = self._dataset.num_batches
        return batches

    def on_epoch_begin(self) -> None:
        self._dataset.on_epoch_begin()

    def on_epoch_end(self) -> None:
        self._dataset.on_epoch_end()

    def __getitem__(self, index: int) -> Any:
        batch = self._dataset[index]
        return _rows(batch, self._part(size_of(batch) or 0))
