from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.start_points import read_points
from tuner.errors import UsageError


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
def test_one_on_the_command_line(text: str, points: list[object]) -> None:
    assert read_points(text) == points


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("points.json", '[{"lr": "0.1", "n": "1"}, {"lr": "0.2"}]'),
        ("points.json", '{"lr": "0.1", "n": "1"}\n{"lr": "0.2"}\n'),
        ("points.csv", "lr, n\n0.1, 1\n0.2,\n"),
        ("POINTS.CSV", "\ufefflr,n\r\n0.1,1\r\n0.2,\r\n"),
    ],
)
def test_several_in_a_file(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    assert read_points(f"@{path}") == [{"lr": "0.1", "n": "1"}, {"lr": "0.2"}]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fast", "'fast', which is no name=value; allowed are"),
        ("=3", "'=3', which is no name=value"),
        ("lr=1,lr=2", "gives lr twice"),
        ("{lr: 1}", "--try holds no JSON"),
        ("@nowhere.json", "nowhere.json cannot be read: No such file"),
        ("@.", "cannot be read: Is a directory"),
    ],
)
def test_what_is_no_configuration(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        read_points(text)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("points.txt", "lr=1", "ends with '.txt'; allowed are"),
        ("points.json", "[1]", "holds 1, which is no configuration"),
        ("points.json", "[]", "holds no configuration"),
        ("points.csv", "lr\n1,2\n", "line 2: more cells"),
    ],
)
def test_what_is_no_file_of_configurations(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=words):
        read_points(f"@{tmp_path / name}")
