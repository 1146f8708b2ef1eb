"""What a call of the user's code depended on, and whether it did anything but return.

A result may be given to another trial in place of a call only if that call would have returned
the same and would have done nothing besides. So one call is watched: which hyperparameters and
environment variables it read, and which files it opened; and whether it drew from the trial's
random generators, changed its module, or declared hyperparameters. For a function that follows
from what it reads, this is exact: as long as all that it read in one call is as it was, it takes
the same path again. What a library opens or reads by itself, below Python, is not seen.
"""

from __future__ import annotations

import contextlib
import enum
import inspect
import os
import pickle
import random
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from ...config.model_file import is_installed

MAX_FILES = 1000
"""So many of the files that a call opened are watched; a folder of images has more."""

OF_THE_PLACE = re.compile(r"CUDA_|TF_|XLA_|.*_THREADS$")
"""Variables that say where and how an attempt computes, which changes nothing of the data."""

_FileState = tuple[int, int, int] | None


class _Missing(enum.Enum):
    MISSING = enum.auto()


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a call read.

    Attributes:
        hyperparameters: The values that it read; of one that had none, that it was missing.
        all_hyperparameters: Whether it saw all there were.
        environment: The environment variables that it read; None for those that were not set.
        files: Size, time and identity of the files that it opened for reading; None for those
            that were not there.
    """

    hyperparameters: Mapping[str, object]
    all_hyperparameters: bool
    environment: Mapping[str, str | None]
    files: Mapping[str, _FileState]

    def hold(self, values: Mapping[str, object]) -> bool:
        """Whether a call with these hyperparameters, here and now, would read the same."""
        return (
            (not self.all_hyperparameters or set(values) == set(self.hyperparameters))
            and all(
                _same(value, values.get(name, _Missing.MISSING))
                for name, value in self.hyperparameters.items()
            )
            and all(os.environ.get(name) == value for name, value in self.environment.items())
            and all(_file_state(path) == state for path, state in self.files.items())
        )


@dataclass(frozen=True, slots=True)
class Observed:
    """One call that was watched.

    Attributes:
        result: What it returned.
        dependencies: What it read.
        side_effect: What it did besides returning, in words; empty if nothing was seen.
    """

    result: Any
    dependencies: Dependencies
    side_effect: str


def observe(function: Callable[..., Any], call: Callable[[], Any], hp: Any) -> Observed:
    """Make a call and watch it.

    Args:
        function: What is called in the end, whose module is watched.
        call: Calls it.
        hp: KerasTuner's HyperParameters, which the call may read.

    Raises:
        BaseException: What the call raises.
    """
    names = _globals_of(function)
    before = dict(hp.values), len(hp.space), _generators(), _snapshot(names)
    with _reading_hyperparameters(hp) as values, _reading_environment() as environment:
        files: dict[str, _FileState] = {}
        with _opening(files):
            result = call()
    effect = _side_effect(before, (dict(hp.values), len(hp.space), _generators(), _snapshot(names)))
    read = Dependencies(
        {name: before[0].get(name, _Missing.MISSING) for name in values.seen},
        values.saw_all,
        environment,
        files,
    )
    return Observed(result, read, effect)


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and one == other


def _side_effect(before: tuple[Any, ...], after: tuple[Any, ...]) -> str:
    if before[:2] != after[:2]:
        return "it declares hyperparameters that the study did not know"
    if before[2] != after[2]:
        return (
            "it draws from (or seeds) the random generators of the trial; with one of its own, "
            "such as numpy.random.default_rng(0), its data would be the same for all"
        )
    was, now = before[3], after[3]
    changed = sorted(
        name for name in now if name not in was or not _unchanged(was[name], now[name])
    )
    if changed:
        return f"it changes {', '.join(changed)} of its module"
    return ""


# --- hyperparameters ------------------------------------------------------------------------


class _Watched(dict[str, Any]):
    """A dict that notes what is read of it."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.seen: set[str] = set()
        self.saw_all = False

    def _see_all(self) -> None:
        self.saw_all = True
        self.seen.update(super().keys())

    def __getitem__(self, name: str) -> Any:
        self.seen.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().get(name, default)

    def setdefault(self, name: str, default: Any = None) -> Any:
        self.seen.add(name)
        return super().setdefault(name, default)

    def __contains__(self, name: object) -> bool:
        self.seen.add(str(name))
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        self._see_all()
        return super().__iter__()

    def __len__(self) -> int:
        self._see_all()
        return super().__len__()

    def __eq__(self, other: object) -> bool:
        self._see_all()
        return super().__eq__(other)

    def __repr__(self) -> str:
        self._see_all()
        return super().__repr__()

    __hash__ = None

    def keys(self) -> Any:
        self._see_all()
        return super().keys()

    def values(self) -> Any:
        self._see_all()
        return super().values()

    def items(self) -> Any:
        self._see_all()
        return super().items()

    def copy(self) -> dict[str, Any]:
        return dict(self.items())

    def unwatched(self) -> dict[str, Any]:
        """The values as a plain dict; this is no reading."""
        return {name: dict.__getitem__(self, name) for name in dict.__iter__(self)}

    def __or__(self, other: Any) -> Any:
        return self.copy() | other

    def __ror__(self, other: Any) -> Any:
        return other | self.copy()


