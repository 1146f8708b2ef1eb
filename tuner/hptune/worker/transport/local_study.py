"""A worker's copy of the files of its trials, and what has changed in it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from .files import (
    PIECE_BYTES,
    TRIALS,
    FileState,
    RefusedPath,
    checked_of_trial,
    files_below,
    is_log,
)
from .notices import Change, Changes, LeftOut

CHECKPOINT = "checkpoint"
"""The folder of a trial's own files, which belong together: all of them travel, or none."""

RESUME = "resume"
"""The folder of checkpoints, whose files are whole as soon as they have their names."""

BROUGHT = (RESUME, CHECKPOINT)
"""Folders of a trial that its next attempt needs."""

_SETTLED_SECONDS = 1.0
"""Time without a change after which a file that may be half written is taken."""

_UNSETTLED_SECONDS = 30.0
"""Time after which a file is taken although it changes all the time."""


@dataclass(slots=True)
class _Trial:
    """What is known of a trial's files.

    Attributes:
        known: The files as the study has them, by path.
        logs: How many bytes of each log the study has.
        seen: The files at the last look, and when each was first seen so.
        unsent_since: When a file was first seen to differ from what the study has.
        named: What was said to be too large.
    """

    known: dict[str, FileState] = field(default_factory=dict)
    logs: dict[str, int] = field(default_factory=dict)
    seen: dict[str, tuple[FileState, float]] = field(default_factory=dict)
    unsent_since: dict[str, float] = field(default_factory=dict)
    named: set[str] = field(default_factory=set)


class LocalStudy:
    """A folder with the layout of a study's directory, for the trials of one worker.

    A file outside the folder of checkpoints is taken when looks a second apart find it unchanged,
    so that half of a file that is being written is not taken.

    Args:
        path: The folder, which exists and is this user's alone.
        limit_bytes: The largest file that travels, and the largest checkpoint folder.
        clock: Returns the seconds of a monotonic clock.
    """

    def __init__(
        self, path: Path, *, limit_bytes: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path = path
        self._limit_bytes = limit_bytes
        self._clock = clock
        self._trials: dict[int, _Trial] = {}

    def begin(self, trial: int) -> None:
        """Make the trial's directory, which is empty."""
        self.forget(trial)
        (self.path / TRIALS / str(trial)).mkdir(parents=True)
        self._trials[trial] = _Trial()

    def brought(self, trial: int) -> None:
        """Note that the study has all files that the trial has here now."""
        self._trials[trial].known = {file.path: file for file in self._files(trial)}

    def forget(self, trial: int) -> None:
        """Remove the trial's directory."""
        self._trials.pop(trial, None)
        shutil.rmtree(self.path / TRIALS / str(trial), ignore_errors=True)

    def look(self, trial: int, *, is_final: bool = False, with_logs: bool = True) -> Changes:
        """Return what has changed since the study last had the trial's files.

        Args:
            trial: The trial, which has begun.
            is_final: Whether nothing writes to the files any more, except for logs.
            with_logs: Whether to include logs.
        """
        own = self._trials[trial]
        found = {file.path: file for file in self._files(trial)}
        now = self._clock()
        own.seen = {path: _since(own.seen.get(path), state, now) for path, state in found.items()}
        own.unsent_since = {path: at for path, at in own.unsent_since.items() if path in found}
        large = self._too_large(found.values())
        changed: list[Change] = []
        for path, state in found.items():
            if is_log(path):
                if with_logs:
                    changed += _new_of_log(state, own.logs)
            elif own.known.get(path) == state:
                own.unsent_since.pop(path, None)
            elif unit_of(path) not in large and (is_final or _is_settled(own, state, now)):
                changed.append(Change(state))
        gone = [path for path in own.known if path not in found and unit_of(path) not in large]
        left_out = [LeftOut(unit, size) for unit, size in large.items() if unit not in own.named]
        own.named.update(large)
        return Changes(tuple(changed), tuple(gone), tuple(left_out))

    def taken(self, trial: int, changes: Changes, paths: Collection[str]) -> None:
        """Note which of the changes the study has by now.

        Args:
            trial: The trial; one that was forgotten is ignored.
            changes: What `look` returned.
            paths: The paths of the files that were taken or removed.
        """
        if (own := self._trials.get(trial)) is None:
            return
        for change in changes.changed:
            path = change.state.path
            if path in paths and is_log(path):
                own.logs[path] = change.state.size_bytes
            elif path in paths:
                own.known[path] = change.state
                own.unsent_since.pop(path, None)
        for path in changes.gone:
            if path in paths:
                own.known.pop(path, None)

    def skip(self, trial: int, state: FileState) -> None:
        """Leave out a file that cannot be read, until it changes."""
        if (own := self._trials.get(trial)) is not None:
            own.known[state.path] = state
            if is_log(state.path):
                own.logs[state.path] = state.size_bytes

    def _files(self, trial: int) -> Iterable[FileState]:
        for state in files_below(self.path, f"{TRIALS}/{trial}"):
            try:
                checked_of_trial(state.path, trial)
            except RefusedPath:
                continue
            if not is_unfinished(state.path):
                yield state

    def _too_large(self, found: Iterable[FileState]) -> dict[str, int]:
        """Return what is larger than the limit, and its size."""
        sizes: dict[str, int] = {}
        for state in found:
            if not is_log(state.path):
                unit = unit_of(state.path)
                sizes[unit] = sizes.get(unit, 0) + state.size_bytes
        return {unit: size for unit, size in sizes.items() if size > self._limit_bytes}


def _since(
    before: tuple[FileState, float] | None, state: FileState, now: float
) -> tuple[FileState, float]:
    """Return a file's state, and since when it has been so."""
    return before if before is not None and before[0] == state else (state, now)


def _is_settled(own: _Trial, state: FileState, now: float) -> bool:
    if PurePosixPath(state.path).parts[2] == RESUME:
        return True
    unsent_since = own.unsent_since.setdefault(state.path, now)
    _, seen_since = own.seen[state.path]
    return now - seen_since >= _SETTLED_SECONDS or now - unsent_since > _UNSETTLED_SECONDS


def _new_of_log(state: FileState, logs: dict[str, int]) -> list[Change]:
    """Return the next piece of a log that the study lacks, if any."""
    known = logs.get(state.path, 0)
    if state.size_bytes < known:  # it was cut, as it had grown too large
        known = 0
    if state.size_bytes == known:
        return []
    return [Change(replace(state, size_bytes=min(state.size_bytes, known + PIECE_BYTES)), known)]


def unit_of(path: str) -> str:
    """Return what travels as a whole: a trial's checkpoint folder, or a file.

    >>> unit_of("trials/3/checkpoint/a/b"), unit_of("trials/3/model.keras")
    ('trials/3/checkpoint', 'trials/3/model.keras')
    """
    parts = PurePosixPath(path).parts
    return "/".join(parts[:3]) if parts[2] == CHECKPOINT else path


def is_unfinished(path: str) -> bool:
    """Return whether this is a checkpoint that is being written."""
    name = path.rpartition("/")[2]
    return f"/{RESUME}/." in path and name.startswith(".") and name.endswith(".tmp")
