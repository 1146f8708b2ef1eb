"""What has changed in a worker's copy of a trial's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from hptune.worker.transport.files import PIECE_BYTES
from hptune.worker.transport.local_study import LocalStudy
from hptune.worker.transport.notices import Changes


class Copy:
    """A copy with one trial, and a clock that goes on by a second with each look."""

    def __init__(self, path: Path, limit_bytes: int = 1000) -> None:
        self.now = 0.0
        self.study = LocalStudy(path, limit_bytes=limit_bytes, clock=lambda: self.now)
        self.study.begin(3)
        self.trial = path / "trials" / "3"

    def write(self, name: str, contents: bytes = b"x") -> None:
        (self.trial / name).parent.mkdir(parents=True, exist_ok=True)
        (self.trial / name).write_bytes(contents)

    def look(self, *, is_final: bool = False, takes: bool = True) -> list[str]:
        """Look, let the study have what was found, and return its names."""
        self.now += 1.0
        changes = self.study.look(3, is_final=is_final)
        if takes:
            self.take(changes)
        return _names(changes) + [f"-{path.removeprefix('trials/3/')}" for path in changes.gone]

    def take(self, changes: Changes) -> None:
        self.study.taken(
            3, changes, [*(each.state.path for each in changes.changed), *changes.gone]
        )


def _names(changes: Changes) -> list[str]:
    return [each.state.path.removeprefix("trials/3/") for each in changes.changed]


@pytest.fixture
def copy(tmp_path: Path) -> Copy:
    return Copy(tmp_path)


def test_a_checkpoint_is_seen_at_once_and_once(copy: Copy) -> None:
    copy.write("resume/5.ckpt")
    copy.write("resume/.0123.tmp")  # the next one is being written
    assert copy.look(takes=False) == ["resume/5.ckpt"]
    assert copy.look() == ["resume/5.ckpt"]
    assert copy.look() == []
    (copy.trial / "resume" / "5.ckpt").unlink()
    assert copy.look() == ["-resume/5.ckpt"]
    assert copy.look() == []


def test_a_file_of_the_objectives_own_is_taken_when_it_has_settled(copy: Copy) -> None:
    copy.write("checkpoint/a", b"1")
    assert copy.look() == []
    copy.write("checkpoint/a", b"12")
    assert copy.look() == []
    assert copy.look() == ["checkpoint/a"]
    copy.write("checkpoint/a", b"123")
    assert copy.look(is_final=True) == ["checkpoint/a"]
    copy.write("journal/1.events")
    assert copy.look(is_final=True) == []


def test_looks_at_the_same_time_do_not_settle_a_file(copy: Copy) -> None:
    copy.write("checkpoint/a", b"half of ")
    copy.write("gone")
    for _ in range(5):
        copy.now += 0.1
        assert not copy.study.look(3)
    (copy.trial / "gone").unlink()
    assert copy.look() == ["checkpoint/a"]
    assert not copy.study._trials[3].unsent_since, "what is gone is remembered"


def test_a_file_that_never_settles_is_taken_now_and_then(copy: Copy) -> None:
    found = []
    for second in range(62):
        copy.now = float(second)
        copy.write("checkpoint/a", b"1" * second)
        found += copy.look()
    assert found == ["checkpoint/a"]


def test_files_come_in_the_order_in_which_they_were_written(copy: Copy) -> None:
    for name in ("z", "m", "a"):
        copy.write(f"checkpoint/{name}")
    copy.look()
    assert copy.look() == [f"checkpoint/{name}" for name in "zma"]


def test_only_what_is_new_in_a_log_is_taken_a_piece_at_a_time(copy: Copy) -> None:
    copy.write("log.txt", b"a" * (PIECE_BYTES + 10))
    for expected in ((0, PIECE_BYTES), (PIECE_BYTES, PIECE_BYTES + 10)):
        (change,) = (changes := copy.study.look(3)).changed
        assert (change.offset, change.state.size_bytes) == expected
        copy.take(changes)
    assert copy.look() == []
    copy.write("log.txt", b"cut")
    (change,) = copy.study.look(3).changed
    assert (change.offset, change.state.size_bytes) == (0, 3)
    assert not copy.study.look(3, with_logs=False)


def test_what_was_brought_is_no_news(copy: Copy) -> None:
    copy.write("resume/5.ckpt")
    copy.study.brought(3)
    assert copy.look(is_final=True) == []
    (copy.trial / "resume" / "5.ckpt").unlink()
    assert copy.look() == ["-resume/5.ckpt"]


def test_what_is_too_large_is_named_once_and_left_out_whole(tmp_path: Path) -> None:
    copy = Copy(tmp_path, limit_bytes=10)
    copy.write("checkpoint/index", b"1")
    assert copy.look(is_final=True) == ["checkpoint/index"]
    copy.write("checkpoint/index", b"2")
    copy.write("checkpoint/data", b"x" * 10)
    copy.write("resume/5.ckpt", b"x" * 11)
    copy.write("resume/4.ckpt", b"x" * 10)
    changes = copy.study.look(3, is_final=True)
    assert _names(changes) == ["resume/4.ckpt"]
    assert {(each.what, each.size_bytes) for each in changes.left_out} == {
        ("trials/3/checkpoint", 11),
        ("trials/3/resume/5.ckpt", 11),
    }
    assert not copy.study.look(3, is_final=True).left_out
    (copy.trial / "checkpoint" / "index").unlink()
    (copy.trial / "checkpoint" / "data").write_bytes(b"x" * 12)
    assert not copy.study.look(3, is_final=True).gone, "half a checkpoint is none"
    assert copy.study.look(3, is_final=True).changed[0].state.path.endswith("4.ckpt")
