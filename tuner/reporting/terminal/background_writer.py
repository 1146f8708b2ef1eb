"""Writes to terminals and pipes that may not be read: nobody has to wait for their readers.

Whoever writes to a terminal that was stopped by Ctrl-S, or to the pipe of an ssh connection that
hangs, waits until it is read again. A study must not.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TextIO

MOST_WAITING = 10_000
"""So many lines wait for a reader; what comes then is counted, and left out."""

PATIENCE_SECONDS = 5.0
"""A reader who takes nothing for so long in the end does not get the rest."""


class BackgroundWriter(Protocol):
    """Carries out what writes, in order. What is given to it handles its own errors."""

    def write(self, action: Callable[[], None]) -> None:
        """Carry out what writes something that stays."""

    def draw(self, action: Callable[[], None]) -> None:
        """Carry out what draws a frame, unless a newer one comes before its turn."""

    def finish(self) -> bool:
        """Wait until all is written, but not for ever; whether it is. May be repeated."""


class AtOnce:
    """Writes in the caller's thread: for what is surely read, such as a buffer."""

    def write(self, action: Callable[[], None]) -> None:
        """Do it."""
        action()

    def draw(self, action: Callable[[], None]) -> None:
        """Do it."""
        action()

    def finish(self) -> bool:
        """All is written."""
        return True


class InBackground:
    """Writes in a thread of its own, with bounded memory.

    Args:
        tell_lost: Writes that so many lines were left out.
        most: How many may wait.
        patience_seconds: `finish` gives up when nothing could be written for so long.
    """

    def __init__(
        self,
        tell_lost: Callable[[int], None],
        *,
        most: int = MOST_WAITING,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._tell_lost = tell_lost
        self._most = most
        self._patience_seconds = patience_seconds
        self._waiting: deque[Callable[[], None]] = deque()
        self._frame: Callable[[], None] | None = None
        self._lost = 0
        self._is_busy = False
        self._written_at = time.monotonic()
        self._changed = threading.Condition()

    def write(self, action: Callable[[], None]) -> None:
        """Have it done in its turn; where too much waits, it is only counted."""
        with self._changed:
            if len(self._waiting) < self._most:
                self._waiting.append(action)
            else:
                self._lost += 1
            self._see_to_it()

    def draw(self, action: Callable[[], None]) -> None:
        """Have it done when nothing else waits; it takes the place of one that waits."""
        with self._changed:
            self._frame = action
            self._see_to_it()

    def finish(self) -> bool:
        """Wait until all is done, as long as anything is."""
        with self._changed:
            begun = time.monotonic()
            while self._is_busy:
                idle = time.monotonic() - max(begun, self._written_at)
                if idle >= self._patience_seconds:
                    return False
                self._changed.wait(self._patience_seconds - idle)
            return True

    def _see_to_it(self) -> None:
        if not self._is_busy:
            self._is_busy = True
            # Nobody waits for it at the end of the process, since it may hang.
            threading.Thread(target=self._work, name="hptune-scribe", daemon=True).start()

    def _work(self) -> None:
        """Until there is nothing left to do."""
        while (action := self._next()) is not None:
            action()

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            self._written_at = time.monotonic()
            action: Callable[[], None] | None
            if self._waiting:
                action = self._waiting.popleft()
            elif self._lost:
                lost, self._lost = self._lost, 0
                action = functools.partial(self._tell_lost, lost)
            else:
                action, self._frame = self._frame, None
            self._is_busy = action is not None
            self._changed.notify_all()
            return action


class Unshared(io.TextIOBase):
    """The file of a stream, without the stream's lock.

    A thread that hangs in `sys.stderr` keeps its lock, without which Python cannot end.

    Args:
        stream: One that has a file.
    """

    def __init__(self, stream: TextIO) -> None:
        self._file = stream.fileno()
        self._encoding = stream.encoding or "utf-8"
        self._written = ""

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has it writable
        """How text becomes bytes; what it lacks is replaced."""
        return self._encoding

    def fileno(self) -> int:
        """The file."""
        return self._file

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        return os.isatty(self._file)

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, text: str) -> int:
        """Put it with what is to be written."""
        self._written += text
        return len(text)

    def flush(self) -> None:
        """Write it; may block.

        Raises:
            OSError: The file takes no more.
        """
        written, self._written = self._written.encode(self._encoding, "replace"), ""
        while written:
            written = written[os.write(self._file, written) :]


def can_block(stream: TextIO) -> bool:
    """Whether writing there may take for ever: it is a file, and no mere buffer."""
    if isinstance(stream, io.TextIOWrapper):
        with contextlib.suppress(OSError, ValueError):
            return stream.fileno() >= 0
    return False
