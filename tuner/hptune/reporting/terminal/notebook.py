"""The live display in a notebook: one output below the cell that is replaced in place.

Loaded only in a notebook, because it loads IPython and rich.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TextIO

from IPython.display import display
from rich.text import Text

from ...core.notice import Notice, Subject
from ...core.snapshot import StudySnapshot
from ...core.trial import Trial
from .background_writer import BackgroundWriter
from .frame import Frames
from .progress import RunHeader, Waits, shown_line

REFRESH_SECONDS = 1.0
"""Shortest time between two updates, each of which is a message to the browser."""

_WIDTH, _HEIGHT = 100, 24


class NotebookProgress:
    """Progress in a notebook: one output that is updated, and a line of it at the end.

    Args:
        stream: Where to write the header and notes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._writer = BackgroundWriter(stream)
        self._waits = Waits()
        self._frames = Frames(REFRESH_SECONDS)
        self._output: Any = None
        self._shown = ""

    def busy(self, words: str) -> None:
        """Write one line for each thing that takes time."""
        if line := self._waits.line(words):
            self._writer.write(f"{line}\n")

    def start(self, header: RunHeader) -> None:
        """Write the header."""
        self._frames.start(header)
        self._writer.write("".join(f"{line}\n" for line in header.lines()))

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Update the output, unless that was done just before."""
        if self._frames.update(snapshot, ended, now):
            self._show(self._frames.draw(now, width=_WIDTH, height=_HEIGHT))

    def note(self, notice: Notice) -> None:
        """Write one line below the output, which has the jobs."""
        if notice.subject is not Subject.JOBS:
            self._writer.write(f"{shown_line(notice)}\n")

    def stop(self) -> None:
        """Replace the output by one line that stays."""
        if last := self._frames.last(_WIDTH):
            self._show(last)

    def _show(self, lines: Sequence[Text]) -> None:
        words = "\n".join(line.plain for line in lines)
        if words == self._shown:
            return
        self._shown = words
        content = {"text/plain": words}
        if self._output is None:
            self._output = display(content, raw=True, display_id=True)
        else:
            self._output.update(content, raw=True)
