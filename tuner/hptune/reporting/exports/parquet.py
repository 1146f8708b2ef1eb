"""Export of tables to Parquet, which pandas, Polars, DuckDB and Spark read."""

from __future__ import annotations

import io
from pathlib import Path

from ...errors import check_installed
from ...storage.output_files import write_output
from ..results.export import PARAM, Table


def export_parquet(table: Table, path: Path) -> None:
    """Write a table as a Parquet file; a value that a row lacks is null.

    A column whose values have several types, such as a hyperparameter that is a number in some
    trials and None in others, holds texts.

    Raises:
        MissingPackageError: pyarrow is not installed.
        UsageError: The file cannot be written.
    """
    check_installed("pyarrow", "the export to Parquet")
    import pyarrow as pa
    from pyarrow import parquet

    found = pa.table({name: _column(table, name) for name in table.columns})
    file = io.BytesIO()
    parquet.write_table(found, file)
    write_output(path, file.getvalue())


def _column(table: Table, name: str) -> list[object]:
    # A hyperparameter may be None, which is not the same as having none.
    is_param = name.startswith(PARAM)
    given = [row[name] for row in table.rows if name in row]
    known = [each for each in given if each is not None or is_param]
    kinds = {type(each) for each in known}
    cells = [row.get(name) for row in table.rows]
    if kinds <= {int, float} or (len(kinds) == 1 and type(None) not in kinds):
        return cells
    absent = object()
    return [
        None if value is absent or (value is None and not is_param) else str(value)
        for value in (row.get(name, absent) for row in table.rows)
    ]
