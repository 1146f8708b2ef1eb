"""Output of commands: results and errors."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import click

from ..errors import HptuneError, StudyError, UsageError

_LAST_WAIT_SECONDS = 10.0
"""Longest wait for a blocked terminal or pipe at a command's end. It may be long, because the
command holds no GPU, lock or worker any more."""

INTERRUPTED = 130
"""Exit code of a command that was interrupted: 128 + SIGINT, as in shells."""


def echo(content: str | dict[str, object]) -> None:
    """Print a text, or plain values as JSON; no control characters of a study reach a terminal."""
    from ..text import harmless, is_utf8

    if not isinstance(content, str):
        plain = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
        if not is_utf8(sys.stdout) or harmless(plain) != plain:  # escapes lose nothing
            plain = json.dumps(content, indent=2, allow_nan=False)
        content = plain
    with output_errors():
        click.echo(harmless(content))


def open_standard_streams() -> None:
    """Give a process that was started with closed streams (`>&-`) others, which lead nowhere.

    Else a file that is opened next, such as a ledger, is what it prints to: a new file has the
    lowest number that is free.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # noqa: FBT003
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115


def check_working_directory() -> None:
    """End the process with an error if its working directory was removed."""
    try:
        Path.cwd()
    except FileNotFoundError:
        error = UsageError("the working directory was removed; change to one that exists")
        show_error(error)
        sys.exit(2)


def replace_missing_characters() -> None:
    """Print "?" for characters that the encoding of stdout lacks, such as in a Latin-1 locale."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="replace")


def write_utf8() -> None:
    """Print in UTF-8 whatever the locale is, as files are written."""
    from ..text import is_utf8

    if isinstance(sys.stdout, io.TextIOWrapper) and not is_utf8(sys.stdout):
        sys.stdout.reconfigure(encoding="utf-8")


def terminal_width() -> int | None:
    """Return how many characters fit into a line of stdout; None if it is no terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


@contextlib.contextmanager
def output_errors() -> Iterator[None]:
    """Ignore that a reader of stdout, such as `head`, has closed it.

    Raises:
        StudyError: stdout cannot be written, such as to a file on a full disk.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # What waits to be written leads nowhere, or Python would fail again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise StudyError(f"the output cannot be written: {error.strerror}") from error


def show_error(error: HptuneError) -> None:
    """Print an error; the user's traceback, if there is one, comes first."""
    from ..text import harmless, without_controls

    detail = _without_repetition(error.detail, error.message)
    detail = f"{detail}\n\n" if detail else ""
    word = "Error:"
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        word = click.style(word, fg="red", bold=True)
    print_last(f"{harmless(detail)}{word} {without_controls(error.message)}", sys.stderr)


def _without_repetition(detail: str, message: str) -> str:
    """Return a traceback without its last lines if the message has the same words."""
    lines = detail.splitlines()
    indented = [number for number, line in enumerate(lines) if line.startswith(" ")]
    last = indented[-1] + 1 if indented else 0
    kind, _, words = " ".join(" ".join(lines[last:]).split()).partition(": ")
    is_repeated = (words or kind) in " ".join(message.split())
    return "\n".join(lines[:last]).rstrip() if is_repeated else detail


def replaced_file(path: Path, option: str) -> Path:
    """Return the file that a path leads to, through links: it is to be replaced by another.

    Args:
        path: The path, as the user gave it.
        option: The option that it was given with.

    Raises:
        UsageError: It is no file. A device would be removed from the machine: root may do that.
    """
    if path.exists() and not path.is_file():
        raise UsageError(f"{option} is {path}, which is not a file; name another")
    return path.resolve()


def print_last(content: str, stream: TextIO) -> None:
    """Print the last text of a command, which ends soon even if nothing can be written."""
    from ..reporting.terminal.background_writer import BackgroundWriter

    with contextlib.suppress(OSError, ValueError):
        stream.flush()
    writer = BackgroundWriter(stream, patience_seconds=_LAST_WAIT_SECONDS)
    writer.write(f"{content}\n")
    writer.finish()
