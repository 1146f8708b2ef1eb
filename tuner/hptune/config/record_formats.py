"""Records written as CSV or as JSON, such as start points and past trials."""

from __future__ import annotations

import csv
import io
import json
from functools import partial
from typing import Any

from ..core.kinds import named_once
from ..errors import UsageError

_object = partial(named_once, given_to="an object")
_NO_JSON = (ValueError, RecursionError, UsageError)


def csv_records(text: str) -> list[dict[str, str]]:
    r"""Return the lines of a CSV text, whose first line has the names of the cells.

    An empty cell is "", or left out if it has no name: a spreadsheet may end each line with commas.

    >>> csv_records("lr, units,\n0.1, ,\n")
    [{'lr': '0.1', 'units': ''}]

    Raises:
        UsageError: The text has other lines.
    """
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    try:
        read = list(rows)
    except csv.Error as error:
        raise UsageError(f"line {rows.line_num}: {error}") from error
    names = [name.strip() for name in rows.fieldnames or () if name.strip()]
    named_once(((name, "") for name in names), "the first line")
    found = []
    for number, row in enumerate(read, start=2):
        if None in row:
            raise UsageError(f"line {number} has more cells than the first line has names")
        cells = {name.strip(): (value or "").strip() for name, value in row.items()}
        found.append({name: value for name, value in cells.items() if name or value})
    return found


def json_value(text: str) -> Any:
    r"""Return the value of a JSON text; the list of its lines' values if each line is JSON.

    >>> json_value('{"lr": 0.1}\n{"lr": 0.2}\n')
    [{'lr': 0.1}, {'lr': 0.2}]

    Raises:
        UsageError: The text is neither, or an object has a name twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_object)
    except _NO_JSON as error:
        found: list[Any] = []
        for number, line in enumerate(text.splitlines(), start=1):
            try:
                found += [json.loads(line, object_pairs_hook=_object)] if line.strip() else []
            except _NO_JSON as of_line:
                # The first line of an object on several lines is no object by itself.
                place, why = (f"line {number}", of_line) if found else ("it", error)
                raise UsageError(f"{place} is not valid JSON: {why}") from why
        return found
