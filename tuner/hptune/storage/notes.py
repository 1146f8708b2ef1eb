"""Notes and tags that users write on a study and its trials, whether a master runs it or not."""

from __future__ import annotations

import re

from ..core.messages import UserRequested
from ..core.user_requests import Note, UserAction
from ..errors import StudyLockedError, UsageError
from .asking import ask, check_exists, new_request
from .directory import StudyDirectory
from .ledger import Ledger, LedgerReader
from .turn import acquired
from .whose import Use

_MOST_CHARACTERS = 10_000
"""Longest note."""


def write_note(directory: StudyDirectory, note: Note, *, trial: int | None, tool: str) -> None:
    """Write a note or tags on a study or on one of its trials, whether it runs or not.

    Args:
        directory: Where the study is.
        note: What to write.
        trial: The trial; None for the study as a whole.
        tool: What the user writes with, such as "hptune note".

    Raises:
        UsageError: There is no such trial, nothing is to be written, a tag is no word, or the study
            does not run and is not this user's (see `whose`).
        StudyError: The study's master did not answer.
        StorageFullError: This user may not write to the study.
    """
    reader = LedgerReader(directory)
    if trial is not None:
        check_exists(trial, reader.trials())
    for tag in (*note.tags, *note.removed):
        if not re.fullmatch(r"[^\s,]{1,40}", tag):
            raise UsageError(f"a tag is {tag!r}; it must be one word of at most 40 characters")
    if len(note.text) > _MOST_CHARACTERS or note == Note():
        raise UsageError(
            f"the note has {len(note.text)} characters; allowed are 1 to {_MOST_CHARACTERS}, and "
            "none if a tag is given"
        )
    if directory.owner() is None:  # a master may write what others ask of it
        directory.open(Use.WRITE)
    try:
        lock = acquired(directory, is_brief=True)
    except StudyLockedError:
        ask(directory, UserAction.NOTE, tool=tool, trial=trial, note=note)
        return
    with lock, Ledger.open(directory.open(Use.WRITE), lock=lock) as ledger:
        at, asked = directory.now(), new_request(UserAction.NOTE, tool=tool)
        ledger.append([UserRequested(at, asked.name, asked.action, asked.by, trial, note=note)])
