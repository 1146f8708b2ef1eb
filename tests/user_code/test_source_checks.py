"""What the source of a model file shows before it runs."""

from __future__ import annotations

import venv
from pathlib import Path

import pytest

from hptune.errors import ModelFileError, UsageError
from hptune.user_code.model_file import check_path
from hptune.user_code.source_checks import check_source


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("X = 1\ndef f(:", "model.py:2: SyntaxError: invalid syntax: def f(:"),
        ("X = 1\nreturn X", "model.py:2: SyntaxError: 'return' outside function"),
        (f"X = a{'.b' * 200_000}", "nested too deeply for Python; divide it"),
        (f"X = {'-' * 200_000}1", "nested too deeply for Python; divide it"),
    ],
    ids=["syntax", "place", "recursion", "parser's memory"],
)
def test_what_cannot_work_is_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "model.py").write_text(text)
    with pytest.raises(ModelFileError) as refused:
        check_source(tmp_path / "model.py", has_entry=False)
    assert words in refused.value.message


@pytest.mark.parametrize(
    ("name", "text", "is_refused"),
    [
        ("keras.py", "import numpy, keras\n", True),
        ("keras.py", "def f():\n    from keras.layers import Dense\n", True),
        ("keras.py", "from .keras import Dense\nimport my.keras\n", False),
        ("keras_model.py", "import keras\n", False),
        ("keras.py", "if __name__ == '__main__':\n    import keras\n    keras.main()\n", False),
        ("keras.py", "RATE = 1\ndef f():\n    from keras import RATE\n", False),
        ("keras.py", "RATE = 1\ndef f():\n    from keras import RATE, Model\n", True),
    ],
)
def test_a_file_with_the_name_of_what_it_imports_is_refused(
    tmp_path: Path, name: str, text: str, *, is_refused: bool
) -> None:
    (tmp_path / name).write_text(text)
    if not is_refused:
        check_source(tmp_path / name, has_entry=False)
        return
    with pytest.raises(ModelFileError, match=r"keras\.py imports keras, .* to my_keras\.py"):
        check_source(tmp_path / name, has_entry=False)


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


def test_another_python_may_read_what_this_one_cannot(tmp_path: Path) -> None:
    model = tmp_path / "model.py"
    model.write_text("of a later version: (\n")
    with pytest.raises(ModelFileError, match="SyntaxError"):
        check_path(model)
    assert check_path(model, "/later/python").path == str(model)
    with pytest.raises(UsageError, match="--python is /later/python, which cannot be run"):
        check_source(model, has_entry=False, python="/later/python")
    model.unlink()
    with pytest.raises(ModelFileError, match="there is no file"):
        check_path(model, "/later/python")


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "model.py").symlink_to("moved.py")
    with pytest.raises(ModelFileError, match=r"is a link to moved\.py, which is not there"):
        check_path(tmp_path / "model.py")
