"""Whose a study is, and what this user may do with it: the first question of all who open one.

`StudyDirectory.open` asks it for every command and class:

====================================  =====================  ==================  ===============
who may write to the directory        read                   change the ledger   run its code
====================================  =====================  ==================  ===============
only this user and root               yes                    yes                 yes
also a group                          yes, without a change  yes                 with a warning
also every user of the machine        yes, without a change  refused             refused
another user, who owns some of it     yes, without a change  refused             refused
====================================  =====================  ==================  ===============

A read changes the file only where it undoes the unfinished commit of a killed master. The journal
says what to undo, so others could write one that changes or deletes files of this user.
"""

from __future__ import annotations

import enum
import shlex
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import text
from ..errors import UsageError
from ..files.ownership import everybody_may_write, is_foreign, other_writers

_OTHERS_ENTER = stat.S_IXGRP | stat.S_IXOTH
_LEDGER = ("study.db", "study.db-journal")
_LOADED = ("study.db", "program.py", "objective.pkl", "data.joblib", "code", "trials", "best")
"""Names in the directory that decide which code runs: the ledger names the model file."""


class Use(enum.Enum):
    """What a study is opened for."""

    READ = "read"
    WRITE = "write"
    """To change its ledger, or what else only its master changes."""
    RUN = "run"
    """To load code that it names: plug-ins, the model file, pickles, models."""


class Whose(enum.IntEnum):
    """Who may write to a study, from the safest on."""

    MINE = 0
    GROUPS = 1
    EVERYBODYS = 2
    ANOTHERS = 3


@dataclass(frozen=True, slots=True)
class Access:
    """Who may write to a study.

    Attributes:
        whose: Who, as a row of the table above.
        who: The others, in words; empty if there are none.
        path: What they may write to.
    """

    whose: Whose
    who: str
    path: Path


def access(directory: Path, use: Use = Use.READ) -> Access:
    """Return who may write to a study's directory, and to what is used of it.

    Raises:
        OSError: The directory cannot be looked at.
    """
    names = _LOADED if use is Use.RUN else _LEDGER
    worst = Access(Whose.MINE, "", directory)
    for path in (directory, *(directory / name for name in names)):
        found = _of(path)
        if found.whose > worst.whose:
            worst = found
        if path is directory and _keeps_others_out(directory):
            break
    return worst


def _of(path: Path) -> Access:
    try:
        link, found = path.lstat(), path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return Access(Whose.MINE, "", path)
    who = other_writers(found)
    if is_foreign(link):
        who, found = other_writers(link), link
    if not who:
        whose = Whose.MINE
    elif is_foreign(found):
        whose = Whose.ANOTHERS
    else:
        whose = Whose.EVERYBODYS if everybody_may_write(found) else Whose.GROUPS
    return Access(whose, who, path)


def _keeps_others_out(directory: Path) -> bool:
    found = directory.stat()
    return not is_foreign(found) and not found.st_mode & _OTHERS_ENTER


def check(directory: Path, use: Use) -> str:
    """Check that this user may use a study so, and return a warning; it is usually empty.

    Raises:
        UsageError: This user should not; the message says what helps.
        OSError: The directory cannot be looked at.
    """
    if use is Use.READ:
        return ""
    found = access(directory, use)
    if found.whose is Whose.MINE or (found.whose is Whose.GROUPS and use is Use.WRITE):
        return ""
    place, study = shlex.quote(str(found.path)), text.path(directory)
    if use is Use.RUN:
        danger = (
            f"{found.who} may write to {place}, and so run code as you: code and data are loaded "
            "from it. "
        )
    elif found.whose is Whose.ANOTHERS:
        danger = f"{place} belongs to {found.who}, and only its owner may change the study. "
    else:
        danger = f"{found.who} may write to {place}, and so lead what is written there elsewhere. "
    if found.whose is Whose.ANOTHERS:
        raise UsageError(f"{danger}If you trust it, copy the study: `cp -r {study} COPY`")
    remedy = f"`chmod -R go-w {study}` prevents it"
    if found.whose is Whose.EVERYBODYS:
        raise UsageError(danger + remedy)
    return f"warning: {danger}{remedy}"


def is_mine(directory: Path) -> bool:
    """Return whether nobody but this user and root may write to a study.

    Raises:
        OSError: The directory cannot be looked at.
    """
    return access(directory).whose is Whose.MINE


def why_passed(studies: Sequence[Path]) -> str:
    """Return a clause on the first of the studies that are not taken as nobody named them."""
    if not studies:
        return ""
    found = access(studies[0])
    return (
        f" (the study in {text.path(studies[0])} must be named, as {found.who} may write to "
        f"{shlex.quote(str(found.path))})"
    )
