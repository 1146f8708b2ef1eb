"""`load_data()` called once per node and study, and its arrays shared by the trials there.

The contract with the user's code:

- `load_data()` is called once per node and study. The trials map its arrays and may write to them;
  no other trial sees the changes.
- `load_data(hp)` is called once for each combination of the hyperparameters that it reads.
- Only what it returns is shared. What else it does (setting a global, say) happens in one trial.
- Data that must differ between trials is made in `fit`, or the cache is turned off.

NumPy arrays in tuples, lists and dicts are shared. If `load_data` returns anything else, such as a
`tf.data.Dataset`, or more than there is space for, each trial calls it. Each trial also calls it
if the cache fails; no trial fails for that.

The first trial that needs the data calls `load_data` under a lock, while others wait. If that
trial dies, its lock goes with it and another trial takes over. If `load_data` raises, each trial
calls it, one after another, and fails with its own error.

`load_data` starts from the same random state in every trial. So the data does not depend on which
trial loads it.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.clock import polls
from ...user_code.model_file import UserCode
from ...user_code.source import ObjectiveSource
from ..resume.randomness import seed_everything
from .cache_store import CacheStore, NotShared, folder_of, hold, release, remove_unused
from .hyperparameters_read import NOTHING_READ, HyperparametersRead, recording

POLL_SECONDS = 0.05
"""Time between two looks for another trial's result: short for a trial, and cheap."""

LOAD_SEED = 0
"""Seed of all generators when `load_data` is called."""

log = logging.getLogger(__name__)

_held: dict[Path, int | None] = {}
"""Locks of the folders of the studies that this process serves; None if locking failed."""

_imported: dict[str, tuple[int, int]] = {}
"""Versions of the user's files that this process has imported for its children, by path."""


# --- the process that starts the trials ---------------------------------------------------------


def note_import(source: ObjectiveSource) -> None:
    """Note that this process now imports the user's file, for the children that it forks.

    They run the file's present code, also after an edit. What they load must
    not be found by processes that run the new code.
    """
    with contextlib.suppress(OSError):
        _imported[source.path] = _version(source)


def join(study: str, source: ObjectiveSource) -> None:
    """Hold the study's folder on this node, for this process and the children that it forks.

    Args:
        study: The study's directory.
        source: The user's code. If it has changed, the study has another folder.
    """
    folder = _folder(study, source)
    if folder in _held:
        return
    _held[folder] = None
    try:
        remove_unused(folder.parent)
        _held[folder] = hold(folder)
    except OSError as error:
        _warn(error)


def close() -> None:
    """Release all folders, and remove those that no other process holds."""
    for lock in _held.values():
        if lock is not None:
            release(lock)
    for parent in {folder.parent for folder in _held}:
        remove_unused(parent)
    _held.clear()


def _folder(study: str, source: ObjectiveSource) -> Path:
    try:
        size, changed_at = _imported.get(source.path) or _version(source)
    except OSError:  # the child will say so
        return folder_of(study)
    return folder_of(f"{study}\n{source.path}\n{size}\n{changed_at}")


def _version(source: ObjectiveSource) -> tuple[int, int]:
    found = Path(source.path).stat()
    return found.st_size, found.st_mtime_ns


# --- a trial ------------------------------------------------------------------------------------


