"""What commands print: results, for readers that may leave, and errors; and how they exit."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import TextIO

import click

from ..errors import HptuneError

_PATIENCE_SECONDS = 20.0
"""Last words wait so long for a reader: nothing is held any more by then."""

INTERRUPTED = 130
"""The exit code of a command that was interrupted, as shells have it."""


def echo(content: str | dict[str, object]) -> None:
    """Print a text, or plain values as JSON."""
    if not isinstance(content, str):
        content = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    with a_reader_that_may_leave():
        click.echo(content)


@contextlib.contextmanager
def a_reader_that_may_leave() -> Iterator[None]:
    """Whoever reads our output, such as `head`, may have seen enough."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show_error(error: HptuneError) -> None:
    """Print what went wrong, with the user's own traceback before it where there is one."""
    detail = f"{error.detail}\n\n" if error.detail else ""
    word = "Error:"
    if sys.stderr.isatty():
        word = click.style(word, fg="red", bold=True)
    last_words(f"{detail}{word} {error.message}", sys.stderr)


def last_words(content: str, stream: TextIO) -> None:
    """Print what a command says before it ends; it ends also where nobody reads it."""
    from ..reporting.terminal.background_writer import BackgroundWriter

    with contextlib.suppress(OSError, ValueError):
        stream.flush()
    writer = BackgroundWriter(stream, patience_seconds=_PATIENCE_SECONDS)
    writer.write(f"{content}\n")
    writer.finish()
