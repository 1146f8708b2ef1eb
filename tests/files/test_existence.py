"""Whether a file is there, where that may not be found out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hptune.files.access import exists, is_file, is_folder, whole_path


def test_what_is_there(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    (link := tmp_path / "link").symlink_to(file)
    (circle := tmp_path / "circle").symlink_to(circle)
    absent = (tmp_path / "absent", file / "below", circle, Path("a\0b"))
    found = [(exists(each), is_file(each), is_folder(each)) for each in (tmp_path, file, link)]
    assert found == [(True, False, True), (True, True, False), (True, True, False)]
    assert not any(ask(each) for ask in (exists, is_file, is_folder) for each in absent)


@pytest.mark.parametrize("ask", [exists, is_file, is_folder])
def test_what_cannot_be_found_out_is_not_absent(ask: Callable[[Path], bool]) -> None:
    with pytest.raises(OSError, match="File name too long"):
        ask(Path("a" * 300))


def test_a_tilde_before_no_users_name_is_a_part_of_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert whole_path("~no user/a/../b") == tmp_path / "~no user/b"
