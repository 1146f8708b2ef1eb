"""Private folders of processes that were killed."""

from __future__ import annotations

import os
from pathlib import Path

from hptune.worker.private_folder import create_folder


def test_a_folder_whose_process_died_before_it_wrote_its_name_is_removed(tmp_path: Path) -> None:
    nameless, young = tmp_path / "hptune-old", tmp_path / "hptune-young"
    for each in (nameless, young):
        each.mkdir(mode=0o700)
    os.utime(nameless, (0, 0))
    others = tmp_path / "hptune-others"
    others.mkdir(mode=0o755)
    os.utime(others, (0, 0))
    mine = create_folder(str(tmp_path))
    assert sorted(tmp_path.iterdir()) == sorted([young, others, mine])
    os.utime(mine, (0, 0))
    assert create_folder(str(tmp_path)) != mine
    assert mine.exists(), "its process runs"
