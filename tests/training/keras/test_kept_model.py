"""Kept models that cannot be loaded."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from requirements import require

from tuner.config.model_file import ObjectiveSource, SourceKind
from tuner.errors import StudyError
from tuner.training.keras.kept_model import load_kept


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (None, "cannot be loaded: .*No such file"),
        ("def objective(hp, trial) 1", "cannot be loaded: .*expected ':'"),
        ("def objective(hp, trial): ...", "is no Keras model, but what objective.. stored"),
    ],
)
def test_files_that_need_the_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None, words: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "kept_model_file", None)
    file = tmp_path / "kept_model_file.py"
    if code is not None:
        file.write_text(code)
    source = ObjectiveSource(SourceKind.FILE, str(file))
    for name in ("model.weights.h5", "checkpoint"):
        with pytest.raises(StudyError, match=words):
            load_kept(tmp_path / name, source, (), {})


def test_a_damaged_model(tmp_path: Path) -> None:
    require("keras")
    model = tmp_path / "model.keras"
    model.write_bytes(b"damaged")
    with pytest.raises(StudyError, match="cannot be loaded"):
        load_kept(model, ObjectiveSource(SourceKind.FILE, str(tmp_path / "gone.py")), (), {})
