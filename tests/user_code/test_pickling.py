"""Where modules of what was given in Python are looked for in other processes."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest

from hptune.user_code.pickling import read_pickle, write_pickle


@pytest.mark.parametrize(
    ("there", "here", "after"),
    [
        ("script lib std site", "lib std site", "script lib std site"),
        ("script lib std site", "std site", "script lib std site"),
        ("script std site", "std other", "script std other site"),
        (
            "script others.zip others-std site",
            "std.zip",
            "script std.zip others.zip others-std site",
        ),
        (
            "script others.zip others-std shared",
            "std.zip shared",
            "script std.zip shared others.zip others-std",
        ),
        ("std site", "std site more", "std site more"),
    ],
)
def test_a_module_is_that_of_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str, here: str, after: str
) -> None:
    """Another one of its name may be on PYTHONPATH or installed."""
    path = tmp_path / "objective.pkl"
    of_script, of_trial, expected = (
        [str(tmp_path / name) for name in names.split()] for names in (there, here, after)
    )
    monkeypatch.setattr(sys, "path", of_script)
    write_pickle(path, pickle.dumps("found"))
    monkeypatch.setattr(sys, "path", of_trial)
    assert read_pickle(path) == "found"
    assert sys.path == expected
