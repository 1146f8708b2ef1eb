"""What is said while a framework is imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path

import pytest

from hptune.reporting.terminal.display import imports_shown
from hptune.user_code.watched_imports import watched_imports

LINES = "WARNING: All log messages before absl::InitializeLog() is called\\nI0000 port.cc: on\\n"
PACKAGES = {
    "jax": "",
    "tensorflow": f"import os, jax\nos.write(2, b'{LINES}E0000 no driver\\n')\n",
    "torch": "raise ImportError('no such library')\n",
    "keras": "import tensorflow\nx = 1\n",
}


@pytest.fixture(autouse=True)
def _packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put packages of these names in place of the installed ones."""
    monkeypatch.syspath_prepend(tmp_path)
    for name, text in PACKAGES.items():
        (tmp_path / f"{name}.py").write_text(text)
        for module in [each for each in sys.modules if each.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, module)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("jax", ["importing JAX", ""]),
        ("tensorflow", ["importing TensorFlow"] * 3 + [""]),
        (
            "keras",
            ["importing Keras", *["importing TensorFlow"] * 3, "importing Keras", ""],
        ),
        ("colorsys", []),
    ],
)
def test_a_framework_is_named_once_for_all_that_it_imports(name: str, said: list[str]) -> None:
    heard: list[str] = []
    with watched_imports(heard.append):
        assert importlib.util.find_spec(name)
        assert heard == []
        module = importlib.import_module(name)
    assert heard == said
    assert "exec_module" not in vars(module.__loader__)
    assert importlib.import_module(name) is module
    assert heard == said


def test_an_import_that_fails_is_over() -> None:
    heard: list[str] = []
    with watched_imports(heard.append), pytest.raises(ImportError, match="no such library"):
        importlib.import_module("torch")
    assert heard == ["importing PyTorch", ""]


@pytest.mark.parametrize("quiet", [False, True])
def test_lines_for_information_are_left_out_at_an_import(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *, quiet: bool
) -> None:
    monkeypatch.setattr("hptune.reporting.terminal.display._TICK_SECONDS", 0.0)
    with imports_shown(quiet=quiet) as say, watched_imports(say):
        importlib.import_module("keras")
        sys.stderr.write("I0000 of the script\n")
    err = capfd.readouterr().err
    assert err.endswith("E0000 no driver\nI0000 of the script\n")
    assert "InitializeLog" not in err
    assert quiet == (err.count("\n") == 2), err
