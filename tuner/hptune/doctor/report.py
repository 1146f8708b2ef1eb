"""The report of `hptune doctor`: a line for each finding, and what to do below it."""

from __future__ import annotations

import textwrap
from collections import Counter
from typing import Self, TextIO

from rich.console import Console
from rich.text import Text

from ..text import clean, is_utf8
from .findings import Finding, Status

_MARKS = {
    Status.PASS: ("✓", "ok", "green"),
    Status.WARN: ("!", "!", "yellow"),
    Status.FAIL: ("✗", "x", "red"),
}
_INDENT = 21


class DoctorReport:
    """Shows findings as they come, and their numbers at the end; a context manager.

    Args:
        stream: Where to write. Colours and line breaks only on a terminal.
    """

    def __init__(self, stream: TextIO) -> None:
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._draws = is_utf8(stream) and self._console.is_terminal
        self._status = self._console.status("checking …", spinner="dots")
        self._counts: Counter[Status] = Counter()
        self._where = ""

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(self, _kind: object, error: object, _trace: object) -> None:
        self._status.stop()
        if error is None:
            self._console.print(Text(f"\n{self._numbers()}", style="bold"))

    def show(self, finding: Finding) -> None:
        """Show one finding."""
        if finding.where != self._where:
            self._where = finding.where
            self._console.print(Text(f"\n{clean(finding.where)}", style="bold"))
        self._counts[finding.status] += 1
        drawn, plain, colour = _MARKS[finding.status]
        mark, arrow = (drawn, "→ ") if self._draws else (plain, "-> ")
        name = finding.name.ljust(_INDENT - 3)
        head = Text.assemble((f"{mark:3}", f"bold {colour}"), (name, "bold"))
        self._print(head, finding.found, "")
        if finding.advice:
            self._print(Text(" " * _INDENT + arrow, style=colour), finding.advice, colour)

    def _print(self, head: Text, words: str, style: str) -> None:
        """Print words after a head, with the following lines indented to its width."""
        lines = [clean(words)]
        if self._console.is_terminal:
            width = max(20, self._console.width - head.cell_len)
            lines = textwrap.wrap(
                lines[0], width, break_long_words=False, break_on_hyphens=False
            ) or [""]
        text = Text(f"\n{' ' * head.cell_len}".join(lines), style=style)
        self._console.print(Text.assemble(head, text), soft_wrap=True)

    def _numbers(self) -> str:
        passes, warnings, failures = (self._counts[each] for each in Status)
        if not warnings + failures:
            return f"All {passes} checks pass."
        parts = [f"{passes} pass"]
        for number, verb in ((warnings, "warn"), (failures, "fail")):
            if number:
                parts.append(f"{number} {verb}{'s' if number == 1 else ''}")
        return f"{', '.join(parts)}."
