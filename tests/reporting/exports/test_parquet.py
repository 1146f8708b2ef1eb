"""The export to Parquet, read by pandas."""

from __future__ import annotations

import io
from pathlib import Path

import pandas as pd
import pytest

from exported_study import varied
from hptune.reporting.exports.exports import write_parquet
from hptune.reporting.results.export import Table


def test_the_trials_and_the_curves(tmp_path: Path) -> None:
    study = varied(tmp_path / "one")
    study.export_parquet(str(tmp_path / "trials.parquet"))
    table = pd.read_parquet(tmp_path / "trials.parquet")
    assert list(table.columns) == list(study.trials_dataframe().columns)
    assert list(table.trial) == list(range(9))
    assert (table.state[2], table.value[0], table["param.units"][1]) == ("PRUNED", 0.9, 48)
    assert table["param.units"].dtype.kind == "i"
    assert table["param.dropout"][1]
    assert table["param.rate"].isna().sum() == 8
    study.export_parquet(tmp_path / "curves.parquet", curves=True)
    text = io.StringIO()
    study.export(text, file_format="csv", curves=True)
    text.seek(0)
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "curves.parquet"), pd.read_csv(text), check_dtype=False
    )


@pytest.mark.parametrize(
    ("values", "read"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([1, "a"], ["1", "a"]),
        ([None, 1], ["None", "1"]),
        ([True, 2], ["True", "2"]),
        ([1, 2**63], ["1", str(2**63)]),
        ([0.5, 2**53 + 1], ["0.5", str(2**53 + 1)]),
    ],
)
def test_a_column_of_several_types(values: list[object], read: object, tmp_path: Path) -> None:
    rows = [{"param.x": value} for value in values] + [{}]
    write_parquet(Table(["param.x"], rows), tmp_path / "x.parquet")
    column = pd.read_parquet(tmp_path / "x.parquet")["param.x"]
    assert list(column[:2]) == read
    assert pd.isna(column[2])
