"""The live display on a terminal: a few lines that are redrawn in place.

Loaded only for a terminal, because it loads rich.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO, cast

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from ...core.notice import Notice, Subject
from ...core.snapshot import StudySnapshot
from ...core.trial import Trial
from ...text import duration
from .background_writer import BackgroundWriter
from .frame import Frames, paragraph
from .progress import RunHeader, Waits, shown_line

_ERASE_LINE = (ControlType.ERASE_IN_LINE, 2)

REFRESH_SECONDS = 0.25
"""Shortest time between two redraws."""


class LiveProgress:
    """Progress for a terminal: at most four redraws a second, and one line at the end.

    While the terminal is not read, nothing is redrawn; notes wait in the writer.

    Args:
        stream: The terminal.
        console: Draw on this console instead.
    """

    def __init__(self, stream: TextIO, *, console: Console | None = None) -> None:
        self._writer = BackgroundWriter(stream)
        self._console = console or Console(
            file=cast("TextIO", self._writer), highlight=False, markup=False, emoji=False
        )
        self._waits = Waits()
        self._waiting = ""
        self._live: Live | None = None
        self._frames = Frames(REFRESH_SECONDS)
        self._drawn: list[Text] = []
        self._drawn_width = 0

    def busy(self, words: str) -> None:
        """Show one line with seconds that move; what is shown next takes its place."""
        seconds = int(self._waits.seconds(words))
        line = f"{words} …" + (f" {duration(seconds)}" if seconds else "")
        if line != self._waiting and not self._writer.is_behind:
            self._erase_waiting()
            self._waiting = line
            self._console.print(line, end="", overflow="ellipsis", no_wrap=True)

    def _erase_waiting(self) -> None:
        if self._waiting:
            self._console.control(Control(ControlType.CARRIAGE_RETURN, _ERASE_LINE))
            self._waiting = ""

    def start(self, header: RunHeader) -> None:
        """Write the header, which scrolls away, and begin to draw below it."""
        self._frames.start(header)
        for label, words in header.rows():
            self._print(words, label)
        self._console.print()
        self._live = Live(
            Text(),
            console=self._console,
            auto_refresh=False,
            vertical_overflow="crop",
            # Output of other code goes above the redrawn lines, and does not block either.
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self._live.start()

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Redraw, unless that was done just before, nothing changed or the terminal is blocked."""
        is_due = self._frames.update(snapshot, ended, now)
        if (live := self._live) is None or not is_due or self._writer.is_behind:
            return
        width, height = self._console.size
        lines = self._frames.draw(now, width=width, height=height)
        if (lines, width) != (self._drawn, self._drawn_width):
            self._erase_rewrapped(width)
            live.update(Group(*lines), refresh=True)
            self._drawn, self._drawn_width = lines, width

    def note(self, notice: Notice) -> None:
        """Show one line above those that are redrawn, which have the jobs."""
        if notice.subject is not Subject.JOBS:
            self._print(shown_line(notice))

    def stop(self) -> None:
        """Replace the redrawn lines by one that stays, and show the cursor again."""
        live, self._live = self._live, None
        self._erase_waiting()
        if live is not None:
            width = self._console.size.width
            self._erase_rewrapped(width)
            if last := self._frames.last(width):
                live.update(Group(*last))
            live.stop()
        self._writer.finish()

    def _print(self, words: str, label: str = "") -> None:
        width = self._console.size.width
        self._erase_waiting()
        self._erase_rewrapped(width)
        for line in paragraph(words, label=label, width=width):
            # Soft wrap leaves long paths and addresses whole, so that they can be copied.
            self._console.print(line, soft_wrap=True)

    def _erase_rewrapped(self, width: int) -> None:
        """Erase the rows that a terminal made narrower has wrapped the drawn lines into.

        Rich does not know of them and would leave them behind.
        """
        if width < self._drawn_width:
            surplus = sum((max(1, line.cell_len) - 1) // width for line in self._drawn)
            up = [(ControlType.CURSOR_UP, 1), _ERASE_LINE] * surplus
            self._console.control(Control(ControlType.CARRIAGE_RETURN, _ERASE_LINE, *up))
            self._drawn_width = width
