"""The live display on a terminal: a few lines that are redrawn in place.

Loaded only when a terminal is there, because it loads rich.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TextIO, cast

from rich.console import Console, Group
from rich.control import Control
from rich.live import Live
from rich.segment import ControlType
from rich.text import Text

from ...core.snapshot import StudySnapshot
from ...core.trial import Trial
from .. import text
from .background_writer import AtOnce, BackgroundWriter, InBackground, Unshared, can_block
from .frame import frame, paragraph, summary
from .plain import lost_words
from .progress import EndedTrial, RunHeader, TrialRate

REFRESH_SECONDS = 0.25
"""The shortest time between two redraws."""

_ENDED_ROWS = 4
_STREAMS = ("stdout", "stderr")


class _TerminalConsole(Console):
    """A console whose terminal may vanish: rich would end the process."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError("the terminal is gone")


class _Aside(io.TextIOBase):
    """Stands for a standard stream: whole lines go to the display."""

    def __init__(self, stream: TextIO, say: Callable[[Text], None]) -> None:
        self._stream = stream
        self._say = say
        self._begun = ""

    def write(self, written: str) -> int:
        """Take a part of what is printed."""
        *lines, self._begun = (self._begun + written).split("\n")
        for line in lines:
            self._say(Text.from_ansi(line))
        return len(written)

    def flush(self) -> None:
        """Show a line that has no end yet."""
        if self._begun:
            self.write("\n")

    def fileno(self) -> int:
        """The file of the stream that it stands for."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """It stands for a terminal."""
        return True

    @property
    def encoding(self) -> str:  # type: ignore[override]  # typeshed has it writable
        """That of the stream that it stands for."""
        return self._stream.encoding


class LiveProgress:
    """Progress for a terminal: at most four redraws a second, and a short summary at the end.

    Args:
        stream: The terminal.
        console: Draw here instead, such as on a recording console.
    """

    def __init__(self, stream: TextIO, *, console: Console | None = None) -> None:
        self._scribe: BackgroundWriter = AtOnce()
        if console is None:
            if can_block(stream):
                stream = cast("TextIO", Unshared(stream))
                self._scribe = InBackground(lambda lost: self._print(Text(lost_words(lost))))
            console = _TerminalConsole(file=stream, highlight=False, markup=False, emoji=False)
        self._console = console
        # The scribe's alone, like what was drawn.
        self._live: Live | None = None
        self._is_begun = False
        self._is_broken = False
        self._pace = TrialRate()
        self._epochs: int | None = None
        self._recent: deque[EndedTrial] = deque(maxlen=_ENDED_ROWS)
        self._picture: StudySnapshot | None = None
        self._drawn_at: float | None = None
        self._drawn: list[Text] = []
        self._drawn_width = 0
        self._aside: dict[str, TextIO] = {}

    def start(self, header: RunHeader) -> None:
        """Write the header, which scrolls away, and begin to draw below it."""
        self._epochs = header.epochs
        self._is_begun = True
        for label, words in header.rows():
            self._tell(words, label)
        self._say(Text())
        self._scribe.write(self._begin)
        self._put_aside()

    def update(self, snapshot: StudySnapshot, ended: Sequence[Trial], now: float) -> None:
        """Take note, and redraw unless it was done just before."""
        self._recent.extend(self._pace.update(snapshot, ended, now))
        self._picture = snapshot
        if self._drawn_at is None or not 0 <= now - self._drawn_at < REFRESH_SECONDS:
            self._drawn_at = now
            width, height = self._console.size
            lines = frame(
                snapshot,
                tuple(self._recent),
                self._pace,
                epochs=self._epochs,
                width=width,
                height=height,
            )
            self._scribe.draw(lambda: self._draw(lines))

    def note(self, line: str) -> None:
        """Show one line above what is redrawn."""
        self._tell(text.clean(line))

    def stop(self) -> None:
        """Replace what is redrawn by a short summary, and give the cursor back."""
        if self._is_begun:
            self._is_begun = False
            self._take_back()
            lines: list[Text] = []
            if self._picture is not None:
                lines = summary(self._picture, self._pace, width=self._console.size.width)
            self._scribe.write(lambda: self._end(lines))
        self._scribe.finish()

    def _put_aside(self) -> None:
        """What others print stands above what is redrawn, and waits for no reader either."""
        for name in _STREAMS:
            stream = getattr(sys, name)
            if stream.isatty():
                self._aside[name] = stream
                setattr(sys, name, _Aside(stream, self._say))

    def _take_back(self) -> None:
        for name, stream in self._aside.items():
            getattr(sys, name).flush()
            setattr(sys, name, stream)
        self._aside.clear()

    # --- by the scribe ----------------------------------------------------------------------

    def _tell(self, words: str, label: str = "") -> None:
        for line in paragraph(words, label=label, width=self._console.size.width):
            self._say(line)

    def _say(self, line: Text) -> None:
        self._scribe.write(lambda: self._print(line))

    def _print(self, line: Text) -> None:
        if self._is_broken:
            return
        try:
            # Soft wrap leaves long paths and addresses whole for copying.
            self._console.print(line, soft_wrap=True)
        except (OSError, ValueError):  # the terminal is gone; the study goes on without it
            self._give_up()

    def _begin(self) -> None:
        if self._is_broken:
            return
        try:
            self._live = Live(
                Text(),
                console=self._console,
                auto_refresh=False,
                vertical_overflow="crop",
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()
        except (OSError, ValueError):
            self._give_up()

    def _end(self, lines: list[Text]) -> None:
        if lines:
            self._draw(lines, refresh=False)
        self._close()

    def _give_up(self) -> None:
        self._is_broken = True
        self._close()

    def _close(self) -> None:
        """Draw no more, and give the cursor back."""
        live, self._live = self._live, None
        if live is not None:
            with contextlib.suppress(OSError, ValueError):
                live.stop()

    def _draw(self, lines: list[Text], *, refresh: bool = True) -> None:
        if self._live is None:
            return
        try:
            self._erase_rewrapped()
            self._live.update(Group(*lines), refresh=refresh)
        except (OSError, ValueError):
            self._give_up()
        self._drawn = lines
        self._drawn_width = self._console.size.width

    def _erase_rewrapped(self) -> None:
        # A terminal made narrower wraps the lines already drawn into more rows than rich
        # believes there are, and would leave the surplus behind.
        width = self._console.size.width
        if width >= self._drawn_width:
            return
        surplus = sum((max(1, line.cell_len) - 1) // width for line in self._drawn)
        erase = (ControlType.ERASE_IN_LINE, 2)
        up = [(ControlType.CURSOR_UP, 1), erase] * surplus
        self._console.control(Control(ControlType.CARRIAGE_RETURN, erase, *up))
