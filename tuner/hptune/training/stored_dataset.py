"""A `tf.data.Dataset` that is given in Python, stored for the trials' processes."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from ..errors import UsageError


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
