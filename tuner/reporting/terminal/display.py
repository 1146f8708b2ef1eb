"""Which display suits a stream. The live one is loaded only for a terminal."""

from __future__ import annotations

import os
from typing import TextIO

from .plain import NotesOnly, PlainProgress
from .progress import Progress


def make_progress(stream: TextIO, *, quiet: bool) -> Progress:
    """The display that suits a stream: live on a terminal, lines in a pipe or a log.

    Args:
        stream: Where to write.
        quiet: Show notes only.
    """
    if quiet:
        return NotesOnly(stream)
    capable = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    draws_lines = (stream.encoding or "").lower().replace("-", "") == "utf8"
    if stream.isatty() and capable and draws_lines:
        from .live import LiveProgress

        return LiveProgress(stream)
    return PlainProgress(stream)
