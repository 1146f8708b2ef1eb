"""`load_data()` called once per node: its arrays are kept for all trials there.

The first trial that needs the data calls the user's `load_data`, and keeps what it returned in the
node's `CacheStore`; those that come meanwhile wait for it, the others map it. What each gets are
plain NumPy arrays, which it may write to without another one seeing it.

Two calls are taken for the same if the same code makes them in the same directory, and if all
that the first one read is as it was (see `observation`). Whatever is not made of arrays, is small,
or cannot be told from what was read (it draws from the trial's random generators, say) is not
kept, and each trial calls `load_data` itself. Nothing here can fail a trial: where the store does
not work, the trial goes without.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import inspect
import itertools
import logging
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...config.model_file import ObjectiveSource, SourceKind, StoredData, UserCode, is_installed
from ...storage.filesystem import mount_of
from .cache_store import CacheStore, Kept, Unfit, end_life, hold_life, usual_folder
from .dependencies import Dependencies, Observed, observe

LEAST_BYTES = 1_000_000
"""Less than this is loaded in no time."""

LEAST_MAPPED_BYTES = 65_536
"""Arrays below this are kept with the structure that they are in."""

WAIT_SECONDS = 300.0
"""For so long, at most, a trial waits for another one's `load_data`, before it calls its own."""

logger = logging.getLogger(__name__)

_life: tuple[Path, int] | None = None


# --- the process that lives as long as the study works on the node ----------------------------


def join(life: Path, source: ObjectiveSource | None) -> None:
    """Make this process and its forked children users of the node's store.

    Args:
        life: A file to lock, in a folder of this process's own.
        source: The user's code, where it was imported just now.
    """
    global _life  # noqa: PLW0603 - a process joins once, and its children inherit it
    _life = (life, hold_life(life))
    if source is not None:
        _source_digest(source)  # the children run the file as it was now
    _sweep(life)


def leave() -> None:
    """Let go of the store; what nobody else uses is removed."""
    global _life  # noqa: PLW0603 - as above
    if _life is not None:
        life, file = _life
        _life = None
        end_life(file)
        _sweep(life)


def _sweep(life: Path) -> None:
    try:
        CacheStore(usual_folder(), life).sweep()
    except OSError as error:
        logger.warning("What was staged by earlier runs cannot be removed: %s", error)


# --- a trial ----------------------------------------------------------------------------------


def staged(
    code: UserCode,
    source: ObjectiveSource,
    *,
    limit_bytes: int | None,
    hang_timeout_seconds: float | None = None,
    while_waiting: Callable[[], object] = lambda: None,
) -> UserCode:
    """The code, with a `load_data(hp)` that shares what it returns with the node's other trials.

    Args:
        code: The user's entry points.
        source: Where they come from.
        limit_bytes: How much a node may keep; None for half of the room there is, 0 for nothing.
        hang_timeout_seconds: A trial that computes nothing for so long is ended, and one that waits
            computes nothing; it waits half of that at most.
        while_waiting: Called now and then while another trial loads; may raise to leave.

    Returns:
        The code as it is where there is nothing to share.
    """
    load = code.load_data
    if load is None or limit_bytes == 0 or _life is None:
        return code
    if isinstance(load, StoredData) and not mount_of(load.path).is_network:
        return code  # mapped where it lies
    store = CacheStore(usual_folder(), _life[0], limit_bytes)
    patience = min(WAIT_SECONDS, (hang_timeout_seconds or math.inf) / 2)
    return replace(code, load_data=_StagedLoad(load, source, store, patience, while_waiting))


def call_load_data(load: Callable[..., Any], hp: Any) -> Any:
    """Call the user's `load_data`, with `hp` if it takes an argument."""
    # `keras.datasets.mnist.load_data(path="mnist.npz")` has a parameter too, but not for us.
    takes_hp = any(
        parameter.name == "hp"
        or (
            parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        )
        for parameter in inspect.signature(load).parameters.values()
    )
    return load(hp) if takes_hp else load()


@dataclass(frozen=True, slots=True)
class _Record:
    dependencies: Dependencies
    structure: Any


