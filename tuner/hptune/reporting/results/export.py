r"""A study's trials and learning curves as tables (CSV or pandas) or as a tree (JSON), every digit.

Trials are in the order of their numbers, columns in the order in which they first appear, so
that two exports have the same bytes.

Names and texts in a study may come from anywhere, and a CSV file is often opened by a spreadsheet.
So a text that a spreadsheet would run as a formula begins with an apostrophe in CSV, and control
characters are written as escapes such as `\x1b`. Data frames and JSON hold texts as they are.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from ...core.attempt import ReportedValue
from ...text import CONTROL
from .best import goals_json
from .notes import notes_json
from .rows import Place, columns, plain, rows
from .view import StudyView


@dataclass(frozen=True, slots=True)
class Table:
    """Rows by the names of columns; a value that a row lacks is not in it."""

    columns: Sequence[str]
    rows: Sequence[Mapping[str, object]]


PARAM, METRIC = "param.", "metric."
_PREFIXES = {"params": PARAM, "metrics": METRIC}
"""How the names of columns begin of which a trial has several."""


def table(view: StudyView, place: Place = Place.TABLE, *, now: float | None = None) -> Table:
    """Return one row for each trial, with values as they are; `rows.COLUMNS` has the columns."""
    trials, names = rows(view, now=now), list[str]()
    found: list[dict[str, object]] = [{} for _ in trials]
    for column in columns(place):
        values: list[Any] = [column.value(row) for row in trials]
        if prefix := _PREFIXES.get(column.name):
            several = dict.fromkeys(name for each in values for name in each)
            full = {name: f"{prefix}{name}" for name in several}
            names += full.values()
            for cells, each in zip(found, values, strict=True):
                cells.update((full[name], value) for name, value in each.items())
        elif column.is_shown(trials):
            names.append(column.name)
            for cells, value in zip(found, values, strict=True):
                cells[column.name] = value
    return Table(names, found)


def curves(reports: Sequence[ReportedValue]) -> Table:
    """Return the learning curves in long form: one row for each metric at each step."""
    ordered = sorted(reports, key=lambda row: (row.trial, row.attempt, row.step))
    return Table(_CURVE, [{name: getattr(row, name) for name in _CURVE} for row in ordered])


_CURVE = ("trial", "attempt", "step", "metric", "value", "time")


def export_csv(rows: Table, stream: TextIO) -> None:
    """Write a table as CSV (RFC 4180).

    Cells that a row lacks, such as inactive hyperparameters, are empty. A hyperparameter whose
    value is None is written as `None`.
    """
    writer = csv.writer(stream)
    writer.writerow(map(_cell, rows.columns))
    params = {name for name in rows.columns if name.startswith(PARAM)}
    for row in rows.rows:
        none = {name: "None" for name in params & row.keys() if row[name] is None}
        cells = {**row, **none}
        writer.writerow([_cell(cells.get(name)) for name in rows.columns])


def _cell(value: object) -> object:
    """Return a value as a CSV file may hold it, see the module's description."""
    if not isinstance(value, str):
        return value
    safe = _CONTROL.sub(lambda found: ascii(found[0])[1:-1], value)
    return f"'{safe}" if value.startswith(_FORMULA) else safe


def text_in(cell: str) -> str:
    """Return the text of a cell, without the apostrophe that `export_csv` put before it."""
    return cell[1:] if cell.startswith("'") and cell[1:].startswith(_FORMULA) else cell


_CONTROL = re.compile(f"[{CONTROL}]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def export_json(
    view: StudyView,
    reports: Sequence[ReportedValue],
    stream: TextIO,
    *,
    now: float | None = None,
) -> None:
    """Write the trials with their attempts and reports as strict JSON.

    Hyperparameters keep their types; NaN and the infinities, which JSON cannot hold, are null;
    times are seconds since the epoch.
    """
    reports_of: dict[int, list[ReportedValue]] = {}
    for report in reports:
        reports_of.setdefault(report.trial, []).append(report)
    tree = {
        "study": view.directory,
        **goals_json(view),
        **notes_json(view),
        "trials": [
            {**row.to_json(), "reports": reports_json(reports_of.get(row.trial.number, []))}
            for row in rows(view, now=now)
        ],
    }
    json.dump(tree, stream, indent=2, allow_nan=False)
    stream.write("\n")


def reports_json(reports: Sequence[ReportedValue]) -> list[dict[str, object]]:
    """Return one entry for each attempt and step, with all metrics reported then."""
    metrics: dict[tuple[int, int], dict[str, object]] = {}
    at: dict[tuple[int, int], float] = {}
    for row in sorted(reports, key=lambda row: (row.attempt, row.step)):
        key = (row.attempt, row.step)
        metrics.setdefault(key, {})[row.metric] = plain(row.value)
        at[key] = row.time
    return [
        {"attempt": attempt, "step": step, "at": at[attempt, step], "metrics": values}
        for (attempt, step), values in metrics.items()
    ]
