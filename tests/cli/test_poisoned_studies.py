"""Studies of strangers, in which one value is wrong: each command answers, and shows no controls.

Every column and every recorded fact gets every kind of wrong value.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from hptune.core.messages import UserRequested
from hptune.core.user_requests import Note, UserAction
from hptune.storage.lease import LockOwner
from hptune.storage.ledger.codec import dumps, encode_event
from hptune.text import CONTROL
from in_process import InProcess
from real_runs import Ended
from stored_study import typical

ESCAPES = "\x1b]0;title\x07\x9b31m\u202e"
DEEP = "[" * 100_000 + "]" * 100_000
WRONG: dict[str, Any] = {
    "none": None,
    "number": 7,
    "negative": -3,
    "huge": 1e300,
    "not a number": float("nan"),
    "infinite": float("inf"),
    "digits": 10**400,
    "text": "luck",
    "escapes": ESCAPES,
    "half a character": "\ud800",
    "long": "x" * 100_000,
    "list": [1],
    "object": {"a": 1},
    "true": True,
}
IN_A_CELL = {
    "none": "NULL",
    "number": "7",
    "negative": "-3",
    "huge": "1e300",
    "infinite": "9e999",
    "whole": "4611686018427387904",
    "text": "'luck'",
    "escapes": f"'{ESCAPES}'",
    "bytes": "x'00ff'",
    "not UTF-8": "CAST(x'eda080' AS TEXT)",
    "zero byte": "CAST(x'610062' AS TEXT)",
    "deep": f"'{DEEP}'",
}
COLUMNS = {
    "trials": "number state params value step metrics origin epochs unused attempts reason detail",
    "attempts": "trial number outcome worker node devices placed started ended reason cause "
    "peak_memory_bytes peak_gpu_memory_bytes cpu_seconds seconds seconds_per_step starved_seconds",
    "reports": "trial attempt step metric value time",
    "events": "seq time kind payload",
}
JSON_CELLS = {
    "trials": ("params", "metrics", "unused"),
    "attempts": ("devices",),
    "events": ("payload",),
}
WHERE = {"trials": "number = 2", "attempts": "trial = 2 AND number = 1", "reports": "trial = 2"}
COMMANDS = (
    "list .",
    "status study",
    "show study 2",
    "export study",
    "report study -o page.html",
    "best study --json",
    "export study --format json",
    "trials study",
    "report study -o page.md",
    "status study --json",
    "best study",
)
THINNED = 4
"""Of this many changes within a value, one is tried. The number of wrong values is no multiple of
it, so that each part gets some. All of them take two minutes."""

Poison = Callable[[str, Sequence[object]], None]


@pytest.fixture
def poison(cli: InProcess, monkeypatch: pytest.MonkeyPatch) -> Poison:
    """Return a function that changes a study by a statement, and tries some of the commands."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of a thousand reports
    path = cli.directory / "study"
    typical(path)
    database = path / "study.db"
    note = UserRequested(
        1200.0, "r", UserAction.NOTE, "ada (hptune note)", trial=2, note=Note("words", ("tag",))
    )
    execute(database, "INSERT INTO events VALUES (99, 1200.0, ?, ?)", encode_event(note))
    whole = database.read_bytes()
    commands = cycle(COMMANDS)

    def poisoned(statement: str, values: Sequence[object]) -> None:
        database.write_bytes(whole)
        with contextlib.suppress(sqlite3.IntegrityError):  # what no file can hold
            execute(database, statement, values)
        for command in islice(commands, 2):
            check(cli(*command.split()), cli.directory, f"{command}: {statement} {values}")

    return poisoned


def execute(database: Path, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
    with contextlib.closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("PRAGMA synchronous=OFF")
        return connection.execute(statement, values).fetchall()


def check(ended: Ended, directory: Path, said: str) -> None:
    """Check that a command has a result or a clear error, and that nothing in it is a control."""
    assert ended.code in (0, 1) or "has no trial 2" in ended.err, (said[:300], ended)
    assert ended.code == 0 or ended.err.splitlines()[-1].startswith("Error: "), said[:300]
    pages = list(directory.glob("page.*"))
    for text in (ended.out, ended.err, *(page.read_text() for page in pages)):
        assert "Traceback" not in text, said[:300]
        assert re.search(f"[{CONTROL}]", text) is None, (said[:300], text[:1000])
    for page in pages:
        page.unlink()


@pytest.mark.parametrize("table", COLUMNS)
def test_a_wrong_cell_is_no_traceback(poison: Poison, table: str) -> None:
    where = WHERE.get(table, "seq IN (0, 99)")
    for column in COLUMNS[table].split():
        for value in IN_A_CELL.values():
            poison(f"UPDATE OR IGNORE {table} SET {column} = {value} WHERE {where}", ())


@pytest.mark.parametrize(("table", "column"), [(t, c) for t in JSON_CELLS for c in JSON_CELLS[t]])
def test_a_wrong_value_in_a_cell_is_no_traceback(
    cli: InProcess, poison: Poison, table: str, column: str
) -> None:
    where = WHERE.get(table, "seq = 99")
    query = f"SELECT {column} FROM {table} WHERE {where}"
    ((text,),) = execute(cli.directory / "study" / "study.db", query)
    for changed in islice(changes(json.loads(text)), 0, None, THINNED):
        poison(f"UPDATE {table} SET {column} = ? WHERE {where}", [changed])


FACTS = (
    *("created_at", "ended", "epochs", "format", "goals", "hptune_version", "is_keras"),
    *("measuring", "seed", "settings", "space", "declared_space", "warm_start", "model_loader"),
)


@pytest.mark.parametrize("key", FACTS)
def test_a_wrong_fact_is_no_traceback(cli: InProcess, poison: Poison, key: str) -> None:
    rows = execute(cli.directory / "study" / "study.db", "SELECT key, value FROM study")
    fact = json.loads(dict(rows).get(key, "null"))
    thinned = 5 * THINNED if key in ("settings", "declared_space", "space") else THINNED
    for changed in islice(changes(fact), 0, None, thinned):
        poison("INSERT OR REPLACE INTO study VALUES (?, ?)", [key, changed])
    poison("DELETE FROM study WHERE key = ?", [key])


def test_a_wrong_lease_is_no_traceback(cli: InProcess, poison: Poison) -> None:
    for changed in islice(changes(asdict(LockOwner.this_process())), 0, None, THINNED):
        (cli.directory / "study" / "lease").write_text(changed)
        poison("SELECT ?", [1])


def changes(value: object) -> Iterator[str]:
    """Yield JSON in which one part of a value, or a name in it, is wrong."""
    for path in parts(value):
        for wrong in WRONG.values():
            yield dumps(replaced(value, path, wrong))
        yield dumps(replaced(value, path, "DEEP")).replace('"DEEP"', DEEP, 1)
    if isinstance(value, dict):
        for name in (ESCAPES, "\ud800", "x" * 100_000):
            yield dumps({(name if key == next(iter(value)) else key): value[key] for key in value})


def parts(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = dict(enumerate(value)) if isinstance(value, list) else value
    for key, each in inner.items() if isinstance(inner, dict) else ():
        yield from parts(each, (*path, key))


def replaced(value: Any, path: Sequence[Any], wrong: object) -> Any:
    if not path:
        return wrong
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], wrong)
    return copy
