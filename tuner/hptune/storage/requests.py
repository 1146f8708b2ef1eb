"""`DIR/requests`: what users ask of the study's master, one JSON object on each line.

The commands (`hptune stop`, `enqueue`, `pause`, `resume`, `note`), the live page, and programs that
ask for trials append to the file. The master reads it about once a second, and 20 times a second
while programs have trials. Its answers are in the ledger.

The file always exists and is changed in place. NFS clients cache for up to a minute which names
exist, so a new or renamed file may be seen late. They check the contents of a known file at every
open.
"""

from __future__ import annotations

import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import IO

import cattrs
from cattrs import BaseValidationError

from ..core.user_requests import Note, UserAction, UserRequest
from ..errors import NotAFileError, UsageError
from ..files.access import open_plain, read_part
from ..files.file_errors import storage_errors

_MOST_BYTES = 1_000_000
"""How much of the file is read at once, and so the longest request."""


class RequestFile:
    """The requests to the master of one study.

    Args:
        path: The file.
        locks_work: Whether its file system has POSIX locks. They keep two writers on different
            machines from writing to the same place.
    """

    def __init__(self, path: Path, *, locks_work: bool) -> None:
        self._path = path
        self._locks_work = locks_work
        self._read_bytes = 0

    def append(self, request: UserRequest) -> None:
        """Add a request; it is on disk when this returns.

        Raises:
            UsageError: It is too long, because of its configurations.
            StorageFullError: There is no space, or writing is forbidden.
        """
        fields = {
            "request": request.name,
            "action": request.action,
            "by": request.by,
            "trial": request.trial,
            "points": [dict(point) for point in request.points],
            "note": request.note and asdict(request.note),
            "event": request.event,
            "master": request.master,
        }
        # It begins a line of its own even after one that was not written to its end.
        line = f"\n{json.dumps(fields)}\n".encode()
        if len(line) > _MOST_BYTES:
            raise UsageError(
                f"{len(request.points)} configurations are too many for one request "
                f"({len(line)} bytes, allowed are {_MOST_BYTES}); give them in parts"
            )
        with storage_errors(self._path), self._open() as file:
            if self._locks_work:
                fcntl.lockf(file, fcntl.LOCK_EX)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())

    def _open(self) -> IO[bytes]:
        return os.fdopen(open_plain(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")

    def read(self) -> list[UserRequest]:
        """Return the requests since the last call; empty if the file cannot be read now."""
        try:
            found = read_part(self._path, begin=self._read_bytes, most_bytes=_MOST_BYTES)
        except (OSError, NotAFileError):
            return []
        whole = found[: found.rfind(b"\n") + 1]
        if not whole and len(found) == _MOST_BYTES:
            whole = found  # one line that no request of ours can be
        self._read_bytes += len(whole)
        return [request for line in whole.splitlines() if (request := _request(line)) is not None]

    def skip(self) -> None:
        """Let `read` begin after the present requests, which were meant for an earlier master.

        Raises:
            StorageFullError: There is no space, or writing is forbidden.
        """
        with storage_errors(self._path), self._open() as file:
            self._read_bytes = file.tell()


def _request(line: bytes) -> UserRequest | None:
    """Return the request of a line; None if it is none of ours."""
    try:
        found = json.loads(line)
        trial, note, event = found["trial"], found["note"], found.get("event")
        float(trial or 0)  # raises an error if it has more digits than an event may hold
        return UserRequest(
            name=str(found["request"]),
            action=UserAction(found["action"]),
            by=str(found["by"]),
            trial=None if trial is None else int(trial),
            points=tuple(dict(point) for point in found["points"]),
            note=None if note is None else cattrs.structure(note, Note),
            event=None if event is None else (str(event[0]), str(event[1])),
            master=str(found.get("master", "")),
        )
    except (ValueError, LookupError, TypeError, OverflowError, RecursionError, BaseValidationError):
        # Empty, incomplete or something else, such as a trial Infinity or brackets without end.
        return None
