"""What commands print: results, for readers that may leave, and errors; and how they exit."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator

import click

from ..errors import HptuneError

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
    if error.detail:
        click.echo(error.detail, err=True)
        click.echo(err=True)
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {error.message}", err=True)
