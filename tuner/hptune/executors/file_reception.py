"""Files of a worker as the master writes them into the study's directory."""

from __future__ import annotations

from collections.abc import MutableMapping
from pathlib import Path

from ..errors import DISK_FULL
from ..worker.transport.files import IncomingFiles, Piece, is_log, remove, words_of, write_log
from ..worker.transport.local_study import unit_of
from ..worker.transport.notices import Change
from ..worker.transport.remote_study import NotSent


class FileReception:
    """The files of one notice.

    A file that cannot be written holds up no file but those that belong together with it: the later
    ones of a trial's own checkpoint. What was removed on the worker stays in the study as long as a
    file of the same folder is missing, so that the last checkpoint is not removed before the next
    one is there.

    Args:
        root: The study's directory.
        log_starts: Where in each log of the study the worker's begins, by path. A log that is not
            in it begins where the study's ends now, and is added.

    Attributes:
        taken: Paths of the files that were written or removed.
        not_sent: Why the first of the others was not.
    """

    def __init__(self, root: Path, log_starts: MutableMapping[str, int]) -> None:
        self._root = root
        self._log_starts = log_starts
        self._incoming = IncomingFiles(root)
        self._changed: set[str] = set()
        self._failed: set[str] = set()
        self.taken: list[str] = []
        self.not_sent: NotSent | None = None

    @property
    def is_over(self) -> bool:
        """Whether nothing more can be written, because the disk is full."""
        return self.not_sent is not None and self.not_sent.is_full

    def wants(self, path: str) -> bool:
        """Return whether the next piece of a file is of use."""
        return not self.is_over and path not in self._changed and unit_of(path) not in self._failed

    def add(self, part: Change, piece: Piece | None) -> None:
        """Write the next piece of a file.

        Args:
            part: The piece's place.
            piece: The piece; None if the file has changed since its first piece.
        """
        path = part.state.path
        if not self.wants(path):
            return
        if piece is None:
            self._changed.add(path)
            self._incoming.drop(path)
            return
        try:
            if self._write(part, piece):
                self.taken.append(path)
        except (OSError, ValueError) as error:
            self._fail(path, error)

    def _write(self, part: Change, piece: Piece) -> bool:
        """Write a piece, and return whether its file is complete."""
        state = part.state
        if not is_log(state.path):
            return self._incoming.add(state, piece)
        if state.path not in self._log_starts:
            self._log_starts[state.path] = _size(self._root / state.path)
        start = self._log_starts[state.path]
        write_log(self._root, state.path, piece, at=start + part.offset)
        return True

    def remove(self, path: str) -> None:
        """Remove a file that was removed on the worker."""
        folder = _folder(path)
        if self.is_over or any(_folder(each) == folder for each in (*self._changed, *self._failed)):
            return
        try:
            remove(self._root, path)
            self.taken.append(path)
        except (OSError, ValueError) as error:
            self._fail(path, error)

    def close(self) -> None:
        """Remove the files that are not whole."""
        self._incoming.close()

    def _fail(self, path: str, error: OSError | ValueError) -> None:
        self._failed.add(unit_of(path))
        is_full = isinstance(error, OSError) and error.errno in DISK_FULL
        if self.not_sent is None or is_full:
            self.not_sent = NotSent(words_of(error), is_full=is_full)


def _folder(path: str) -> str:
    """Return the folder of a trial's directory that a file is in.

    >>> _folder("trials/3/resume/5.ckpt")
    'trials/3/resume'
    """
    return "/".join(path.split("/")[:3])


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except FileNotFoundError:
        return 0
