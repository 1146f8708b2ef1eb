"""A node with a data cache, on which a test's processes share data as trials do."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np

from hptune.training.data_cache import data_cache
from hptune.training.hyperparameters import make_hyperparameters
from hptune.user_code.model_file import UserCode
from hptune.user_code.source import ObjectiveSource, SourceKind

FORK = multiprocessing.get_context("fork")
# filelock, which PyTorch loads, refuses a fork while another thread forks.
_ONE_FORK = threading.Lock()


class Node:
    """A node, on which this process is the one that starts the trials.

    Args:
        place: The node's temporary directory.
        directory: A study's directory.
    """

    def __init__(self, place: Path, directory: Path) -> None:
        self.place = place
        self.free_memory_bytes = 10**12
        self.study = str(directory)
        model = directory / "model.py"
        model.touch()
        self.source = ObjectiveSource(SourceKind.FILE, str(model))

    def join(self) -> None:
        data_cache.join(self.study, self.source)

    def cached(self, load_data: Any, *, limit_bytes: int | None = None, **more: Any) -> Any:
        """Return the `load_data` of a trial."""
        constants = more.pop("constants", {})
        more.setdefault("free_memory_bytes", lambda: self.free_memory_bytes)
        code = UserCode(hypermodel=object(), load_data=load_data, constants=constants)
        return data_cache.cached(
            code, self.study, self.source, limit_bytes=limit_bytes, **more
        ).load_data

    def load(
        self,
        load_data: Any,
        *,
        limit_bytes: int | None = None,
        hang_timeout_seconds: float | None = None,
        **values: Any,
    ) -> Any:
        """Return the data of a trial with these hyperparameters."""
        hp = make_hyperparameters()
        for name, value in values.items():
            hp.Fixed(name, value)
        load = self.cached(
            load_data, limit_bytes=limit_bytes, hang_timeout_seconds=hang_timeout_seconds
        )
        return data_cache.call_load_data(load, hp)

    def elsewhere(self, act: Any) -> Any:
        """Return the result of `act` in a forked process, such as a trial's."""
        ours, theirs = FORK.Pipe()
        process = FORK.Process(target=lambda: theirs.send(act()))
        with _ONE_FORK:
            process.start()
        theirs.close()
        try:
            return ours.recv()
        finally:
            process.join()

    @property
    def folders(self) -> list[Path]:
        return sorted(self.place.glob("hptune-data-*"))

    @property
    def files(self) -> list[Path]:
        """Return the files of the arrays in the cache."""
        return sorted(self.place.glob("hptune-data-*/*/*.npy"))


class Calls:
    """Counts calls over all processes, in a file that load functions append to."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self) -> None:
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(file, b".")
        os.close(file)

    def load_data(self) -> Any:
        """Return arrays, and count the call."""
        self.note()
        return arrays()

    @property
    def count(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0


def arrays(start: float = 0.0) -> Any:
    x = np.arange(start, start + 400_000, dtype="float32").reshape(1000, 400)
    return (x, np.arange(1000)), ({"left": x[:100] + 1, "right": [x[100:200] + 1]}, None)


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    found: Any = array
    while found is not None:
        if isinstance(found, np.memmap):
            return True
        found = getattr(found, "base", None)
    return False
