"""The choice of a display for a stream. The live one is loaded only for a terminal."""

from __future__ import annotations

import os
from typing import TextIO

from .plain import PlainProgress, QuietProgress
from .progress import Progress


def make_progress(stream: TextIO, *, quiet: bool) -> Progress:
    """Return the live display for a capable terminal, and a plain one for a pipe or a log.

    Args:
        stream: Where to write.
        quiet: Show notes only.
    """
    if quiet:
        return QuietProgress(stream)
    is_capable = os.environ.get("TERM", "") not in ("", "dumb", "unknown")
    is_utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
    if stream.isatty() and is_capable and is_utf8:
        from .live import LiveProgress

        return LiveProgress(stream)
    return PlainProgress(stream)
