"""The choice of a display for a stream. The live ones are loaded only where they are used."""

from __future__ import annotations

import os
import sys
from typing import TextIO

from ...text import is_utf8
from .background_writer import BackgroundWriter
from .plain import PlainProgress, QuietProgress
from .progress import Progress


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


def progress_stream() -> TextIO:
    """Return where a run in Python shows its progress; a notebook marks stderr as errors."""
    return sys.stdout if is_notebook() else sys.stderr


def print_end(text: str, stream: TextIO) -> None:
    """Print the summary that ends a run in Python; give up if it is not read."""
    writer = BackgroundWriter(stream)
    writer.write(f"\n{text}\n")
    writer.finish()


def is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
