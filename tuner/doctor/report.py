"""How `hptune doctor` looks: a line for each finding, and what to do below it."""

from __future__ import annotations

from collections import Counter
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..reporting.text import clean

_MARKS = {"pass": ("✓", "ok", "green"), "warn": ("!", "!", "yellow"), "fail": ("✗", "x", "red")}
_NAME_CELLS = 16


class DoctorReport:
    """Shows findings as they come, and a sum at the end; a context manager.

    Args:
        stream: Where to write; colours and a sign of life on a terminal only.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self._draws = (stream.encoding or "").lower().replace("-", "") == "utf8"
        self._status = self._console.status("looking around …", spinner="dots")
        self._counts: Counter[str] = Counter()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._status.stop()
        if error is None:
            self._console.print(Text(f"\n{self._sum()}", style="bold"))

    def show(self, name: str, status: str, found: str, advice: str) -> None:
        """Show one finding."""
        self._counts[status] += 1
        drawn, plain, colour = _MARKS[status]
        if not self._console.is_terminal:
            arrow = f"\n{'':20}-> {clean(advice)}" if advice else ""
            self._stream.write(f"{plain:3}{name:17}{clean(found)}{arrow}\n")
            return
        line = Table.grid(padding=(0, 1))
        for width in (2, _NAME_CELLS, None):
            line.add_column(width=width, overflow="fold")
        line.add_row(
            Text(drawn if self._draws else plain, style=f"bold {colour}"),
            Text(name, style="bold"),
            Text(clean(found)),
        )
        if advice:
            arrow = "→" if self._draws else "->"
            line.add_row("", "", Text(f"{arrow} {clean(advice)}", style=colour))
        self._console.print(line)

    def section(self, where: str) -> None:
        """Say where the next findings are found."""
        self._console.print(Text(f"\n{clean(where)}", style="bold"))

    def _sum(self) -> str:
        warnings, failures = self._counts["warn"], self._counts["fail"]
        if not warnings + failures:
            return f"All {self._counts.total()} checks pass."
        parts = [f"{self._counts['pass']} pass"]
        if warnings:
            parts.append(f"{warnings} warn{'s' if warnings == 1 else ''}")
        if failures:
            parts.append(f"{failures} fail{'s' if failures == 1 else ''}")
        return f"{', '.join(parts)}."
