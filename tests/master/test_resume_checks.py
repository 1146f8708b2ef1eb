"""Changes that a resumed study refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.config.model_file import check_path
from tuner.config.settings import StudySettings
from tuner.errors import UsageError
from tuner.master.resume_checks import ResumeState, check_changes
from tuner.storage.directory import StudyDirectory


def check(tmp_path: Path, *, before: str | None, now: str | None, used_seconds: float) -> None:
    """Check a study that has run for a while, and whose timeout is changed."""
    model = tmp_path / "model.py"
    model.touch()
    new = StudySettings(source=check_path(model), working_directory=str(tmp_path))
    stored = new.changed({"timeout_seconds": before})
    facts = {"settings": stored.to_json()}
    directory = StudyDirectory(tmp_path / "study")
    state = ResumeState(directory, facts, (), active_seconds=used_seconds)
    check_changes(stored.changed({"timeout_seconds": now}), state)


@pytest.mark.parametrize(("before", "now"), [(None, "1h"), ("10m", "1h"), ("2h", "10m")])
def test_a_new_timeout_that_is_used_up_is_refused(
    tmp_path: Path, before: str | None, now: str
) -> None:
    with pytest.raises(UsageError, match="has run for 1h00m already, and --timeout is the total"):
        check(tmp_path, before=before, now=now, used_seconds=3600)


@pytest.mark.parametrize(
    ("before", "now"), [(None, None), ("10m", "61m"), ("10m", None), ("10m", "10m")]
)
def test_a_longer_or_unchanged_timeout_is_allowed(
    tmp_path: Path, before: str | None, now: str | None
) -> None:
    check(tmp_path, before=before, now=now, used_seconds=3600)
