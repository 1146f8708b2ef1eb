"""Start points (`--try`): configurations written on the command line or in a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..core.kinds import named_once
from ..errors import UsageError
from .record_formats import csv_records, json_value

Point = Mapping[str, object]

_FORMS = 'allowed are "name=value,name=value", a JSON object, and @FILE.json or @FILE.csv'
_FORMS_OF_WORDS = "allowed are name=value name=value, a JSON object, and @FILE.json or @FILE.csv"


def read_points(text: str, given_to: str = "--try") -> list[Point]:
    """Return the configurations of one `--try`, with values as text or as in JSON.

    >>> read_points("lr=0.001, units=64")
    [{'lr': '0.001', 'units': '64'}]
    >>> read_points('{"activation": "a,b"}')
    [{'activation': 'a,b'}]

    Args:
        text: `name=value` pairs separated by commas; a JSON object, for names and values that
            contain commas; or `@` and the path of a file. A JSON file holds an object, a list of
            objects, or an object on each line. The first line of a CSV file names the
            hyperparameters; an empty cell is a value that is not given.
        given_to: The option or command that the text is given to, for messages.

    Raises:
        UsageError: The text is none of these, or the file cannot be read.
    """
    text = text.strip()
    forms = _FORMS if given_to == "--try" else _FORMS_OF_WORDS
    if text.startswith("@"):
        return _from_file(Path(text[1:]), forms)
    if text.startswith("{"):
        return _from_json(text, f"{text!r}, given to {given_to}", forms)
    values: list[tuple[str, object]] = []
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name:
            raise UsageError(f"{given_to} has {pair!r}, which is not name=value; {forms}")
        values.append((name, value))
    return [named_once(values, f"{given_to} {text!r}")]


def _from_file(path: Path, forms: str) -> list[Point]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"the start points in {path} cannot be read: {reason}") from error
    match path.suffix.lower():
        case ".json" | ".jsonl":
            points = _from_json(text, str(path), forms)
        case ".csv":
            points = _from_csv(text, path)
        case other:
            raise UsageError(f"{path} ends with {other or 'no suffix'!r}; {forms}")
    if not points:
        raise UsageError(f"{path} has no configuration; {forms}")
    return points


def _from_json(text: str, where: str, forms: str) -> list[Point]:
    try:
        found = json_value(text)
    except UsageError as error:
        raise UsageError(f"{where}: {error}; {forms}") from error
    points = found if isinstance(found, list) else [found]
    for point in points:
        if not isinstance(point, dict):
            raise UsageError(
                f"{where} has {point!r}, which is not a configuration; give objects such as "
                '{"lr": 0.001, "units": 64}'
            )
    return points


def _from_csv(text: str, path: Path) -> list[Point]:
    try:
        rows = csv_records(text)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    return [{name: value for name, value in row.items() if value} for row in rows]
