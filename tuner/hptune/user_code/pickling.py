"""Files of what a user gives in Python: pickles of functions and classes, and data."""

from __future__ import annotations

import io
import pickle
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import IO, Any, ClassVar, Protocol, Self, runtime_checkable

from ..errors import UsageError
from ..files.access import mapped, replacing
from ..files.ownership import check_loadable, withhold_writing
from .user_errors import notebook_cells, remember_cells


def pickled(value: object) -> bytes:
    """Return a pickle that `pickle.loads` reads in any process, with the code of functions.

    A function keeps the name of its file, which cloudpickle replaces from version 3.1.3 on: errors
    show the user's lines. Symbolic tensors of Keras, and the layers that made them, stay one graph.

    Raises:
        Exception: Something in it cannot be pickled.
    """
    seen: list[Any] = []

    def noted(tensor: Any) -> tuple[Any, ...]:
        seen.append(tensor)
        return str, ()

    contents = _pickled(value, noted)
    if not seen:
        return contents
    keras: Any = sys.modules["keras"]
    inputs = {id(each): each for tensor in seen for each in keras.utils.get_source_inputs(tensor)}
    graph = keras.Model([*inputs.values()], seen)
    outputs = [id(each) for each in seen]
    return _pickled(value, lambda tensor: (_output, (graph, outputs.index(id(tensor)))), graph)


def _output(graph: Any, index: int) -> Any:
    return graph.outputs[index]


def _layer(graph: Any, name: str) -> Any:
    return graph.get_layer(name)


def _graph(make: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Return a graph whose layers keep their names apart from those of layers that follow."""
    graph = make(*arguments)
    keras: Any = sys.modules["keras"]
    for layer in graph.layers:
        begin, _, number = layer.name.rpartition("_")
        name, count = (begin, int(number)) if number.isdecimal() else (layer.name, 0)
        while keras.backend.get_uid(name) <= count:
            pass
    return graph


def _pickled(value: object, tensor: Callable[[Any], tuple[Any, ...]], graph: Any = None) -> bytes:
    """Return a pickle of a value.

    Args:
        value: Any object.
        tensor: Returns what makes a symbolic tensor of Keras's in the other process.
        graph: A model of all symbolic tensors, whose layers are those of the value.
    """
    import cloudpickle

    known = cloudpickle.Pickler.dispatch_table
    symbolic = getattr(sys.modules.get("keras"), "KerasTensor", ())
    layers = {} if graph is None else {id(each): each.name for each in graph.layers}

    def code(of: CodeType) -> tuple[Any, ...]:
        make, arguments = known[CodeType](of)
        named = (
            of.co_filename if argument == "<dynamic-code>" else argument for argument in arguments
        )
        return make, tuple(named)

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle is not typed
        dispatch_table: ClassVar[Any] = ChainMap({CodeType: code}, known)

        def reducer_override(self, of: Any) -> Any:
            if isinstance(of, symbolic):
                return tensor(of)
            if of is graph:
                return _graph, graph.__reduce__()
            if id(of) in layers:
                return _layer, (graph, layers[id(of)])
            return super().reducer_override(of)

    with io.BytesIO() as file:
        Pickler(file).dump(value)
        return file.getvalue()


def write_pickle(
    path: Path,
    contents: bytes,
    *,
    frameworks: Sequence[str] = (),
    digests: Mapping[str, str] | None = None,
) -> None:
    """Write what `pickled` returned, with what other processes need to load it.

    Args:
        path: The file.
        contents: The pickle.
        frameworks: Frameworks that it uses.
        digests: SHA-256 of the modules that it refers to by name.
    """
    # The user's modules are pickled by name, so other processes must find them too.
    folders = [str(Path(folder).absolute()) for folder in sys.path]
    head = pickle.dumps((folders, list(frameworks), notebook_cells(), dict(digests or {})))
    with replacing(path) as fresh:
        fresh.write_bytes(head + contents)
        withhold_writing(fresh)


def read_head(path: Path) -> tuple[list[str], Mapping[str, str]]:
    """Return the frameworks and digests that `write_pickle` was given.

    Raises:
        UsageError: Another user may have written the file.
    """
    with path.open("rb") as file:
        _, frameworks, _, digests = _head(file)
        return frameworks, digests


def read_pickle(path: Path) -> Any:
    """Return what `write_pickle` wrote, after finding its modules and notebook cells.

    Raises:
        UsageError: Another user may have written the file.
        Exception: It cannot be loaded, such as because a module is gone.
    """
    with path.open("rb") as file:
        folders, _, cells, _ = _head(file)
        remember_cells(cells)
        # The script's own come first, as there; from Python's zip on, they may be another one's.
        own = next((n for n, at in enumerate(folders) if at in sys.path or at.endswith(".zip")), 0)
        sys.path[:0] = folders[:own]
        sys.path.extend(folder for folder in folders if folder not in sys.path)
        return pickle.load(file)  # noqa: S301 - the user's own, from their study


def _head(file: IO[bytes]) -> tuple[list[str], list[str], Any, Mapping[str, str]]:
    check_loadable(file)
    head: tuple[list[str], list[str], Any, Mapping[str, str]] = pickle.load(file)  # noqa: S301 - as above
    return head


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
