"""Whose fault it is that a trial cannot write to its directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hptune.core.attempt import Cause
from hptune.training.resume.checkpoint import NoRoom
from hptune.worker.forkserver.error_causes import Where, ending_of


def is_to_blame(directory: Path) -> bool:
    """Return whether the attempt's own code counts as the cause of a directory that is closed."""
    error = NoRoom("the model cannot be written")
    error.__cause__ = PermissionError("no")
    cause = ending_of(error, Where(directory, has_gpu=False, has_begun=True)).cause
    assert cause in (Cause.EXCEPTION, Cause.NO_ROOM)
    return cause is Cause.EXCEPTION


def test_a_trial_is_to_blame_if_only_its_own_directory_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = tmp_path / "trials" / "0"
    assert not is_to_blame(trial)  # it could not be created
    trial.mkdir(parents=True)
    assert is_to_blame(trial)
    monkeypatch.setattr(os, "access", lambda path, _: path != trial.parent)
    assert not is_to_blame(trial)
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: trial.stat().st_uid + 1)
    assert not is_to_blame(trial)  # made by another user's run of the same study
