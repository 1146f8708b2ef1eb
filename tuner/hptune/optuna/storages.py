"""The folders of studies that Optuna would keep in a storage."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

import optuna

from ..errors import UsageError
from ..storage.directory import StudyDirectory
from .missing import OF_ANOTHER_STUDY, beside

logger = optuna.logging.get_logger("optuna.hptune")

journal = sys.modules[f"{__name__}.journal"] = sys.modules[__name__]
"""A module of Optuna's that has some of these names."""
__getattr__ = beside(globals())


def RDBStorage(url: Any, **_unused: Any) -> Path:
    """Return the folder of the studies in a database, of which the path counts.

    >>> str(RDBStorage("sqlite:///results/example.db")), str(RDBStorage("sqlite:///lr0.1"))
    ('results/example.studies', 'lr0.1.studies')

    Raises:
        UsageError: It is no file.
    """
    place = os.fspath(url).removeprefix("sqlite:///").partition("?")[0]
    if "://" in place or place in ("", ":memory:"):
        raise UsageError(
            f"storage is {url!r}; a study of hptune is a directory that all processes see. Give a "
            "path there, such as storage='sqlite:////shared/example.db'"
        )
    folder = Path(re.sub(r"\.(db|sqlite3?|log)$", "", str(Path(place))) + ".studies")
    if not folder.exists() and Path(place).exists():
        logger.warning("%s is neither read nor written; %s", place, OF_ANOTHER_STUDY)
    return folder


JournalFileBackend = RDBStorage


def JournalStorage(log_storage: Path) -> Path:
    """Return the folder of its backend."""
    return log_storage


def InMemoryStorage() -> None:
    """Return None: each study is new."""


def folder_of(storage: Any) -> Path | None:
    """Return the folder of the studies in a storage; None for studies that are always new.

    Raises:
        UsageError: It is none that a study of hptune can have.
    """
    folder = RDBStorage(storage) if isinstance(storage, str) else storage
    if isinstance(folder, Path | None):
        return folder
    raise UsageError(
        f"storage is {storage!r}; allowed are 'sqlite:///example.db' and the like, and those of "
        "hptune.optuna.storages"
    )


def names_in(folder: Path | None) -> list[str]:
    """Return the names of the studies in a folder."""
    paths = sorted(folder.iterdir()) if folder and folder.is_dir() else []
    return [path.name for path in paths if StudyDirectory(path).has_ledger]
