"""Errors that the user's code raises, shown with the frames of the user's files only."""

from __future__ import annotations

import functools
import linecache
import re
import sysconfig
import traceback
from pathlib import Path

_HPTUNE = str(Path(__file__).parents[1])


def user_traceback(error: BaseException) -> str:
    """Return the error's traceback, trimmed to the user's files.

    Frames of the standard library and of installed packages are left out, unless no others would
    remain. Frames of hptune are always left out; the result is empty if there are no others.
    """
    shown = traceback.TracebackException.from_exception(error, capture_locals=False)
    linecache.checkcache()
    _trim(shown)
    if not shown.stack and not isinstance(error, SyntaxError):
        return ""
    return without_colours("".join(shown.format()).rstrip())


def without_colours(text: str) -> str:
    """Return a text without terminal control sequences, which Keras puts into its messages."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


def _trim(shown: traceback.TracebackException) -> None:
    others = [f for f in shown.stack if not f.filename.startswith((_HPTUNE, "<frozen"))]
    own = [f for f in others if not is_installed(f.filename)]
    shown.stack = traceback.StackSummary.from_list(own or others[-1:])
    for other in (shown.__cause__, shown.__context__):
        if other is not None:
            _trim(other)


def is_installed(file: str) -> bool:
    """Return whether a file belongs to the standard library, an installed package, or hptune."""
    return file.startswith(_installed_roots()) or "/site-packages/" in file


@functools.cache
def _installed_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return (_HPTUNE, *(paths[name] for name in names))
