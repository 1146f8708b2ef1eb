"""Who may write to a file, and whether its contents may be loaded as code."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path
from typing import IO, Any

from ..errors import UsageError

_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_ENTER = stat.S_IXGRP | stat.S_IXOTH


def other_writers(found: os.stat_result) -> str:
    """Return which users besides this one and root may write to a file; empty if none.

    A group that only this user belongs to, as many systems give each user, counts as this user.
    """
    if is_foreign(found):
        return f"user {user_name(found.st_uid)}"
    if everybody_may_write(found):
        return "every user of this machine"
    if not found.st_mode & stat.S_IWGRP:
        return ""
    mine = user_name(os.geteuid())
    try:
        group = grp.getgrgid(found.st_gid)
    except KeyError:
        return f"group {found.st_gid}"
    is_mine = group.gr_name == mine and not {*group.gr_mem} - {mine}
    return "" if is_mine else f"group {group.gr_name}"


def is_foreign(found: os.stat_result) -> bool:
    """Return whether a file belongs neither to this user nor to root."""
    return found.st_uid not in (0, os.geteuid())


def everybody_may_write(found: os.stat_result) -> bool:
    """Return whether every user may write to a file."""
    return bool(found.st_mode & stat.S_IWOTH)


def check_loadable(file: IO[Any]) -> None:
    """Check that no other user may have written an open file that is loaded as code.

    A file that others may write to is accepted in a directory that only this user may enter.

    Raises:
        UsageError: Another user may have written it.
    """
    found = os.fstat(file.fileno())
    who = other_writers(found)
    if not who or (not is_foreign(found) and _is_enclosed(Path(file.name))):
        return
    remedy = "copy it if you trust it" if is_foreign(found) else f"`chmod go-w {file.name}`"
    raise UsageError(
        f"{who} may write to {file.name}, and so run code as you when it is loaded; {remedy}"
    )


def _is_enclosed(path: Path) -> bool:
    """Return whether a directory above a file belongs to this user and keeps all others out.

    A link in a private directory keeps nobody out of the directory that it leads to.
    """
    for folder in path.resolve().parents:
        found = folder.stat()
        if not is_foreign(found) and not found.st_mode & _ENTER:
            return True
    return False


def withhold_writing(path: Path) -> None:
    """Take from all others the right to write to a file of this user's, whatever the umask."""
    path.chmod(stat.S_IMODE(path.stat().st_mode) & ~_OTHERS)


def user_name(uid: int) -> str:
    """Return a user's name; the number if the machine knows no name."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