def cached(
    code: UserCode,
    study: str,
    source: ObjectiveSource,
    *,
    limit_bytes: int | None,
    is_wanted: bool = False,
    free_memory_bytes: Callable[[], int],
    hang_timeout_seconds: float | None = None,
    while_waiting: Callable[[], object] = lambda: None,
) -> UserCode:
    """Return the code with a `load_data(hp)` that shares its results between trials.

    Args:
        code: The user's entry points.
        study: The study's directory, as for `join`.
        source: Where the code is, as for `join`.
        limit_bytes: Limit of the results on this node; None for half of the free space, 0 for no
            cache.
        is_wanted: Whether the user asked for the cache, whatever CACHE_DATA says.
        free_memory_bytes: As for `CacheStore`.
        hang_timeout_seconds: Time after which an attempt that computes nothing is ended; None if
            it is not. A trial waits for another one's call for half of this time.
        while_waiting: Called again and again while another trial loads; may raise to stop waiting.

    Returns:
        The code unchanged if there is nothing to cache or the cache is off.
    """
    is_on = limit_bytes != 0 and (is_wanted or code.constants.get("CACHE_DATA", True))
    if code.load_data is None or not is_on:
        return code
    folder = _folder(study, source)
    store = CacheStore(folder, limit_bytes, free_memory_bytes)
    load = _CachedLoad(
        load=code.load_data,
        store=store if _held.get(folder) is not None else None,
        max_wait_seconds=(hang_timeout_seconds or math.inf) / 2,
        while_waiting=while_waiting,
    )
    return replace(code, load_data=load)


def call_load_data(load: Callable[..., Any], hp: Any) -> Any:
    """Call the user's `load_data`, with `hp` if it takes an argument."""
    return load(hp) if _takes_hp(load) else load()


def _takes_hp(load: Callable[..., Any]) -> bool:
    # `keras.datasets.mnist.load_data(path="mnist.npz")` has a parameter too, but not for us.
    return any(
        parameter.name == "hp"
        or (
            parameter.default is parameter.empty
            and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        )
        for parameter in inspect.signature(load).parameters.values()
    )


@dataclass(frozen=True, slots=True)
class _CachedLoad:
    """The user's `load_data`, through the cache.

    Attributes:
        load: The user's function.
        store: The study's results; None if they cannot be stored.
        max_wait_seconds: Time to wait for another trial's call.
        while_waiting: Called while waiting.
    """

    load: Callable[..., Any]
    store: CacheStore | None
    max_wait_seconds: float
    while_waiting: Callable[[], object]

    def __call__(self, hp: Any) -> Any:
        seed_everything(LOAD_SEED, deterministic=False)
        if self.store is None:
            return call_load_data(self.load, hp)
        with contextlib.ExitStack() as lock:
            try:
                entry, is_ours = self._find_or_lock(self.store, hp, lock)
                if entry is not None:
                    return entry.value()
            except OSError as error:
                _warn(error)
                is_ours = False
            if not is_ours:
                lock.close()
                return call_load_data(self.load, hp)
            return self._load_and_keep(self.store, hp)

    def _find_or_lock(self, store: CacheStore, hp: Any, lock: contextlib.ExitStack) -> Any:
        """Return the result if there is one, and whether this trial is to call `load_data`."""
        for _ in polls(self.max_wait_seconds, POLL_SECONDS):
            is_ours = lock.enter_context(store.loading(hp.known_values))
            # After locking: the trial that had the lock until now may have kept its result.
            entry = store.find(hp.known_values)
            if entry is not None:
                hp.asked.update(entry.reads.values)
            if entry is not None or store.is_refused:
                return entry, False
            if is_ours:
                return None, True
            lock.close()
            self.while_waiting()
        log.warning(
            "Another trial has been in load_data() for %g s; this one now calls it too.",
            self.max_wait_seconds,
        )
        return None, False

    def _load_and_keep(self, store: CacheStore, hp: Any) -> Any:
        value, read = self._load(hp)
        if read is None:
            return value
        try:
            # Mapped as in all other trials, so that the memory of the original is freed.
            return store.keep(read, value).value()
        except (NotShared, OSError) as error:
            _warn(error)
            with contextlib.suppress(OSError):
                store.refuse()
            return value

    def _load(self, hp: Any) -> tuple[Any, HyperparametersRead | None]:
        """Call the user's function; what it has read is None if the result must not be kept."""
        if not _takes_hp(self.load):
            return self.load(), NOTHING_READ
        declared = len(hp.space)
        with recording(hp) as recorded:
            value = self.load(hp)
        # A trial that takes the result from the cache would not declare what is new here.
        return value, recorded.read if len(hp.space) == declared else None


def _warn(error: Exception) -> None:
    if str(error):
        log.warning("Each trial calls load_data() itself: %s.", error)
