"""Files that another user may have written: none is unpickled."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest

from hptune.errors import UsageError
from hptune.files.ownership import check_loadable
from hptune.training.resume.checkpoint import Checkpoints
from hptune.user_code import pickling
from hptune.user_code.model_file import load
from hptune.user_code.pickling import StoredData
from hptune.user_code.source import ObjectiveSource, SourceKind
from planted import Planted

NOBODY = 65534


def open_to_all(path: Path) -> None:
    """Let all users enter the folders above a path, as in /tmp."""
    for folder in path.parents:
        if folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o011 != 0o011:
            folder.chmod(folder.stat().st_mode | 0o055)


def test_a_checkpoint_that_others_may_write_is_not_read(tmp_path: Path) -> None:
    checkpoints, mark = Checkpoints(tmp_path), tmp_path / "mark"
    before = os.umask(0)
    try:
        checkpoints.write(1, "ours")
        assert (tmp_path / "resume" / "1.ckpt").stat().st_mode & 0o022 == 0
        checkpoints.write(2, Planted(mark))
    finally:
        os.umask(before)
    planted = tmp_path / "resume" / "2.ckpt"
    planted.chmod(0o666)
    open_to_all(planted)
    assert checkpoints.newest() == (1, "ours")
    assert not mark.exists()
    if os.getuid() == 0:
        planted.chmod(0o600)
        os.chown(planted, NOBODY, NOBODY)
        assert checkpoints.newest() == (1, "ours")
        os.chown(planted, 0, 0)
    # Nobody else can have reached it here.
    planted.chmod(0o666)
    planted.parent.chmod(0o700)
    assert checkpoints.newest() == (2, None)
    assert mark.exists()


def test_a_link_in_a_private_directory_keeps_nobody_out(tmp_path: Path) -> None:
    mark, shared, private = tmp_path / "mark", tmp_path / "shared", tmp_path / "private"
    shared.mkdir()
    private.mkdir(mode=0o700)
    code = shared / "objective.pkl"
    code.write_bytes(pickle.dumps(Planted(mark)))
    code.chmod(0o666)
    open_to_all(code)
    (private / "scratch").symlink_to(shared)
    with pytest.raises(UsageError, match="every user of this machine may write to"):
        load(ObjectiveSource(SourceKind.PICKLE, str(private / "scratch" / code.name)))
    assert not mark.exists()


def test_code_and_data_that_others_may_write_are_not_read(tmp_path: Path) -> None:
    mark, code, data = tmp_path / "mark", tmp_path / "objective.pkl", tmp_path / "data.joblib"
    for path in (code, data):
        path.write_bytes(pickle.dumps(Planted(mark)))
        path.chmod(0o606)
    open_to_all(code)
    with pytest.raises(UsageError, match=r"every user of this machine may write to .*objective"):
        load(ObjectiveSource(SourceKind.PICKLE, str(code)))
    with pytest.raises(UsageError, match=r"may write to .*data.joblib.* `chmod go-w"):
        StoredData(data)()
    assert not mark.exists()


def test_data_that_are_replaced_after_the_check_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, path = tmp_path / "mark", tmp_path / "data.joblib"
    data = StoredData.store((np.arange(3), None), path)

    def check_and_replace(file: IO[Any]) -> None:
        check_loadable(file)
        (tmp_path / "planted").write_bytes(pickle.dumps(Planted(mark)))
        (tmp_path / "planted").replace(path)

    monkeypatch.setattr(pickling, "check_loadable", check_and_replace)
    array, nothing = data()
    assert (array.tolist(), nothing, mark.exists()) == ([0, 1, 2], None, False)
