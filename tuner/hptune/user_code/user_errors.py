"""What messages repeat of the user's code: the frames of an error, and what a call was given."""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import linecache
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from ..errors import HptuneError, ProgramFailed, how_to_install
from .programs import is_own_frame

_MOST_CHARACTERS = 20_000
"""Characters of a traceback that are shown and stored: an error may hold a whole array as text."""

_ARGUMENT_CHARACTERS = 60
"""Longest argument that is repeated in a hint."""

_NO_INPUT = (
    "nobody can answer input() in a trial: read the value from a file or an environment variable"
)
_NO_EPOCHS = (
    "trial.epochs is None where no number of epochs is given: add --epochs, or EPOCHS = 10 to the "
    "model file"
)
_PROGRAM = (
    "sys.exit was called: put what runs the file as a program under `if __name__ == '__main__':`, "
    "and raise an exception where a configuration is wrong"
)
_OF_NODES = ("Graph execution error:", "Detected at node", "File ")
"""How paragraphs of TensorFlow's messages begin that say where a node was defined."""
_ABSOLUTE = (
    "import a module beside it by its name, as in `from layers import Block`, and one of another "
    "folder after adding that folder to PYTHONPATH"
)

_HPTUNE = str(Path(__file__).parents[1])


def user_traceback(error: BaseException) -> str:
    """Return the error's traceback, trimmed to the user's files.

    Frames of the standard library and of installed packages are left out, unless no others would
    remain. Frames of hptune, and of the file that `--command` writes, are always left out; the
    result is empty if there are no others. Of a program that failed, it is the error output.
    """
    if isinstance(error, ProgramFailed):
        return storable(without_colours(error.detail), _MOST_CHARACTERS)
    shown = traceback.TracebackException.from_exception(error, capture_locals=False)
    linecache.checkcache()
    if isinstance(error, HptuneError):
        shown.__cause__ = shown.__context__ = None  # hptune's own affair
    _trim(shown)
    if not shown.stack and not isinstance(error, SyntaxError):
        return ""
    lines = list(shown.format())
    if isinstance(error, HptuneError) and shown.stack:  # its message is shown apart
        lines = ["Traceback (most recent call last):\n", *shown.stack.format()]
    words = "".join(lines).rstrip()
    for file, title in _cell_titles.items():
        words = words.replace(f'File "{file}"', title)
    return storable(without_colours(words), _MOST_CHARACTERS)


def storable(text: str, most_characters: int) -> str:
    """Return a text as the ledger and a terminal take it, without its middle if it is too long.

    >>> storable("4 characters, and 4 more", 8)
    '4 ch[16 characters left out]more'
    """
    text = text.encode(errors="backslashreplace").decode().replace("\0", "\\0")
    if (left_out := len(text) - most_characters) <= 0:
        return text
    half = most_characters // 2
    return f"{text[:half]}[{left_out} characters left out]{text[-half:]}"


def one_line(error: BaseException) -> str:
    """Return an error as one line for people; of a missing module, with what to do."""
    if isinstance(error, HptuneError):
        return " ".join(error.message.split())
    text = " ".join(_without_nodes(without_colours(text_of(error))).split())
    # Keras adds a list of all arguments, with their arrays; it stays in the traceback.
    text = text.partition(" Arguments received by ")[0]
    name = type(error).__name__
    line = f"{name}: {text[:300]}" if text else name
    if isinstance(error, SystemExit):
        return f"{line}; {_PROGRAM}"
    if isinstance(error, EOFError) and text == "EOF when reading a line":
        return f"{line}; {_NO_INPUT}"
    if isinstance(error, TypeError) and "NoneType" in text and ".epochs" in _last_line(error):
        return f"{line}; {_NO_EPOCHS}"
    if text.startswith("HyperParameters.") and text.endswith("unexpected keyword argument 'log'"):
        return f'{line}; of a log scale, say sampling="log"'
    if isinstance(error, ImportError) and text.startswith("attempted relative import"):
        return f"{line}; the file is in no package: {_ABSOLUTE}"
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return line
    if remedy := how_to_install(error.name):
        return f"{line}; install it with: {remedy}"
    return f"{line}; install it in this environment ({sys.prefix}), or correct the name"


def _last_line(error: BaseException) -> str:
    """Return the line of the user's code that raised an error; empty if it is not known."""
    frames = traceback.extract_tb(error.__traceback__)
    return frames[-1].line or "" if frames else ""


def _without_nodes(message: str) -> str:
    """Return what went wrong in a graph of TensorFlow, without where its nodes were defined."""
    if not message.startswith("Graph execution error:"):
        return message
    parts = [part for part in message.split("\n\n") if not part.lstrip().startswith(_OF_NODES)]
    return "\n".join(parts).partition("\n\t [[{{node")[0] or message


def text_of(error: BaseException) -> str:
    """Return an error's text, whatever a class of the user's own does there."""
    try:
        return str(error)
    except Exception as other:  # of the user's __str__
        return f"(its text cannot be had: {type(other).__name__} in __str__)"


def without_colours(text: str) -> str:
    """Return a text without terminal control sequences, which Keras puts into its messages."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", text)


Cell = tuple[str, str, list[str]]
"""What Python calls the file of a notebook's cell, what the notebook calls it, and its lines."""
_cell_titles: dict[str, str] = {}


def notebook_cells() -> list[Cell]:
    """Return the cells that were run in this process; none outside of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    title_of = getattr(getattr(shell, "compile", None), "format_code_name", None)
    if title_of is None:
        return []
    cells = []
    for file, entry in linecache.cache.items():
        if len(entry) == 4 and (title := title_of(file)):
            cells.append((file, " ".join(title), list(entry[2])))
    return cells


def remember_cells(cells: Iterable[Cell]) -> None:
    """Have tracebacks in this process show the lines of a notebook's cells."""
    for file, title, lines in cells:
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
        _cell_titles[file] = title


def _trim(shown: traceback.TracebackException) -> None:
    others = [
        frame
        for frame in shown.stack
        if not frame.filename.startswith((_HPTUNE, "<frozen"))
        and not is_own_frame(frame.filename, frame.line)
    ]
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


def first_argument(frame: FrameType | None) -> str:
    """Return the first argument of the user's call that runs, as it is written; else "...".

    Args:
        frame: The function that was called, or one of ours that it called.
    """
    while frame is not None and frame.f_globals.get("__name__", "").startswith("hptune."):
        frame = frame.f_back
    positions = None if frame is None else inspect.getframeinfo(frame).positions
    known = [each for each in positions or () if each is not None]
    if frame is None or len(known) < 4:
        return "..."
    begin, end, left, right = known
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[begin - 1 : end]
    if lines:
        lines[-1] = lines[-1].encode()[:right].decode()  # columns are counted in bytes
        lines[0] = lines[0].encode()[left:].decode()
    with contextlib.suppress(SyntaxError, ValueError):
        call = ast.parse("".join(lines), mode="eval").body
        if isinstance(call, ast.Call) and call.args:
            text = ast.unparse(call.args[0])
            return text if len(text) <= _ARGUMENT_CHARACTERS else "..."
    return "..."
