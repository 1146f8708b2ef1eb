"""The study's own copy of the user's code, for workers elsewhere and for models loaded later."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import ModelFileError
from .local_modules import local_modules
from .model_file import ObjectiveSource, SourceKind, module_digests, sha256

CODE = "code"
"""The folder of the study's directory with copies of the model file and its local modules."""


def keep_copy(source: ObjectiveSource, directory: Path) -> Path | None:
    """Copy the model file into the study's directory; return None if its code is there anyway.

    Raises:
        ModelFileError: The model file is gone.
        OSError: The copy cannot be written.
    """
    if source.kind is not SourceKind.FILE:
        return None
    copy = copy_of(source, directory)
    copy.parent.mkdir(exist_ok=True)
    fresh = copy.with_name(f"{copy.name}.new")
    try:
        shutil.copyfile(source.path, fresh)
    except FileNotFoundError as error:
        raise ModelFileError(f"the model file {source.path} is gone; put it back") from error
    fresh.replace(copy)
    return copy


def keep_modules(source: ObjectiveSource, directory: Path) -> Mapping[str, str]:
    """Copy the local modules of a model file beside its copy.

    Returns:
        The SHA-256 of each copy, by its path below the folder of copies.

    Raises:
        OSError: A copy cannot be written.
    """
    digests = {}
    for file, copy in _modules(source, directory).items():
        copy.parent.mkdir(parents=True, exist_ok=True)
        fresh = copy.with_name(f"{copy.name}.new")
        shutil.copyfile(file, fresh)
        fresh.replace(copy)
        digests[copy.relative_to(directory / CODE).as_posix()] = sha256(copy)
    return digests


def copies_of(source: ObjectiveSource, directory: Path) -> list[Path]:
    """Return where the copies of a model file and its modules are, files in folders first."""
    return [*sorted(_modules(source, directory).values(), reverse=True), copy_of(source, directory)]


def _modules(source: ObjectiveSource, directory: Path) -> dict[Path, Path]:
    model = Path(source.path)
    return {
        file: directory / CODE / file.relative_to(model.parent) for file in local_modules(model)
    }


def copy_of(source: ObjectiveSource, directory: Path) -> Path:
    """Return where the copy of a model file is."""
    return directory / CODE / Path(source.path).name


def as_trained(source: ObjectiveSource, directory: Path) -> tuple[ObjectiveSource, str]:
    """Return the code of a study as its last run used it.

    Returns:
        The code; and a warning for the user if it was changed since, else an empty text.
    """
    if source.kind is SourceKind.PICKLE:
        digests = module_digests(source)
        changed = [path for path, digest in digests.items() if digest != sha256(path)]
        words = f"{', '.join(changed)} changed since the study ran; the model may not be the same"
        return source, words if changed else ""
    copy = copy_of(source, directory)
    kept = sha256(copy)
    if not kept or kept == sha256(source.path):
        return source, ""
    words = f"{source.path} changed since the study ran; {copy} is used instead"
    return replace(source, copy=str(copy)), words
