"""What the source of a model file shows before it runs; what may work is never refused."""

from __future__ import annotations

import sys
import venv
from pathlib import Path
from types import ModuleType

import pytest

from hptune.errors import ModelFileError, UsageError
from hptune.user_code.source_checks import check_source

BUILD = "def build_model(hp): ...\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("'''Text.'''\nX = 1\nimport json, no_such.part", ":3: there is no module no_such in this"),
        ("from no_such import part", ":1: there is no module no_such in this"),
        ("import os\nos.environ['A'] = 'b'\nimport no_such", ":3: there is no module no_such"),
        (BUILD + "import keras\nkeras.datasets.mnist.load_data()", "no load_data()"),
        ("class Mine(kt.HyperModel): ...", "no load_data()"),
        ("def load(): return 1\ndef build_cnn(hp, width=3): ...", ""),
        ("def build_cnn(hp): ...", "no load_data()"),
        ("X = 1\ndef f(:", "model.py:2: SyntaxError: invalid syntax: def f(:"),
        ("X = 1\nreturn X", "model.py:2: SyntaxError: 'return' outside function"),
    ],
)
def test_what_cannot_work_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "model.py").write_text(text)
    if not words:
        check_source(tmp_path / "model.py", has_entry=False)
        return
    with pytest.raises(ModelFileError) as refused:
        check_source(tmp_path / "model.py", has_entry=False)
    assert words in refused.value.message


@pytest.mark.parametrize(
    "text",
    [
        "import sys, json\nfrom . import part\nimport mine\nimport no_such",  # mine may add a path
        "import sys\nsys.path.append('lib')\nimport no_such",
        "import sys\nsys.path[:0] = ['lib']\nimport no_such",
        "import sys\nsys.path = ['lib']\nimport no_such",
        "try:\n    import no_such\nexcept ImportError: ...",
        "import importlib.util, os.path, xml.dom",
        "def f(): import no_such",
        BUILD + "def load_data(): ...",
        BUILD + "from data import read as load_data",
        BUILD + "from data import *",
        BUILD + "load_data, more = make()",
        BUILD + "globals().update(make())",
        BUILD + "class A:\n    def objective(self): ...",
        BUILD + "objective = lambda hp, trial: 1",
        BUILD + "def tune(hp, trial): ...",
        BUILD + "def tune(hp, trial, width=3): ...",
        "class Mine(mine.OurHyperModel): ...",  # which may have a fit
        "class Mine(kt.HyperModel):\n    def fit(self, hp, model): ...",
        "def train(): ...",
    ],
)
def test_what_may_work_is_not_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    (tmp_path / "mine.py").touch()
    monkeypatch.setitem(sys.modules, "mine", ModuleType("mine"))  # that of another model file
    (tmp_path / "model.py").write_text(text)
    check_source(tmp_path / "model.py", has_entry=False)


@pytest.mark.parametrize(
    ("python", "words"),
    [
        ("/no/such/python", ["cannot be run", "No such file", "/bin/python"]),
        ("bare", ["has no hptune", " -m pip install ", "--command"]),
    ],
)
def test_a_python_that_cannot_run_trials_is_refused(
    tmp_path: Path, python: str, words: list[str]
) -> None:
    (tmp_path / "model.py").write_text("import no_module_of_this_environment\n")
    if python == "bare":
        venv.create(tmp_path / "bare")
        python = str(tmp_path / "bare" / "bin" / "python")
    with pytest.raises(UsageError) as refused:
        check_source(tmp_path / "model.py", has_entry=True, python=python)
    for word in words:
        assert word in refused.value.message


def test_a_file_that_is_gone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=r"model\.py cannot be read: No such file"):
        check_source(tmp_path / "model.py", has_entry=False)
