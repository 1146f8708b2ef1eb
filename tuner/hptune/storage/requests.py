"""`DIR/requests`: what users ask of the study's master, one JSON object on each line.

The commands (`hptune stop`, `enqueue`, `pause`, `resume`, `note`), the live page, and programs that
ask for trials append to the file. The master reads it about once a second, and 20 times a second
while programs have trials. Its answers are in the ledger.

Where no master runs, the program that has the study's lock answers those that wait for it. Its
answers are in the ledger, too, and in this file, where the others need not follow the ledger to
find them.

The file always exists and is changed in place. NFS clients cache for up to a minute which names
exist, so a new or renamed file may be seen late. They check the contents of a known file at every
open.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import IO

import cattrs
from cattrs import BaseValidationError

from ..core.user_requests import RequestAnswer, UserAction, UserRequest
from ..errors import NotAFileError, UsageError
from ..files.access import open_plain, read_part
from ..files.file_errors import storage_errors

_MOST_BYTES = 1_000_000
"""How much of the file is read at once, and so the longest request; a longer file begins again."""


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
        """Add a request; it is on disk when this returns, unless its program waits for the answer.

        Raises:
            UsageError: It is too long, because of its configurations.
            StorageFullError: There is no space, or writing is forbidden.
        """
        line = _line(request)
        if len(line) > _MOST_BYTES:
            raise UsageError(
                f"one request has at most {_MOST_BYTES} bytes, and this one has {len(line)}; give "
                + ("less in one call" if request.event else "the configurations in parts")
            )
        self._write([line], must_last=request.action is not UserAction.TRAIN)

    def answer(self, answers: Iterable[RequestAnswer], *, begins_again: bool = False) -> None:
        """Add answers to requests of programs, which are in the ledger already.

        Args:
            answers: The answers.
            begins_again: Whether a long file may begin again: this program has the study's lock, so
                there is no master that has yet to read it.

        Raises:
            StorageFullError: There is no space, or writing is forbidden.
        """
        self._write(map(_line, answers), begins_again=begins_again)

    def _write(
        self, lines: Iterable[bytes], *, must_last: bool = False, begins_again: bool = False
    ) -> None:
        with storage_errors(self._path), self._open() as file:
            if self._locks_work:
                fcntl.lockf(file, fcntl.LOCK_EX)
            if begins_again and os.fstat(file.fileno()).st_size > _MOST_BYTES:
                file.truncate(0)
            file.write(b"".join(lines))
            file.flush()
            if must_last:
                os.fsync(file.fileno())

    def _open(self) -> IO[bytes]:
        return os.fdopen(open_plain(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")

    def read(self) -> list[UserRequest]:
        """Return the requests since the last call, but for those that were withdrawn.

        Empty if the file cannot be read now.
        """
        entries = self.read_all()
        over = {each.request for each in entries if isinstance(each, RequestAnswer)}
        return [each for each in entries if isinstance(each, UserRequest) and each.name not in over]

    def read_all(self) -> list[UserRequest | RequestAnswer]:
        """Return the requests and the answers since the last call, in their order."""
        entries: list[UserRequest | RequestAnswer] = []
        while part := self._read_part():
            entries += [entry for line in part.splitlines() if (entry := _entry(line)) is not None]
        return entries

    def _read_part(self) -> bytes:
        """Return the next whole lines; empty if there are none, or the file cannot be read now."""
        try:
            found = read_part(self._path, begin=self._read_bytes, most_bytes=_MOST_BYTES)
            if not found and self._path.stat().st_size < self._read_bytes:  # it has begun again
                self._read_bytes = 0
                return self._read_part()
        except (OSError, NotAFileError):
            return b""
        whole = found[: found.rfind(b"\n") + 1]
        if not whole and len(found) == _MOST_BYTES:
            whole = found  # one line that no request of ours can be
        self._read_bytes += len(whole)
        return whole

    def skip(self, *, but_bytes: int = 0) -> None:
        """Let `read` begin after the present requests, which were meant for an earlier master.

        Args:
            but_bytes: How much of the end of the file is read, as programs wait for answers.

        Raises:
            StorageFullError: There is no space, or writing is forbidden.
        """
        with storage_errors(self._path), self._open() as file:
            self._read_bytes = max(0, file.tell() - but_bytes)


def _line(entry: UserRequest | RequestAnswer) -> bytes:
    # It begins a line of its own even after one that was not written to its end.
    return f"\n{json.dumps(asdict(entry))}\n".encode()


def _entry(line: bytes) -> UserRequest | RequestAnswer | None:
    """Return what a line says; None if it is none of ours."""
    try:
        found = json.loads(line)
        if "text" in found:
            return cattrs.structure(found, RequestAnswer)
        request = cattrs.structure(found, UserRequest)
        float(request.trial or 0)  # raises an error if it has more digits than an event may hold
    except (ValueError, TypeError, OverflowError, RecursionError, BaseValidationError):
        # Empty, incomplete or something else, such as a trial Infinity or brackets without end.
        return None
    return request
