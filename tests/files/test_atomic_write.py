"""Files that are replaced as a whole."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from hptune.errors import StorageFullError
from hptune.files.access import atomic_write


def test_atomic_write_replaces(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    atomic_write(path, b"old")
    atomic_write(path, b"new")
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_atomic_write_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metrics.json"
    atomic_write(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFullError, match=r"is full\. Free space there"):
        atomic_write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("number", [errno.ETIMEDOUT, errno.ESHUTDOWN, errno.ENOTCONN])
def test_a_file_server_that_does_not_answer_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def silent(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", silent)
    with pytest.raises(StorageFullError, match=f"does not answer .{os.strerror(number)}"):
        atomic_write(tmp_path / "metrics.json", b"new")
