"""What `--try` says: configurations, written on the command line or in a file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path

from ..errors import UsageError

Point = Mapping[str, object]

_FORMS = 'allowed are "name=value,name=value", a JSON object, and @FILE.json or @FILE.csv'


def read_points(said: str) -> list[Point]:
    """The configurations that one `--try` gives, with values as text or as JSON has them.

    >>> read_points("lr=0.001, units=64")
    [{'lr': '0.001', 'units': '64'}]
    >>> read_points('{"activation": "a,b"}')
    [{'activation': 'a,b'}]

    Args:
        said: `name=value` pairs with commas between them; a JSON object, for names and values
            with commas in them; or `@` and a file. A JSON file holds an object or a list of them,
            or one object a line; a CSV file names the parameters in its first line, and a cell
            left empty is a value not given.

    Raises:
        UsageError: It is none of these, or the file cannot be read.
    """
    text = said.strip()
    if text.startswith("@"):
        return _from_file(Path(text[1:]))
    if text.startswith("{"):
        return _from_json(text, "--try")
    point: dict[str, object] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise UsageError(f"--try has {pair!r}, which is no name=value; {_FORMS}")
        if name in point:
            raise UsageError(f"--try {said!r} gives {name} twice")
        point[name] = value
    return [point]


def _from_file(path: Path) -> list[Point]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise UsageError(f"the start points in {path} cannot be read: {reason}") from error
    match path.suffix.lower():
        case ".json" | ".jsonl":
            points = _from_json(text, str(path))
        case ".csv":
            points = _from_csv(text, path)
        case other:
            raise UsageError(f"{path} ends with {other or 'no suffix'!r}; {_FORMS}")
    if not points:
        raise UsageError(f"{path} holds no configuration")
    return points


def _from_json(text: str, where: str) -> list[Point]:
    try:
        found = json.loads(text)
    except ValueError as error:
        try:
            found = [json.loads(line) for line in text.splitlines() if line.strip()]
        except ValueError:
            raise UsageError(f"{where} holds no JSON: {error}; {_FORMS}") from error
    points = found if isinstance(found, list) else [found]
    for point in points:
        if not isinstance(point, dict):
            raise UsageError(
                f"{where} holds {point!r}, which is no configuration; give objects such as "
                '{"lr": 0.001, "units": 64}'
            )
    return points


def _from_csv(text: str, path: Path) -> list[Point]:
    rows = csv.DictReader(io.StringIO(text), skipinitialspace=True)
    points: list[Point] = []
    for number, row in enumerate(rows, start=2):
        if None in row:
            raise UsageError(f"{path}, line {number}: more cells than the first line has names")
        points.append({name.strip(): value.strip() for name, value in row.items() if value})
    return points
