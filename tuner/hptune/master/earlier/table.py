"""Past trials in a table: CSV, or JSON records, of hptune or of other programs."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

from ...config.record_formats import csv_records, json_value
from ...errors import UsageError
from ...reporting.results.export import text_in
from .found import NOT_COMPLETE, FoundTrial, FoundTrials

_PARAMS = ("param.", "params.", "params_", "config/", "hyperparameters.")
"""What begins the columns of hyperparameters that hptune, MLflow, Optuna and Ray Tune write."""

_METRICS = ("metric.", "metrics.", "values_", "user_attrs_metric.")
_VALUES = ("value", "score", "objective")
"""Columns of the objective, if none has the name of a metric."""

_STATES = ("state", "status")
_COMPLETE = ("", "complete", "completed", "finished", "terminated", "success", "done")

_ENDINGS = (".csv", ".json", ".jsonl")

_Row = Mapping[str, Any]


def is_table(path: Path) -> bool:
    """Return whether a path is that of a table."""
    return path.suffix.lower() in _ENDINGS


def read_table(path: Path, *, hyperparameters: Set[str], metrics: Sequence[str]) -> FoundTrials:
    """Return the complete trials of a table.

    A column is a hyperparameter or a metric of the new study if it has that name, or that name
    with a prefix that hptune or another program writes. If no column is one of the metrics, the
    column `value` is the objective. A column `state` or `status` says which trials are complete;
    without one, all are.

    Args:
        path: The file. JSON is an export of hptune, a list of records, or a record on each line; a
            record may have its hyperparameters under `params`, and its metrics under `metrics`.
        hyperparameters: The names that the new study searches.
        metrics: The metrics that the new study needs.

    Raises:
        UsageError: The file cannot be read.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        rows = _csv(text) if path.suffix.lower() == ".csv" else _json(text)
    except (OSError, ValueError, UsageError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"the trials in {path} cannot be read: {reason}") from error
    complete = [row for row in rows if _state(row) in _COMPLETE]
    names = dict.fromkeys(name for row in complete for name in row if name)
    searched = _columns(names, _PARAMS, hyperparameters)
    measured = _columns(names, _METRICS, metrics)
    known = {*searched.values(), *measured.values()}
    value = next((name for name in _VALUES if name in names and name not in known), None)
    is_named = any(name.startswith(_PARAMS) for name in names)
    rest = [name for name in names if name not in {*known, value, *_STATES}]
    return FoundTrials(
        [
            FoundTrial(
                {bare: row[name] for bare, name in searched.items() if name in row},
                {bare: _number(row.get(name)) for bare, name in measured.items()},
                None if value is None else _number(row.get(value)),
            )
            for row in complete
        ],
        skipped={NOT_COMPLETE: len(rows) - len(complete)},
        unused=[_bare(name, _PARAMS) for name in rest if not is_named or name.startswith(_PARAMS)],
    )


def _csv(text: str) -> list[_Row]:
    return [{name: text_in(cell) for name, cell in row.items()} for row in csv_records(text)]


def _json(text: str) -> list[_Row]:
    found = json_value(text)
    if isinstance(found, dict):
        found = found.get("trials", [found])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ValueError("it is not a list of records such as {'lr': 0.1, 'val_loss': 0.3}")
    return [_flat(each) for each in found]


def _flat(record: Mapping[str, Any]) -> _Row:
    """Return a record with its inner ones as names with a prefix; lists are left out."""
    row: dict[str, Any] = {}
    for name, value in record.items():
        if isinstance(value, dict):
            kind = {"params": "param.", "hyperparameters": "param.", "metrics": "metric."}
            prefix = kind.get(name, f"{name}/")
            row |= {f"{prefix}{inner}": v for inner, v in value.items() if not _is_tree(v)}
        elif not _is_tree(value):
            row[name] = value
    return row


def _is_tree(value: object) -> bool:
    return isinstance(value, dict | list)


def _columns(
    names: Iterable[str], prefixes: tuple[str, ...], wanted: Container[str]
) -> dict[str, str]:
    """Return the column of each wanted name: the one that has a prefix, or else that name."""
    ordered = sorted(names, key=lambda name: name.startswith(prefixes))
    bare = {name: name if name in wanted else _bare(name, prefixes) for name in ordered}
    return {short: name for name, short in bare.items() if short in wanted}


def _bare(name: str, prefixes: Sequence[str]) -> str:
    prefix = next((each for each in prefixes if name.startswith(each)), "")
    return name.removeprefix(prefix)


def _state(row: _Row) -> str:
    found = next((row[name] for name in _STATES if name in row), "")
    return str(found).rpartition(".")[2].strip().lower()


def _number(value: object) -> float:
    try:
        return float(value)  # type: ignore[arg-type]  # any cell of a file
    except (TypeError, ValueError, OverflowError):
        return math.nan
