"""What a worker must see of a study whose master may be on another machine."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from ...config.model_file import ObjectiveSource, SourceKind

CODE = "code"
"""Where in the study directory a copy of the model file is."""

PATIENCE_SECONDS = 5.0
"""A network file system may show a new file to other machines a little later."""


class StudyAccessError(Exception):
    """Why a worker cannot take a study's attempts: something is not visible there."""


@dataclass(frozen=True, slots=True)
class StudyAccess:
    """Where the study and the user's code are, and how to tell that they are the master's.

    Attributes:
        directory: The study directory, as an absolute path that is the same on all machines.
        token: What the lease of the study's master says there.
        source: The user's code.
        digest: SHA-256 of the model file; empty where the code lies in the study directory.
        copy: A copy of the model file in the study directory; empty as above.
    """

    directory: str
    token: str
    source: ObjectiveSource
    digest: str = ""
    copy: str = ""


def prepare_access(directory: Path, token: str, source: ObjectiveSource) -> StudyAccess:
    """Make a study visible to workers elsewhere: put a copy of the model file into it.

    Raises:
        OSError: It cannot be written.
    """
    if source.kind is not SourceKind.FILE:
        return StudyAccess(str(directory), token, source)
    path = Path(source.path)
    copy = directory / CODE / path.name
    copy.parent.mkdir(exist_ok=True)
    fresh = copy.with_name(f"{copy.name}.new")
    shutil.copyfile(path, fresh)
    fresh.replace(copy)
    return StudyAccess(str(directory), token, source, digest=_digest(copy), copy=str(copy))


def check_access(
    access: StudyAccess, *, patience_seconds: float = PATIENCE_SECONDS
) -> ObjectiveSource:
    """Find the study and the user's code from here.

    Returns:
        Where the code is: the model file itself, or its copy where this machine has none, or
        another one, at the same place.

    Raises:
        StudyAccessError: The study is not visible here, or cannot be written to.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            _check_directory(Path(access.directory), access.token)
            return _find_code(access)
        except StudyAccessError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.25)


def _check_directory(directory: Path, token: str) -> None:
    try:
        found = json.loads((directory / "lease").read_text(encoding="utf-8"))["token"]
    except (OSError, ValueError, KeyError, TypeError):
        found = None
    if found != token:
        what = "is no directory there" if not directory.is_dir() else "is another directory there"
        raise StudyAccessError(
            f"it does not see the study: {directory} {what}. The study directory must be "
            "on a file system that master and workers share, under the same path"
        )
    if not os.access(directory / "trials", os.W_OK | os.X_OK):
        raise StudyAccessError(f"it may not write to the study directory {directory}")


def _find_code(access: StudyAccess) -> ObjectiveSource:
    if not access.digest:
        if not Path(access.source.path).exists():
            raise StudyAccessError(f"it does not see {access.source.path}")
        return access.source
    for path in (access.source.path, access.copy):
        try:
            if _digest(Path(path)) == access.digest:
                return ObjectiveSource(SourceKind.FILE, path)
        except OSError:
            continue
    raise StudyAccessError(f"it sees neither {access.source.path} nor its copy {access.copy}")


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
