"""The choice of a display for a stream. The live ones are loaded only where they are used."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import TextIO

from ...text import is_utf8
from .background_writer import BackgroundWriter
from .plain import PlainProgress, QuietProgress
from .progress import Progress

_STDERR = 2
_TICK_SECONDS = 0.5
_WRITE_KEPT = """
import os, sys
os.read(0, 1)
information = b"I0000 ", b"WARNING: All log messages before absl::InitializeLog()"
with open(int(sys.argv[1]), "rb") as kept:
    kept.seek(0)
    sys.stdout.buffer.writelines(line for line in kept if not line.startswith(information))
"""
"""A process that writes what was kept from stderr, once its caller says so or has died."""


def make_progress(stream: TextIO, *, quiet: bool) -> Progress:
    """Return a live display for a capable terminal or a notebook, and a plain one for a log.

    Args:
        stream: Where to write.
        quiet: Show notes only.
    """
    if quiet:
        return QuietProgress(stream)
    if is_notebook():
        from .notebook import NotebookProgress

        return NotebookProgress(stream)
    is_capable = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    if stream.isatty() and is_capable and is_utf8(stream):
        from .live import LiveProgress

        return LiveProgress(stream)
    return PlainProgress(stream)


@contextlib.contextmanager
def progress_on(stream: TextIO, *, quiet: bool = False) -> Iterator[Progress]:
    """Yield a display, such as for what comes before a run, and stop it in the end."""
    progress = make_progress(stream, quiet=quiet)
    try:
        yield progress
    finally:
        progress.stop()


@contextlib.contextmanager
def imports_shown(*, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Yield what shows imports in this process, of which `watched_imports` says the names.

    While they last, nothing else is written to stderr: TensorFlow writes lines for information that
    no setting hides. Other lines follow.
    """
    shown = _ImportsShown(is_quiet=quiet)
    try:
        yield shown.say
    finally:
        shown.say("")


class _ImportsShown:
    def __init__(self, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        self._words = ""
        self._showing: contextlib.ExitStack | None = None
        self._stream: TextIO | None = None

    def say(self, words: str) -> None:
        """Take what is imported now; empty for nothing."""
        if not words:
            if self._showing is not None:  # its thread may look once more, and still has words
                self._showing.close()
                self._showing = None
            return
        self._words = words
        if self._showing is None:
            with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
                self._show(stack)
                self._showing = stack.pop_all()

    def _show(self, stack: contextlib.ExitStack) -> None:
        # It stays open: the thread of a display whose output nobody reads may write to it later.
        self._stream = self._stream or os.fdopen(os.dup(_STDERR), "w", closefd=False)
        stack.enter_context(_without_information())
        progress = stack.enter_context(progress_on(self._stream, quiet=self._is_quiet))
        over = threading.Event()

        def tick() -> None:
            while not over.wait(_TICK_SECONDS):
                progress.busy(self._words)

        ticks = threading.Thread(target=tick, daemon=True)
        ticks.start()
        stack.callback(ticks.join)
        stack.callback(over.set)


@contextlib.contextmanager
def _without_information() -> Iterator[None]:
    """Keep from stderr what a framework writes there for information at its import.

    Another process writes the rest, as the framework may kill this one: TensorFlow does so where it
    needs other instructions of the processor.
    """
    with os.fdopen(os.dup(_STDERR), "wb") as real, tempfile.TemporaryFile() as kept:
        writer = subprocess.Popen(
            [sys.executable, "-IS", "-c", _WRITE_KEPT, str(kept.fileno())],
            stdin=subprocess.PIPE,
            stdout=real,
            pass_fds=[kept.fileno()],
            start_new_session=True,
        )
        os.dup2(kept.fileno(), _STDERR)
        try:
            yield
        finally:
            os.dup2(real.fileno(), _STDERR)
            writer.communicate(b"\n")


def progress_stream() -> TextIO:
    """Return where a run in Python shows its progress; a notebook marks stderr as errors."""
    # None where the script was started without it (`2>&-`).
    return (sys.stdout if is_notebook() else sys.stderr) or io.StringIO()


def print_end(text: str, stream: TextIO) -> None:
    """Print the summary that ends a run in Python; give up if it is not read."""
    writer = BackgroundWriter(stream)
    writer.write(f"\n{text}\n")
    writer.finish()


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
