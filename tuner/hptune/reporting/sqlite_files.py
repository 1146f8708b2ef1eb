"""Files of SQLite that tools keep their data in."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Set
from pathlib import Path

from .. import text
from ..errors import UsageError


def sqlite_url(place: str, *, tool: str, tables: Set[str]) -> str:
    """Return the URL of a tool's file, which need not exist.

    Raises:
        UsageError: The file exists and is not the tool's, such as a study.db.
    """
    path = Path(place).absolute()
    if path.is_dir():
        raise UsageError(f"{text.path(place)} is a directory; give a file, such as exported.db")
    if path.exists() and path.stat().st_size and not has_tables(path, tables):
        raise UsageError(
            f"{text.path(place)} exists and is no database of {tool}; give another file"
        )
    return file_url(path)


def file_url(path: Path) -> str:
    """Return the URL by which the installed SQLAlchemy finds a file, whatever its name."""
    try:
        from sqlalchemy.engine import URL
    except ImportError:  # the tool says what it needs
        return f"sqlite:///{path.absolute()}"
    return URL.create("sqlite", database=str(path.absolute())).render_as_string()


def has_tables(path: Path, tables: Set[str]) -> bool:
    """Return whether a file is an SQLite database with these tables."""
    query = "SELECT name FROM sqlite_master WHERE type = 'table'"
    address = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with contextlib.closing(sqlite3.connect(address, uri=True)) as found:
            return tables <= {name for (name,) in found.execute(query)}
    except sqlite3.Error:
        return False
