"""The study's copy of the user's code, and what has changed since."""

from __future__ import annotations

from pathlib import Path

import pytest

from hptune.user_code.code_copy import as_trained, keep_copy, keep_modules
from hptune.user_code.model_file import sha256
from hptune.user_code.pickling import write_pickle
from hptune.user_code.source import ObjectiveSource, SourceKind


@pytest.mark.parametrize("kind", [SourceKind.FILE, SourceKind.PICKLE])
@pytest.mark.parametrize("name", ["", "model.py", "nets.py"])
def test_code_that_changed_since_the_study_ran_is_named(
    tmp_path: Path, kind: SourceKind, name: str
) -> None:
    study, model, nets = tmp_path / "study", tmp_path / "model.py", tmp_path / "nets.py"
    study.mkdir()
    model.write_text("from nets import build_model\n")
    nets.write_text("def build_model(hp): ...\n")
    source = ObjectiveSource(kind, str(model))
    if kind is SourceKind.PICKLE:
        source = ObjectiveSource(kind, str(study / "objective.pkl"))
        write_pickle(Path(source.path), b"", digests={str(nets): sha256(nets)})
    else:
        keep_copy(source, study)
        keep_modules(source, study)
    if name:
        (tmp_path / name).write_text("from nets import build_model\nWIDE = True\n")
    used, warning = as_trained(source, study)
    copy = study / "code" / "model.py"
    expected = {
        (
            SourceKind.FILE,
            "model.py",
        ): f"{model} changed since the study ran; {copy} is used instead",
        (kind, "nets.py"): f"{nets} changed since the study ran; the model may not be the same",
    }
    assert warning == expected.get((kind, name), "")
    assert used.copy == (str(copy) if "is used" in warning else "")
