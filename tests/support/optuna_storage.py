"""Storages of Optuna that are closed in the end; Python 3.13 warns of connections that are not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from optuna.storages import RDBStorage


@contextlib.contextmanager
def storage(path: Path) -> Iterator[RDBStorage]:
    opened = RDBStorage(f"sqlite:///{path}")
    try:
        yield opened
    finally:
        opened.remove_session()
        opened.engine.dispose()
