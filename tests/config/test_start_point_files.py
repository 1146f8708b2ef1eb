from __future__ import annotations

from pathlib import Path

import pytest

from hptune.config.start_points import read_points
from hptune.errors import UsageError


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("lr=0.001,units=64", [{"lr": "0.001", "units": "64"}]),
        (" lr = 0.001 , ", [{"lr": "0.001"}]),
        ("path=a=b", [{"path": "a=b"}]),
        ("", [{}]),
        ('{"lr": 0.001, "act": "a,b"}', [{"lr": 0.001, "act": "a,b"}]),
    ],
)
def test_a_point_on_the_command_line(text: str, points: list[object]) -> None:
    assert read_points(text) == points


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("points.json", '[{"lr": "0.1", "n": "1"}, {"lr": "0.2"}]'),
        ("points.json", '{"lr": "0.1", "n": "1"}\n{"lr": "0.2"}\n'),
        ("points.csv", "lr, n\n0.1, 1\n0.2,\n"),
        ("points.csv", "lr,n,,\n0.1,1,,\n0.2,,,\n"),
        ("POINTS.CSV", "\ufefflr,n\r\n0.1,1\r\n0.2,\r\n"),
    ],
)
def test_points_in_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_points(f"@{path}") == [{"lr": "0.1", "n": "1"}, {"lr": "0.2"}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fast", "'fast', which is not name=value; allowed are"),
        ("=3", "'=3', which is not name=value"),
        ("lr=1,lr=2", "gives lr twice"),
        ("{lr: 1}", "'{lr: 1}', given to --try: it is not valid JSON"),
        ("@nowhere.json", "nowhere.json cannot be read: No such file"),
        ("@.", "cannot be read: Is a directory"),
    ],
)
def test_texts_that_are_not_configurations_are_refused(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_points(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("points.txt", "lr=1", "ends with '.txt'; allowed are"),
        ("points.json", "[1]", "has 1, which is not a configuration"),
        ("points.json", "[]", "has no configuration"),
        ("points.jsonl", '{"lr": 1}\n\n{"lr"}', "points.jsonl: line 3 is not valid JSON"),
        (
            "points.csv",
            "lr\n1,2\n",
            "points.csv: line 2 has more cells than the first line has names",
        ),
        (
            "points.csv",
            "lr,n, lr\n1,2,3\n",
            "points.csv: the first line gives lr twice; give it once",
        ),
        ("points.csv", f"lr\n1\n{'1' * 200_000}\n", "line 2: field larger than field limit"),
        ("points.json", "[" * 100_000, "is not valid JSON: (maximum recursion|Stack)"),
    ],
)
def test_files_without_configurations_are_refused(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=words):
        read_points(f"@{tmp_path / name}")
