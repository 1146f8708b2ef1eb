"""The code and the data of a study, when others shall take their place."""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

import pytest

from hptune.errors import StudyError, UsageError
from hptune.storage.replacing import replacing
from stored_study import typical

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("when_stored", "within", "shown"),
    [
        (None, None, "new"),
        (None, StudyError("a node is gone"), "new"),
        (None, UsageError("another seed"), "old"),
        (FULL, None, "old"),
        (TypeError("cannot pickle a lock"), None, "old"),
        (KeyboardInterrupt(), None, "old"),
    ],
)
def test_a_study_keeps_its_code_if_it_cannot_have_the_new_one(
    tmp_path: Path, when_stored: BaseException | None, within: Exception | None, shown: str
) -> None:
    directory = typical(tmp_path / "study")
    code = directory.path / "code.pkl"
    code.write_text("old")

    def store() -> None:
        new = code.with_name("code.pkl.new")
        new.write_text("new")
        new.replace(code)
        if when_stored is not None:
            raise when_stored

    # The command that failed says why.
    with (
        contextlib.suppress(StudyError, UsageError, TypeError, KeyboardInterrupt),
        replacing(directory, [code.name], [], store),
    ):
        if within is not None:
            raise within
    assert code.read_text() == shown
    assert [each.name for each in directory.path.glob("code.pkl*")] == ["code.pkl"]
