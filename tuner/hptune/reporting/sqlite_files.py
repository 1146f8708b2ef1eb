"""Databases that other tools keep their data in, most of them files of SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Set
from pathlib import Path
from typing import Any

from .. import text
from ..errors import UsageError


def sqlite_url(place: str, *, tool: str, tables: Set[str]) -> str:
    """Return the URL of a tool's file, which need not exist.

    Raises:
        UsageError: The file exists and is not the tool's, such as a study.db; or its path is not
            UTF-8.
    """
    path = Path(place).absolute()
    if any("\ud800" <= character <= "\udfff" for character in str(path)):
        raise UsageError(f"{text.path(path)} is not UTF-8, which {tool} needs; give another place")
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


@contextlib.contextmanager
def open_storage(optuna: Any, url: str, place: str, *, is_read: bool) -> Iterator[Any]:
    """Open a storage of Optuna within the context.

    Args:
        optuna: The package.
        url: The storage's URL.
        place: What the user named.
        is_read: Whether it is only read, and must exist.

    Raises:
        UsageError: It cannot be used.
    """
    from sqlalchemy.exc import ArgumentError, SQLAlchemyError

    cannot = f"the Optuna storage {place} cannot be {'read' if is_read else 'written'}"
    try:
        if is_read and (file := _missing_file(url)):
            raise UsageError(
                f"{cannot}: there is no file {file}; a URL with an absolute path has four "
                "slashes, such as sqlite:////home/me/optuna.db"
            )
        storage = optuna.storages.RDBStorage(url, skip_table_creation=is_read)
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()
    except ArgumentError as error:
        raise UsageError(
            f"{place!r} is no URL of a storage; give a file, such as optuna.db, or a URL, such as "
            "postgresql://host/database"
        ) from error
    except (SQLAlchemyError, optuna.exceptions.OptunaError, RuntimeError, ImportError) as error:
        raise UsageError(f"{cannot}: {reason_of(error)}") from error


def reason_of(error: Exception) -> str:
    """Return why a tool could not use its database, without the statement that failed."""
    words = text.shorten(str(error).partition("\n[SQL")[0], 300)
    return words + "; check space, quota and `ulimit -f`" * ("disk I/O error" in words)


def _missing_file(url: str) -> str:
    """Return the file of a URL of SQLite, which would make an empty one; "" if it exists."""
    from sqlalchemy.engine import make_url

    parsed = make_url(url)
    file = parsed.database or ""
    is_plain = parsed.get_backend_name() == "sqlite" and not file.startswith(("file:", ":"))
    return file if is_plain and file and not Path(file).exists() else ""
