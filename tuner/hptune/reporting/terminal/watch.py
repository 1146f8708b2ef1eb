"""A text that is shown again and again in place, such as the status of a running study."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

REFRESH_SECONDS = 1.0
"""Time between two redraws."""


def watch(read: Callable[[], tuple[str, bool]], stream: TextIO) -> None:
    """Show a text until it is final: redrawn in place on a terminal, else at the start and the end.

    Args:
        read: Returns the text, and whether it is final.
        stream: Where to write.
    """
    content, is_final = read()
    if not stream.isatty():
        stream.write(f"{content}\n")
        stream.flush()
        if is_final:
            return
        while not is_final:
            time.sleep(REFRESH_SECONDS)
            content, is_final = read()
        stream.write(f"\n{content}\n")
        return

    # Loaded only for a terminal, as it takes a tenth of a second.
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=stream, highlight=False, markup=False, emoji=False)
    with Live(Text(content), console=console, auto_refresh=False) as live:
        live.refresh()
        while not is_final:
            time.sleep(REFRESH_SECONDS)
            content, is_final = read()
            live.update(Text(content), refresh=True)
        # Cropped to the terminal's height so far; what stays on the screen is whole.
        live.vertical_overflow = "visible"
