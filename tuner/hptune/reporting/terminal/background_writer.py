"""A text stream whose writes never block, for terminals and pipes that may not be read.

A process that writes to a terminal stopped by Ctrl-S, or to the pipe of an ssh connection that
hangs, waits for a reader. A study must not wait.
"""

from __future__ import annotations

import contextlib
import io
import os
import select
import threading
import time
from typing import TextIO

MOST_WAITING_CHARACTERS = 4_000_000
"""Limit of the text that waits for a reader, some 20,000 lines; later lines are dropped."""

PATIENCE_SECONDS = 5.0
"""Time without any progress after which `BackgroundWriter.finish` gives the reader up."""

_PIECE_BYTES = 4096
"""Bytes of one write: small, so that a slow reader shows progress."""


class BackgroundWriter(io.TextIOBase):
    """A stream that a thread writes to the file below another stream.

    The thread uses the file, not the stream: a thread that hangs in `sys.stderr` would keep the
    stream's lock, and Python could not exit. A stream without a file, such as a buffer, cannot
    block and is written to directly. Errors end the output, never the caller. Any thread may
    write.

    Args:
        stream: The terminal, pipe, log or buffer.
        most_characters: Limit of the text that waits.
        patience_seconds: Time without progress after which `finish` gives up.

    Attributes:
        is_behind: Whether text waits to be written.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        most_characters: int = MOST_WAITING_CHARACTERS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._stream = stream
        self._encoding = stream.encoding or "utf-8"
        self._file = _file_of(stream)
        self._most_characters = most_characters
        self._patience_seconds = patience_seconds
        self._waiting: list[str] = []
        self._waiting_characters = 0
        self._dropped_lines = 0
        self.is_behind = False
        self._is_broken = False
        self._progressed_at = 0.0
        self._changed = threading.Condition()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has it writable
        """Encoding of the file; characters that it lacks are replaced."""
        return self._encoding

    def isatty(self) -> bool:
        """Return whether this is a terminal."""
        return self._stream.isatty()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, text: str) -> int:
        """Write text soon, or drop it if too much waits already."""
        with self._changed:
            if self._is_broken:
                pass
            elif self._file is None:
                self._write_directly(text)
            elif self._waiting_characters + len(text) > self._most_characters:
                self._dropped_lines += text.count("\n")
            else:
                self._waiting.append(text)
                self._waiting_characters += len(text)
                if not self.is_behind:
                    self.is_behind = True
                    # A daemon: it may hang, and the process does not wait for it.
                    thread = threading.Thread(
                        target=self._work, args=(self._file,), name="hptune-writer", daemon=True
                    )
                    thread.start()
        return len(text)

    def finish(self) -> bool:
        """Wait until all is written, and return whether it is; give up if nothing is read."""
        with self._changed:
            self._progressed_at = time.monotonic()
            while self.is_behind:
                idle_seconds = time.monotonic() - self._progressed_at
                if idle_seconds >= self._patience_seconds:
                    return False
                self._changed.wait(self._patience_seconds - idle_seconds)
            return True

    def _write_directly(self, text: str) -> None:
        try:
            self._stream.write(text.encode(self._encoding, "replace").decode(self._encoding))
            self._stream.flush()
        except (OSError, ValueError):  # ValueError: the stream was closed
            self._is_broken = True

    def _work(self, file: int) -> None:
        while text := self._next():
            left = text.encode(self._encoding, "replace")
            try:
                while left:
                    try:
                        written = os.write(file, left[:_PIECE_BYTES])
                    except BlockingIOError:
                        # Another program, such as ssh, has made the terminal non-blocking.
                        select.select((), (file,), ())
                        continue
                    left = left[written:]
                    with self._changed:
                        self._progressed_at = time.monotonic()
            except OSError:
                self._is_broken = True

    def _next(self) -> str:
        """Return the text that waits; empty, and no longer behind, if there is none."""
        with self._changed:
            text = "" if self._is_broken else "".join(self._waiting)
            if self._dropped_lines and not self._is_broken:
                text += f"({self._dropped_lines} lines were dropped: they were not read in time)\n"
            self._waiting, self._waiting_characters, self._dropped_lines = [], 0, 0
            self.is_behind = bool(text)
            self._changed.notify_all()
            return text


def _file_of(stream: TextIO) -> int | None:
    """Return the descriptor of a stream that may block; None for a buffer."""
    if isinstance(stream, io.TextIOWrapper):
        with contextlib.suppress(OSError, ValueError):
            return stream.fileno()
    return None
