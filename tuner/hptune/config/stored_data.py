"""Data that are given in Python, in a file that all trials on a machine map."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from ..errors import UsageError
from ..security.ownership import check_loadable, withhold_writing
from ..storage.files import mapped, replacing
from .pickling import pickled


@runtime_checkable
class StoredPart(Protocol):
    """Training or validation data that are stored next to the file of `StoredData`."""

    def open_in(self, folder: Path) -> Any:
        """Return the data."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object that gives batches, such as a Keras `PyDataset`; each trial has a copy of its own.

    Attributes:
        pickled: The object, with its class if that is of a script or a notebook.
    """

    pickled: bytes

    @classmethod
    def store(cls, value: object) -> Self:
        """Pickle an object.

        Raises:
            UsageError: It cannot be pickled.
        """
        try:
            return cls(pickled(value))
        except Exception as error:  # an object that cannot be pickled may raise anything
            raise _cannot_be_sent(error) from error

    def open_in(self, _folder: Path) -> Any:
        """Return the object."""
        return pickle.loads(self.pickled)  # noqa: S301 - the user's own, from a checked file


@dataclass(frozen=True, slots=True)
class StoredData:
    """Data in a file, which all trials on a machine map into the same memory."""

    path: Path

    @classmethod
    def store(cls, data: Any, path: Path) -> Self:
        """Write the data.

        Raises:
            UsageError: The data cannot be pickled.
        """
        import joblib

        try:
            # A study that is resumed never has half of its data.
            with replacing(path) as fresh:
                joblib.dump(data, fresh)
                withhold_writing(fresh)
        except OSError:  # no space, say
            raise
        except Exception as error:  # an object that cannot be pickled may raise anything
            raise _cannot_be_sent(error) from error
        return cls(path)

    def __call__(self) -> Any:
        """Return the data; arrays are mapped from the file, copy-on-write."""
        import joblib

        with self.path.open("rb") as file:
            check_loadable(file)
            # joblib opens a file by its name, and again for each array. This name means the file
            # that was checked, whatever has its path by then.
            checked = f"/proc/self/fd/{file.fileno()}"
            data = mapped(lambda mode: joblib.load(checked, mmap_mode=mode))
        folder = self.path.parent
        return tuple(
            each.open_in(folder) if isinstance(each, StoredPart) else each for each in data
        )


def _cannot_be_sent(error: Exception) -> UsageError:
    return UsageError(
        f"the data cannot be sent to the trials' processes ({error}). Pass arrays, or a function "
        "that returns (train, validation) and is called in each trial"
    )
