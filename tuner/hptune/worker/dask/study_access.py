"""Study access: whether a worker sees the study's directory and the user's code."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ...core.clock import polls
from ...files.access import exists, is_folder
from ...user_code.code_copy import CODE, keep_copy, keep_modules
from ...user_code.model_file import sha256
from ...user_code.source import ObjectiveSource
from ..transport.files import files_below

PATIENCE_SECONDS = 3.0
"""Seconds to wait for the files: a network file system may show new files late."""

DEFAULT_LIMIT_BYTES = 10_000_000_000
"""Default of `StudyAccess.limit_bytes`."""

_GIVEN = ("data.joblib", "data.training", "data.validation")
"""Data that were given in Python, beside the pickled code that reads them."""


class StudyAccessError(Exception):
    """The reason why a worker does not use the study's directory.

    Attributes:
        is_final: Whether waiting cannot help.
    """

    def __init__(self, reason: str, *, is_final: bool = False) -> None:
        super().__init__(reason)
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class StudyAccess:
    """The paths of a study and of the user's code, and how to recognise them.

    Attributes:
        directory: The study's directory, as an absolute path on the master's machine.
        token: The master's token in the lease there. A directory with the same path on another
            file system has another one.
        source: The user's code.
        digests: SHA-256 of the model file and of its local modules, by their paths below its
            folder; empty if the code is in the study's directory.
        files: The code's files in the study's directory, by their paths below it: a copy of the
            model file and its modules, or the pickled code and its data.
        limit_bytes: The largest file, and the largest checkpoint of an objective's own, that
            travels to and from workers that do not see the directory.
    """

    directory: str
    token: str
    source: ObjectiveSource
    digests: Mapping[str, str] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    limit_bytes: int = DEFAULT_LIMIT_BYTES

    def source_in(self, directory: Path) -> ObjectiveSource:
        """Return the code in the study's directory, or in a worker's copy of it."""
        folder = directory / CODE if self.digests else directory
        return replace(self.source, path=str(folder / Path(self.source.path).name))


def prepare_access(
    directory: Path,
    token: str,
    source: ObjectiveSource,
    *,
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
) -> StudyAccess:
    """Copy the model file and its modules into the study's directory, for workers elsewhere.

    Raises:
        ModelFileError: The model file is gone.
        OSError: The copy cannot be written.
    """
    copy = keep_copy(source, directory)
    if copy is None:
        given = [Path(source.path).name, *(each for each in _GIVEN if (directory / each).is_file())]
        given += [each.path for name in _GIVEN for each in files_below(directory, name)]
        files = tuple(given)
        return StudyAccess(str(directory), token, source, files=files, limit_bytes=limit_bytes)
    digests = {copy.name: sha256(copy), **keep_modules(source, directory)}
    files = tuple(f"{CODE}/{name}" for name in digests)
    return StudyAccess(str(directory), token, source, digests, files, limit_bytes)


def check_access(access: StudyAccess) -> ObjectiveSource:
    """Find the study and the user's code on this machine.

    Returns:
        The model file, or its copy if this machine has no such file, or a different one.

    Raises:
        StudyAccessError: The study is not visible here, or cannot be written to.
    """
    looks = polls(PATIENCE_SECONDS, 0.25)
    while True:
        is_last = next(looks)
        try:
            _check_directory(Path(access.directory), access.token)
            return _find_code(access)
        except StudyAccessError as error:
            if error.is_final or is_last:
                raise
        except OSError as error:  # this worker's user may not look there, say
            if is_last:
                raise StudyAccessError(f"it does not see the study: {error}") from error


def _check_directory(directory: Path, token: str) -> None:
    try:
        found = json.loads((directory / "lease").read_text(encoding="utf-8"))["token"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        found = None
    if found != token:
        what = "is no directory there" if not is_folder(directory) else "is another directory there"
        # A file system that shows a new directory late shows the older one above it.
        is_final = not is_folder(directory.parent)
        raise StudyAccessError(f"it does not see the study: {directory} {what}", is_final=is_final)
    if not os.access(directory / "trials", os.W_OK | os.X_OK):
        raise StudyAccessError(f"it may not write to the study's directory {directory}")


def _find_code(access: StudyAccess) -> ObjectiveSource:
    if not access.digests:
        if not exists(Path(access.source.path)):
            raise StudyAccessError(f"it does not see {access.source.path}")
        return access.source
    copied = access.source_in(Path(access.directory))
    for source in (access.source, copied):
        if _has(Path(source.path).parent, access.digests):
            return source
    raise StudyAccessError(f"it sees neither {access.source.path} nor its copy {copied.path}")


def _has(folder: Path, digests: Mapping[str, str]) -> bool:
    return all(sha256(folder / name) == digest for name, digest in digests.items())
