"""A trial's checkpoints on disk: each is complete or absent, and two are kept.

::

    trials/<number>/resume/<step>.ckpt       a mark, the SHA-256 of the state, and the pickled state

A file is written under another name, synced to disk, and then renamed. So neither a kill nor a
power cut leaves a partial file under the final name. A file that the disk has damaged is recognised
by its checksum, and the one before it is used.

The state is pickled, since it may hold objects of the user's classes. A checkpoint that another
user may have written is not read.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import pickle
import shutil
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from ...core.clock import polls
from ...errors import DISK_FULL
from ...files.access import replacing
from ...files.ownership import check_loadable, withhold_writing

log = logging.getLogger(__name__)

KEPT = 2
_APPEARS_SECONDS = 60.0
"""Longest time for a file to appear on another node; NFS caches a directory for up to a minute."""
_POLL_SECONDS = 0.2
_MARK = b"hptune checkpoint 2\n"
_HEADER_BYTES = len(_MARK) + hashlib.sha256().digest_size

_FORBIDDEN = frozenset((errno.EACCES, errno.EPERM, errno.EROFS))


class CheckpointMissing(Exception):
    """A checkpoint that rank 0 has found cannot be read by another rank."""


class NoRoom(Exception):
    """The study's disk is full or may not be written to.

    Neither is the attempt's fault: it ends here, and continues when there is space.
    """


@contextlib.contextmanager
def room_needed(what: str, where: Path) -> Iterator[None]:
    """Turn errors of a full or read-only disk into `NoRoom`.

    Args:
        what: What is written, for the message.
        where: The directory that it is written to.

    Raises:
        NoRoom: The disk is full, the quota used up, or writing forbidden. Other errors pass
            unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in DISK_FULL:
            raise NoRoom(f"no room for {what} in {where}: {os.strerror(error.errno)}") from error
        if error.errno in _FORBIDDEN:
            raise NoRoom(f"{what} cannot be written in {where}: {error.strerror}") from error
        raise


class Checkpoints:
    """The checkpoints of one trial; creating this object touches no file.

    Args:
        trial_directory: The trial's directory.
        is_read_only: Whether another process writes them, as rank 0 of a parallel trial does.
    """

    def __init__(self, trial_directory: Path, *, is_read_only: bool = False) -> None:
        self._directory = trial_directory / "resume"
        self._is_read_only = is_read_only

    def write(self, step: int, state: object) -> None:
        """Write the state after `step` epochs; its bytes are on disk when this returns.

        Its name may not be yet, so after a power cut the checkpoint before it may be the newest.

        Args:
            step: Epochs done; a checkpoint of the same step is replaced.
            state: Anything that can be pickled.

        Raises:
            NoRoom: The disk is full or may not be written to. Earlier checkpoints are unharmed.
        """
        path = self._directory / f"{step}.ckpt"
        with room_needed(f"the checkpoint of epoch {step}", self._directory):
            self._directory.mkdir(parents=True, exist_ok=True)
            with replacing(path, has_others=True) as fresh, fresh.open("xb") as file:
                withhold_writing(fresh)
                _write(file, state)
                file.flush()
                os.fsync(file.fileno())
        _remove([path for _, path in self._newest_first()][KEPT:])

    def newest(self, *, cleans_up: bool = True) -> tuple[int, Any] | None:
        """Return step and state of the newest intact checkpoint; None if there is none.

        Args:
            cleans_up: Whether to remove what a killed process left; not if one may be writing.
        """
        # Not in `write`: an attempt that is believed dead, but is not, may be writing here too.
        if cleans_up:
            _remove(self._directory.glob(".*.tmp"))
        for step, path in self._newest_first():
            try:
                return step, _read(path)
            except Exception as error:  # damaged, or written by another version of a library
                log.warning("The checkpoint %s cannot be used (%s).", path, error)
        return None

    def wait_for(self, step: int) -> Any:
        """Return the state after `step` epochs, which another process has found.

        A network file system may show a file to other nodes later.

        Raises:
            CheckpointMissing: It does not appear.
        """
        path, looks = self._directory / f"{step}.ckpt", polls(_APPEARS_SECONDS, _POLL_SECONDS)
        while True:
            is_last = next(looks)
            try:
                list(self._directory.iterdir())  # asks the server again
                return _read(path)
            except (OSError, ValueError) as error:
                if is_last:
                    reason = getattr(error, "strerror", None) or error
                    raise CheckpointMissing(
                        f"{path} cannot be read on {socket.gethostname()} ({reason})"
                    ) from error

    def remove(self) -> None:
        """Remove all checkpoints, unless another process writes them."""
        if self._is_read_only:
            return
        shutil.rmtree(self._directory, ignore_errors=True)

    def _newest_first(self) -> Iterator[tuple[int, Path]]:
        found = {int(path.stem): path for path in self._directory.glob("*.ckpt")
                 if path.stem.isdecimal()}  # fmt: skip
        yield from sorted(found.items(), reverse=True)


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()


class _Hashing:
    """A file for writing that computes the checksum of its contents."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> bytes:
        return self._hash.digest()


def _write(file: IO[bytes], state: object) -> None:
    file.write(bytes(_HEADER_BYTES))
    hashing = _Hashing(file)
    pickle.Pickler(hashing, protocol=5).dump(state)
    file.seek(0)
    file.write(_MARK + hashing.digest())


def _read(path: Path) -> Any:
    with path.open("rb") as file:
        check_loadable(file)
        header = file.read(_HEADER_BYTES)
        if header != _MARK + hashlib.file_digest(file, hashlib.sha256).digest():
            raise ValueError("its checksum is wrong")
        file.seek(_HEADER_BYTES)
        return pickle.load(file)  # noqa: S301 - the trial's own, and checked above
