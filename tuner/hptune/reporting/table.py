"""Tables as lines of text: aligned columns, of which the last one is wrapped."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence

from .. import text

_GAP = "  "
_LABEL_CHARACTERS = 8
_LEAST_LAST_CHARACTERS = 20
"""Least width of the last column; where there is less room, lines get longer than the terminal."""


_COMMAND = re.compile(r"\bhptune [a-z]+ .*$")
"""A command at the end of a text: it stays in one line, to be copied."""

_BLANK = "\0"


def table(
    rows: Sequence[Sequence[str]], *, left: Collection[str] = (), width: int | None = None
) -> list[str]:
    r"""Return the rows as lines; the first row has the names of the columns.

    >>> print("\n".join(table([("trial", "x", "why"), ("7", "0.25", "")])))
    trial     x  why
        7  0.25

    Args:
        rows: The rows, all of the same length.
        left: The names of the columns that are aligned to the left; the last one always is.
        width: Characters of a line, at which the last column is wrapped; None for no limit.
    """
    cells = [[text.clean(cell) for cell in row] for row in rows]
    names = cells[0]
    widths = [max(len(row[i]) for row in cells) for i in range(len(names) - 1)]
    indent = sum(widths) + len(_GAP) * len(widths)
    lines = []
    for row in cells:
        head = (
            cell.ljust(size) if name in left else cell.rjust(size)
            for name, size, cell in zip(names, widths, row, strict=False)
        )
        first, *others = _wrapped(row[-1], None if width is None else width - indent)
        lines.append(_GAP.join([*head, first]).rstrip())
        lines += [" " * indent + line for line in others]
    return lines


def fields(values: Sequence[tuple[str, str]], *, width: int | None = None) -> list[str]:
    """Return labels with their values, which are wrapped at the width.

    >>> fields([("state", "done"), ("", "since today")])
    ['state    done', '         since today']
    >>> fields([("state", "continue with: hptune resume studies/one-1")], width=40)
    ['state    continue with:', '         hptune resume studies/one-1']
    """
    lines = []
    for label, value in values:
        room = None if width is None else width - _LABEL_CHARACTERS - 1
        for i, line in enumerate(_wrapped(value, room)):
            lines.append(f"{'' if i else label:<{_LABEL_CHARACTERS}} {line}".rstrip())
    return lines


def aligned(values: Mapping[str, str], *, width: int = 0) -> list[str]:
    """Return names with their values in a second column.

    >>> aligned({"lr": "0.1", "units": "64"})
    ['  lr     0.1', '  units  64']

    Args:
        values: The values by name.
        width: Least width of the first column.
    """
    names = [text.clean(name) for name in values]
    width = max([width, *map(len, names)])
    return [f"{_GAP}{n:<{width}}{_GAP}{v}" for n, v in zip(names, values.values(), strict=True)]


def indented(words: str, *, width: int | None = None) -> list[str]:
    """Return an item of a list, which is wrapped at the width.

    >>> indented("2 x out of memory (trials 3, 7)", width=24)
    ['  2 x out of memory', '    (trials 3, 7)']
    """
    room = None if width is None else width - 2 * len(_GAP)
    first, *others = _wrapped(words, room)
    return [f"{_GAP}{first}", *(f"{_GAP}{_GAP}{line}" for line in others)]


def _wrapped(words: str, width: int | None) -> list[str]:
    if width is None:
        return [words]
    room = max(width, _LEAST_LAST_CHARACTERS)
    whole = _COMMAND.sub(lambda found: found[0].replace(" ", _BLANK), words)
    lines = textwrap.wrap(whole, room, break_long_words=False, break_on_hyphens=False)
    return [line.replace(_BLANK, " ") for line in lines] or [""]
