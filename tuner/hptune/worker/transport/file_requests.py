"""Requests of a worker for files of the study, and the files that the master then writes to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import DISK_FULL
from .files import FileState, IncomingFiles, Piece, words_of
from .notices import FileNotice, FilesWanted

LOOK_SECONDS = 1.0
"""Seconds between two looks at a request, or at the files of running trials."""

SILENT_SECONDS = 30.0
"""Seconds without a call of the master after which a request is repeated."""

TRIES = 3
"""Number of times that a request is made."""


class FilesNotBrought(Exception):
    """The files of an attempt could not be brought to the worker.

    Attributes:
        is_full: Whether the worker's disk is full.
    """

    def __init__(self, reason: str, *, is_full: bool = False) -> None:
        super().__init__(reason)
        self.is_full = is_full


@dataclass(slots=True)
class _Request:
    """A request to the master, and its answer.

    Attributes:
        trial: The trial whose files are wanted; None for the user's code.
        incoming: The files that come.
        touched_at: When the master last did something for it.
        error: Why it failed; empty if it did not.
        is_full: Whether it failed as this machine's disk is full.
        done: Set when it is answered.
    """

    trial: int | None
    incoming: IncomingFiles
    touched_at: float = field(default_factory=time.monotonic)
    error: str = ""
    is_full: bool = False
    done: threading.Event = field(default_factory=threading.Event)

    def answer(self, error: str) -> None:
        """End it, and remove what has come in part."""
        self.incoming.close()
        self.error = error
        self.done.set()


class FileRequests:
    """The open requests of a worker for files. All methods may be called from any thread.

    Args:
        path: The folder that the files are written to.
        worker: The worker's address.
        tickets: Numbers the requests.
        tell: Sends a notice to the master; must not raise.
    """

    def __init__(
        self,
        path: Path,
        *,
        worker: str,
        tickets: Iterator[int],
        tell: Callable[[FileNotice], None],
    ) -> None:
        self._path = path
        self._worker = worker
        self._tickets = tickets
        self._tell = tell
        self._open: dict[int, _Request] = {}
        self._lock = threading.Lock()
        self._is_closed = False

    def fetch(self, trial: int | None) -> None:
        """Wait until the files of a trial are here, or the user's code for None.

        Raises:
            FilesNotBrought: They cannot be brought here.
        """
        for _ in range(TRIES):
            ticket, request = next(self._tickets), _Request(trial, IncomingFiles(self._path))
            with self._lock:
                if self._is_closed:
                    raise FilesNotBrought("its worker has ended")
                self._open[ticket] = request
            self._tell(FilesWanted(self._worker, ticket, trial))
            while not request.done.wait(LOOK_SECONDS):
                if time.monotonic() - request.touched_at > SILENT_SECONDS:
                    break
            with self._lock:
                del self._open[ticket]
            if request.done.is_set():
                if request.error:
                    raise FilesNotBrought(request.error, is_full=request.is_full)
                return
            request.incoming.close()
        raise FilesNotBrought("the master does not send them")

    def touch(self, ticket: int) -> None:
        """Note that the master works on a request, if it is one of these."""
        if (request := self._open.get(ticket)) is not None:
            request.touched_at = time.monotonic()

    def put(self, ticket: int, parts: Sequence[tuple[FileState, Piece]]) -> str:
        """Write the next piece of each of these files; return why that failed, or ""."""
        if (request := self._open.get(ticket)) is None:
            return "the files are not wanted any more"
        for state, piece in parts:
            try:
                request.incoming.add(state, piece)
            except (OSError, ValueError) as error:
                request.is_full = isinstance(error, OSError) and error.errno in DISK_FULL
                return words_of(error)
        return ""

    def brought(self, ticket: int, error: str) -> None:
        """Note that all wanted files are here, or why not."""
        if (request := self._open.get(ticket)) is not None:
            request.answer(error)

    def cancel(self, trial: int) -> None:
        """End the request for a trial's files, if there is one."""
        with self._lock:
            for request in self._open.values():
                if request.trial == trial:
                    request.answer("its attempt was told to stop")

    def close(self) -> None:
        """End all requests. May be repeated."""
        with self._lock:
            self._is_closed = True
            for request in self._open.values():
                request.answer("its worker has ended")
