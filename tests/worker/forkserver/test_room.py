"""Whose fault it is that a trial cannot write to its directory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hptune.worker.forkserver.child import _is_to_blame


def test_a_trial_is_to_blame_if_only_its_own_directory_is_forbidden(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = tmp_path / "trials" / "0"
    assert not _is_to_blame(trial)  # it could not be created
    trial.mkdir(parents=True)
    assert _is_to_blame(trial)
    monkeypatch.setattr(os, "access", lambda path, _: path != trial.parent)
    assert not _is_to_blame(trial)
    monkeypatch.undo()
    monkeypatch.setattr(os, "geteuid", lambda: trial.stat().st_uid + 1)
    assert not _is_to_blame(trial)  # made by another user's run of the same study
