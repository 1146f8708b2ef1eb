"""The command that writes notes and tags: note."""

from __future__ import annotations

import os
from pathlib import Path

import click

from ..errors import HptuneError, UsageError
from .commands import WholeNumber, newest_study, plain_command
from .output import echo


@plain_command(short_help="Write a note on a study or a trial, or tag it.")
@click.argument("words", nargs=-1, metavar="[DIR] [NOTE]")
@click.option("--trial", type=WholeNumber(min=0), metavar="N", help="Write it on this trial.")
@click.option("--tag", "tags", multiple=True, metavar="WORD", help="Add a tag. May be repeated.")
@click.option(
    "--remove-tag", "removed", multiple=True, metavar="WORD", help="Remove a tag. May be repeated."
)
def note(
    words: tuple[str, ...], trial: int | None, tags: tuple[str, ...], removed: tuple[str, ...]
) -> None:
    """Write NOTE on the study in DIR, or on one of its trials, also while it runs.

    \b
    hptune note DIR "wider layers do not help"
    hptune note DIR --trial 17 "diverged after epoch 3" --tag unstable
    hptune note DIR                                    prints all notes and tags

    `status`, `show`, `trials`, reports and exports show notes and tags. The search does not see
    them.
    """
    from ..core.user_requests import Note
    from ..reporting.results.notes import notes_text
    from ..storage.directory import StudyDirectory
    from ..storage.notes import write_note
    from ..study.study import Study

    has_directory = bool(words) and os.path.isdir(words[0])  # noqa: PTH112 - as in enqueue
    directory, texts = (words[0], words[1:]) if has_directory else (None, words)
    if len(texts) > 1:
        found = f"{len(texts)} are given" if directory else f"there is no directory {words[0]}"
        raise UsageError(f"{found}; write the note in quotes, as one NOTE (--trial names a trial)")
    study = StudyDirectory(newest_study() if directory is None else Path(directory))
    written = Note("".join(texts), tags, removed)
    if written == Note():
        echo(notes_text(Study(study).view(), trial))
        return
    write_note(study, written, trial=trial, tool="hptune note")
    try:
        echo(notes_text(Study(study).view(), trial))
    except HptuneError as error:
        click.echo(f"The note is written, but cannot be shown: {error.message}", err=True)