@dataclass(frozen=True, slots=True)
class _StagedLoad:
    """Stands in for the user's `load_data`."""

    load: Callable[..., Any]
    source: ObjectiveSource
    store: CacheStore
    patience_seconds: float
    while_waiting: Callable[[], object]

    def __call__(self, hp: Any) -> Any:
        key = self._key()
        with contextlib.ExitStack() as turn:
            try:
                kept, which = self._find(key, hp), ""
                if kept is None:
                    which = self._which(key, hp)
                    is_ours = turn.enter_context(self.store.turn(key, which, self._waiting()))
                    kept = self._find(key, hp)  # those whom we waited for may have made it
            except (Unfit, OSError) as error:
                turn.close()
                _tell_of(error)
                return call_load_data(self.load, hp)
            if kept is not None:
                return _filled(kept.record.structure, kept.arrays)
            if not is_ours:
                logger.warning(
                    "Another trial loads the data for %g s; not waited for.", self.patience_seconds
                )
                return call_load_data(self.load, hp)
            observed = observe(self.load, lambda: call_load_data(self.load, hp), hp)
            try:
                return self._keep(key, which, observed)
            except (Unfit, OSError) as error:
                _tell_of(error)
                return observed.result

    def _find(self, key: str, hp: Any) -> Kept | None:
        values = dict(hp.values)
        return self.store.find(key, lambda record: record.dependencies.hold(values))

    def _which(self, key: str, hp: Any) -> str:
        """Tells apart the calls that, by what is known so far, return different things."""
        reads = {
            name
            for record in self.store.records(key)
            for name in record.dependencies.hyperparameters
        }
        return _digest([(name, repr(hp.values.get(name))) for name in sorted(reads)])

    def _waiting(self) -> Callable[[], bool]:
        deadline = time.monotonic() + self.patience_seconds
        pauses = itertools.chain((0.002, 0.005, 0.01, 0.02, 0.05), itertools.repeat(0.1))

        def wait() -> bool:
            self.while_waiting()
            time.sleep(next(pauses))
            return time.monotonic() < deadline

        return wait

    def _keep(self, key: str, which: str, observed: Observed) -> Any:
        """Keep what was loaded, and give it as others will find it.

        Raises:
            Unfit: It is not to be shared; noted, so that nobody waits for it again.
        """
        try:
            arrays: list[Any] = []
            may_map = isinstance(self.load, StoredData)
            structure = _taken_apart(observed.result, arrays, {}, may_map=may_map)
            if sum(array.nbytes for array in arrays) < LEAST_BYTES:
                raise Unfit
            if _overlap(arrays):
                raise Unfit("its arrays overlap, so that who writes to one changes another")
            if observed.side_effect:
                raise Unfit(observed.side_effect)
            record = _Record(observed.dependencies, structure)
            kept = self.store.keep(key, which, record, arrays)
        except Unfit:
            self.store.refuse(key)
            raise
        return _filled(kept.record.structure, kept.arrays)

    def _key(self) -> str:
        code: object = _source_digest(self.source)
        if isinstance(self.load, StoredData):
            found = self.load.path.stat()
            code = (str(self.load.path.resolve()), found.st_size, found.st_mtime_ns)
        versions = [importlib.metadata.version(name) for name in ("hptune", "numpy")]
        return _digest(
            [code, str(Path.cwd()), platform.python_version(), *versions, *_own_modules()]
        )


def _tell_of(error: Unfit | OSError) -> None:
    if str(error):
        logger.warning("load_data() is called in each trial, its data not shared: %s", error)


# --- what a result is made of -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Slot:
    """Where the array of a number belongs."""

    number: int


def _taken_apart(value: Any, arrays: list[Any], known: dict[int, _Slot], *, may_map: bool) -> Any:
    """The value with slots for its arrays, which are put into `arrays`.

    Raises:
        Unfit: There is something in it that cannot be shared.
    """
    import numpy as np

    def inner(each: Any) -> Any:
        return _taken_apart(each, arrays, known, may_map=may_map)

    kind = type(value)
    if kind in (tuple, list):
        return kind(inner(each) for each in value)
    if kind is dict:
        return {name: inner(each) for name, each in value.items()}
    if kind is np.ndarray or (may_map and kind is np.memmap):
        if value.dtype.hasobject or value.dtype.kind == "V":
            raise Unfit
        if value.nbytes < LEAST_MAPPED_BYTES:
            return np.array(value)
        if id(value) not in known:
            known[id(value)] = _Slot(len(arrays))
            arrays.append(value)
        return known[id(value)]
    if (
        value is None
        or kind in (bool, int, float, complex, str, bytes)
        or isinstance(value, np.generic)
    ):
        return value
    raise Unfit


def _overlap(arrays: Sequence[Any]) -> bool:
    """Whether an element belongs to two arrays, or to two places of one."""
    import numpy as np

    share: Any = np.shares_memory
    ends = sorted(((*_bounds(array), array) for array in arrays), key=lambda each: each[0])
    for number, (begin, end, array) in enumerate(ends):
        if array.nbytes > end - begin:
            return True
        for other_begin, _, other in itertools.islice(ends, number + 1, None):
            if other_begin >= end:
                break
            try:
                if share(array, other, max_work=1000):
                    return True
            except np.exceptions.TooHardError:
                return True
    return False


def _bounds(array: Any) -> tuple[int, int]:
    """The addresses of an array's first byte and behind its last."""
    steps = [(size - 1) * stride for size, stride in zip(array.shape, array.strides, strict=True)]
    first = array.ctypes.data + sum(min(0, step) for step in steps)
    return first, array.ctypes.data + sum(max(0, step) for step in steps) + array.itemsize


def _filled(structure: Any, arrays: Sequence[Any]) -> Any:
    """What was taken apart, put together again."""
    if isinstance(structure, _Slot):
        return arrays[structure.number]
    if isinstance(structure, tuple | list):
        return type(structure)(_filled(each, arrays) for each in structure)
    if isinstance(structure, dict):
        return {name: _filled(each, arrays) for name, each in structure.items()}
    return structure


# --- which code it is -------------------------------------------------------------------------


@functools.cache
def _source_digest(source: ObjectiveSource) -> str:
    path = Path(source.path)
    return _digest([source.path if source.kind is SourceKind.FILE else "", path.read_bytes()])


def _own_modules() -> list[tuple[str, int, int]]:
    """The modules that the user's code brought along, and their state on disk."""
    files = {str(getattr(module, "__file__", None) or "") for module in list(sys.modules.values())}
    found = []
    for file in sorted(files):
        if file and not is_installed(file):
            with contextlib.suppress(OSError):
                state = Path(file).stat()
                found.append((file, state.st_size, state.st_mtime_ns))
    return found


def _digest(parts: Sequence[object]) -> str:
    return hashlib.sha256(repr(list(parts)).encode()).hexdigest()[:32]
