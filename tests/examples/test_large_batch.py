"""examples/large_batch.py: the points that it tries, and its table and plot."""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path
from types import ModuleType

import pytest

from requirements import require

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.import_module("large_batch")


def test_each_optimizer_gets_as_many_points_in_its_own_ranges(example: ModuleType) -> None:
    points = {kind: example.points_of(kind, 16) for kind in example.OPTIMIZERS}
    assert [len(each) for each in points.values()] == [16] * 4
    assert points["lars"] == example.points_of("lars", 16)
    assert all(set(each) >= {"trust_coefficient", "lars_learning_rate"} for each in points["lars"])
    rates = sorted(each["adam_learning_rate"] for each in points["adam"])
    assert 1e-4 <= rates[0] < 3e-4
    assert 0.03 < rates[-1] <= 0.1
    assert 1e-3 < rates[8] < 1e-2  # on a logarithmic scale


def test_where_accuracy_starts_to_fall(example: ModuleType, tmp_path: Path) -> None:
    table = {
        "sgd": {256: 0.90, 512: 0.91, 1024: 0.90, 2048: 0.908, 4096: 0.88, 8192: 0.7},
        "lamb": {256: 0.90, 4096: 0.898},
    }
    assert [example.falls_at(each) for each in table.values()] == [4096, None]
    lines = example.text_of(table).splitlines()
    assert lines[1].endswith("0.908   0.880   0.700   falls at 4096")
    assert lines[2].split() == [
        "lamb",
        "0.900",
        *["nan"] * 3,
        "0.898",
        "nan",
        *["does", "not", "fall"],
    ]
    require("matplotlib")
    example.draw(table, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


def test_what_is_refused(example: ModuleType) -> None:
    assert example._sizes("4096, 256") == [256, 4096]
    for text in ("256;512", "", "0,256"):
        with pytest.raises(argparse.ArgumentTypeError, match="is no list of batch sizes such as"):
            example._sizes(text)
