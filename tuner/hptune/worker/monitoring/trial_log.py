"""The limit of a trial's log, which a trial may fill faster than anybody reads it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

MOST_BYTES = 200_000_000
"""Size from which a log is cut."""

_BEGINNING_BYTES = 1_000_000


def limit_log(path: Path) -> None:
    """Cut a log that has grown too large to its beginning, and say so in it.

    The processes that write to it append to it, so they continue after the cut.
    """
    with contextlib.suppress(OSError):
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_size <= MOST_BYTES:
            return
        os.truncate(path, _BEGINNING_BYTES)
        cut = found.st_size - _BEGINNING_BYTES
        with path.open("ab") as log:
            log.write(b"\n[hptune: %d bytes cut, as the log had grown too large]\n" % cut)
