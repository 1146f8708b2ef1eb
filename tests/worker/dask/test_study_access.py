"""Files of a study that a worker elsewhere must see before it takes attempts."""

from __future__ import annotations

from pathlib import Path

import pytest

from hptune.storage.directory import StudyDirectory
from hptune.user_code.source import ObjectiveSource, SourceKind
from hptune.worker.dask import study_access
from hptune.worker.dask.study_access import (
    StudyAccess,
    StudyAccessError,
    check_access,
    prepare_access,
)


@pytest.fixture
def model(tmp_path: Path) -> ObjectiveSource:
    path = tmp_path / "model.py"
    path.write_text("def objective(hp, trial):\n    return 1.0\n")
    return ObjectiveSource(SourceKind.FILE, str(path))


def prepared(path: Path, source: ObjectiveSource) -> StudyAccess:
    """Return a study as its master prepares it for its workers."""
    directory = StudyDirectory(path / "study").create()
    with directory.acquire() as lock:
        access = prepare_access(directory.path, lock.owner.token, source)
        lease = (directory.path / "lease").read_text()
    (directory.path / "lease").write_text(lease)  # as long as the master lives
    return access


def test_the_model_file_itself_is_used_where_it_is_there(
    tmp_path: Path, model: ObjectiveSource
) -> None:
    assert check_access(prepared(tmp_path, model)) == model


def test_all_workers_train_on_the_backend_that_the_user_asked_for(
    tmp_path: Path, model: ObjectiveSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    access = prepared(tmp_path, ObjectiveSource(model.kind, model.path))
    monkeypatch.setenv("KERAS_BACKEND", "jax")  # as a worker may have
    assert check_access(access).backend == "torch"


def test_a_copy_is_used_where_the_model_file_is_missing_or_another_one(
    tmp_path: Path, model: ObjectiveSource
) -> None:
    access = prepared(tmp_path, model)
    text = Path(model.path).read_text()
    Path(model.path).write_text("an older one of the same name")
    found = check_access(access)
    assert found.path == str(tmp_path / "study" / "code" / "model.py")
    assert Path(found.path).read_text() == text
    Path(model.path).unlink()
    assert check_access(access) == found


def test_the_modules_beside_the_model_file_are_copied_with_it(
    tmp_path: Path, model: ObjectiveSource
) -> None:
    Path(model.path).write_text("import own.deep\nfrom helper import *\nimport json, absent\n")
    (tmp_path / "own").mkdir()
    for name, text in {
        "own/__init__.py": "",
        "own/deep.py": "from . import near\nfrom .near import x",
        "own/near.py": "import importlib\nimportlib.import_module('by_name')",
        "helper.py": "x = (",  # not Python: the trial's own error says so
        "by_name.py": "",
        "other.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    access = prepared(tmp_path, model)
    imported = {"own/__init__.py", "own/deep.py", "own/near.py", "helper.py", "by_name.py"}
    assert set(access.digests) == {"model.py", *imported}
    assert {*access.files} == {f"code/{name}" for name in access.digests}
    assert all((tmp_path / "study" / name).is_file() for name in access.files)
    assert check_access(access) == model
    (tmp_path / "own" / "near.py").write_text("another one")
    assert check_access(access) == access.source_in(tmp_path / "study")


def test_what_was_given_in_python_lies_in_the_study(tmp_path: Path) -> None:
    pickled = ObjectiveSource(SourceKind.PICKLE, str(tmp_path / "study" / "objective.pkl"))
    access = prepared(tmp_path, pickled)
    with pytest.raises(StudyAccessError, match=r"does not see .*objective\.pkl"):
        check_access(access)
    Path(pickled.path).touch()
    assert check_access(access) == pickled


def test_a_worker_that_does_not_see_the_study_is_told_why(
    tmp_path: Path, model: ObjectiveSource
) -> None:
    access = prepared(tmp_path, model)
    study = tmp_path / "study"
    (study / "lease").write_text("{}")
    with pytest.raises(StudyAccessError, match="is another directory there"):
        check_access(access)
    study.rename(tmp_path / "elsewhere")
    with pytest.raises(StudyAccessError, match="is no directory there"):
        check_access(access)


def test_a_worker_that_may_not_even_look_for_the_study_is_told_why(
    model: ObjectiveSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a user of another name below a home directory; here, a name is too long."""
    monkeypatch.setattr(study_access, "PATIENCE_SECONDS", 0.0)
    with pytest.raises(StudyAccessError, match=r"does not see the study: .*File name too long"):
        check_access(StudyAccess(f"/home/{300 * 'x'}/study", "token", model))


def test_a_copy_that_is_gone_as_well_is_told(tmp_path: Path, model: ObjectiveSource) -> None:
    access = prepared(tmp_path, model)
    for path in (access.source.path, access.source_in(Path(access.directory)).path):
        Path(path).unlink()
    with pytest.raises(StudyAccessError, match="sees neither"):
        check_access(access)
