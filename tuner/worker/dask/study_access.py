"""Study access: whether a worker sees the study directory and the user's code."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, replace
from pathlib import Path

from ...config.code_copy import keep_copy
from ...config.model_file import ObjectiveSource, sha256

PATIENCE_SECONDS = 5.0
"""Seconds to wait for the files: a network file system may show new files late."""


class StudyAccessError(Exception):
    """The reason why a worker cannot run a study's attempts: a file is not visible there."""


@dataclass(frozen=True, slots=True)
class StudyAccess:
    """The paths of a study and of the user's code, and how to recognise them.

    Attributes:
        directory: The study directory, as an absolute path that is the same on all machines.
        token: The master's token in the lease there.
        source: The user's code.
        digest: SHA-256 of the model file; empty if the code is in the study directory.
        copy: A copy of the model file in the study directory; empty as above.
    """

    directory: str
    token: str
    source: ObjectiveSource
    digest: str = ""
    copy: str = ""


def prepare_access(directory: Path, token: str, source: ObjectiveSource) -> StudyAccess:
    """Copy the model file into the study directory, for workers on other machines.

    Raises:
        ModelFileError: The model file is gone.
        OSError: The copy cannot be written.
    """
    copy = keep_copy(source, directory)
    if copy is None:
        return StudyAccess(str(directory), token, source)
    return StudyAccess(str(directory), token, source, digest=sha256(copy), copy=str(copy))


def check_access(
    access: StudyAccess, *, patience_seconds: float = PATIENCE_SECONDS
) -> ObjectiveSource:
    """Find the study and the user's code on this machine.

    Returns:
        The model file, or its copy if this machine has no such file, or a different one.

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
        if sha256(path) == access.digest:
            return replace(access.source, path=path)
    raise StudyAccessError(f"it sees neither {access.source.path} nor its copy {access.copy}")
