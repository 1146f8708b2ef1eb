"""The data that `Tuner.fit` is given, arrays or a `tf.data`, stored in the study's directory."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ..errors import UsageError
from ..user_code.pickling import StoredData, StoredObject


def is_dataset(value: object) -> bool:
    """Return whether this is a `tf.data.Dataset`; does not import TensorFlow."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and isinstance(value, tensorflow.data.Dataset)


@dataclass(frozen=True, slots=True)
class StoredDataset:
    """A dataset as a folder of its elements, as one pass over it gave them.

    Attributes:
        name: The folder's name.
    """

    name: str

    @classmethod
    def store(cls, dataset: Any, path: Path, *, steps: int | None) -> Self:
        """Write all elements of a dataset.

        Args:
            dataset: The dataset.
            path: The folder to write, which is replaced if it exists.
            steps: How many elements Keras takes in an epoch; None for all.

        Raises:
            UsageError: The dataset is infinite, or may be.
        """
        import tensorflow as tf

        size = int(dataset.cardinality())
        if size == tf.data.INFINITE_CARDINALITY or (size < 0 and steps is not None):
            raise UsageError(
                f"the {path.suffix[1:]} dataset is infinite, so it cannot be stored. "
                "Leave out repeat(), or pass a function that returns (train, validation)"
            )
        fresh = path.with_name(f"{path.name}.new")
        shutil.rmtree(fresh, ignore_errors=True)
        dataset.save(str(fresh))
        shutil.rmtree(path, ignore_errors=True)
        fresh.rename(path)
        return cls(path.name)

    def open_in(self, folder: Path) -> Any:
        """Return the dataset, read from its folder as it is used."""
        import tensorflow as tf

        return tf.data.Dataset.load(str(folder / self.name)).prefetch(tf.data.AUTOTUNE)


DATA_FILE = "data.joblib"
DATASETS = ("data.training", "data.validation")
"""Names in the study's directory: arrays, and datasets that are stored batch by batch."""


def store_fit_data(
    directory: Path, train: Sequence[Any], validation: Any, steps: Sequence[int | None]
) -> Callable[[], Any] | None:
    """Return what gives the trials their data, which is written into the study's directory.

    Args:
        directory: The study's directory.
        train: Inputs, targets and weights, as `fit` got them.
        validation: The validation data, as `fit` got them.
        steps: How many batches of either an epoch has; None for all.

    Raises:
        UsageError: They do not fit together.
    """
    x, *others = train
    if x is None or (callable(x) and others[0] is None):
        load: Callable[[], Any] | None = x
        if load is not None:
            (directory / DATA_FILE).touch()  # there are data, although not in this file
        return load
    if hasattr(validation, "shape"):
        raise UsageError(
            "validation_data is an array; give (x_val, y_val), or (x_val, y_val, sample_weight)"
        )
    given: Any = tuple(each for each in train if each is not None)
    if is_dataset(x):
        if len(given) > 1:
            raise UsageError("x is a dataset, which has the targets; leave out y and sample_weight")
        given = StoredDataset.store(x, directory / DATASETS[0], steps=steps[0])
    elif _gives_batches(x) and len(given) == 1:
        given = StoredObject.store(x)
    if is_dataset(validation):
        validation = StoredDataset.store(validation, directory / DATASETS[1], steps=steps[1])
    elif validation is not None and _gives_batches(validation):
        validation = StoredObject.store(validation)
    return StoredData.store((given, validation), directory / DATA_FILE)


def _gives_batches(data: object) -> bool:
    """Return whether this is an object such as a `PyDataset`, rather than arrays."""
    return not (isinstance(data, list | tuple | dict) or hasattr(data, "shape"))