@contextlib.contextmanager
def _reading_hyperparameters(hp: Any) -> Iterator[_Watched]:
    # All of KerasTuner's own methods read the values here, and so do users.
    hp.values = watched = _Watched(hp.values)
    try:
        yield watched
    finally:
        hp.values = watched.unwatched()


# --- the environment ------------------------------------------------------------------------


@contextlib.contextmanager
def _reading_environment() -> Iterator[dict[str, str | None]]:
    read: dict[str, str | None] = {}
    plain: Any = type(os.environ)

    class Watched(plain):
        """The environment, noting what is read of it."""

        def __getitem__(self, name: str) -> str:
            try:
                value: str = super().__getitem__(name)
            except KeyError:
                if not OF_THE_PLACE.match(name):
                    read.setdefault(name, None)
                raise
            if not OF_THE_PLACE.match(name):
                read.setdefault(name, value)
            return value

    os.environ.__class__ = Watched
    try:
        yield read
    finally:
        os.environ.__class__ = plain


# --- files ----------------------------------------------------------------------------------

_watching: dict[str, _FileState] | None = None
_hook_guard = threading.Lock()
_is_hooked = False


@contextlib.contextmanager
def _opening(files: dict[str, _FileState]) -> Iterator[None]:
    global _watching, _is_hooked  # noqa: PLW0603 - a process has one audit hook, and keeps it
    with _hook_guard:
        if not _is_hooked:
            sys.addaudithook(_on_event)
            _is_hooked = True
    _watching = files
    try:
        yield
    finally:
        _watching = None


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    files = _watching
    if files is None or event != "open":
        return
    path, mode, flags = arguments
    if isinstance(path, int) or len(files) >= MAX_FILES:
        return
    reads = "r" in mode if isinstance(mode, str) else not flags & (os.O_WRONLY | os.O_RDWR)
    if reads:
        with contextlib.suppress(OSError, ValueError):
            name = os.path.realpath(os.fsdecode(path))
            if not name.startswith(("/proc/", "/sys/", "/dev/")) and not is_installed(name):
                files[name] = _file_state(name)


def _file_state(path: str) -> _FileState:
    try:
        found = Path(path).stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


# --- what else a call may do ------------------------------------------------------------------


def _generators() -> bytes:
    """The state of every random generator of the process that a training uses."""
    states: list[Any] = [random.getstate()]
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        states.append(numpy.random.get_state())
    if torch is not None:
        states.append(torch.get_rng_state().numpy().tobytes())
    keras_state = sys.modules.get("keras.src.backend.common.global_state")
    if keras_state is not None:
        generator = keras_state.get_global_attribute("global_seed_generator")
        if generator is not None:
            numbers = sys.modules["keras"].ops.convert_to_numpy(generator.state.value)
            states.append(numbers.tobytes())
    context = sys.modules.get("tensorflow.python.eager.context")
    drawn = getattr(getattr(context, "_context", None), "_rng", None)
    states.append(None if drawn is None else drawn.getstate())
    return pickle.dumps(states)


def _globals_of(function: Any) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    return found


def _snapshot(names: Mapping[str, Any]) -> dict[str, tuple[Any, int]]:
    return {
        name: (value, len(value) if isinstance(value, dict | list | set) else 0)
        for name, value in names.items()
        if not name.startswith("__") and not isinstance(value, ModuleType)
    }


def _unchanged(was: tuple[Any, int], now: tuple[Any, int]) -> bool:
    return was[0] is now[0] and was[1] == now[1]
