"""One file in pieces: whole and the same at the receiver, or absent."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hptune.worker.transport.files import (
    INCOMING,
    FileChanged,
    FileState,
    Incoming,
    Piece,
    RefusedPath,
    checked,
    checked_of_trial,
    files_below,
    make_link,
    read_piece,
    remove,
    state_of,
    write_log,
)

PATH = "trials/3/checkpoint/model.bin"


def written(root: Path, path: str, contents: bytes = b"weights") -> FileState:
    """Write a file, and return its state."""
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(contents)
    state = state_of(root, path)
    assert state is not None
    return state


@pytest.fixture
def sender(tmp_path: Path) -> Path:
    (tmp_path / "sender").mkdir()
    return tmp_path / "sender"


@pytest.fixture
def receiver(tmp_path: Path) -> Path:
    (tmp_path / "receiver").mkdir()
    return tmp_path / "receiver"


def files_in(root: Path) -> list[str]:
    return sorted(str(each.relative_to(root)) for each in root.rglob("*") if not each.is_dir())


@settings(max_examples=40, deadline=None)
@given(contents=st.binary(max_size=3000), size=st.integers(1, 1000))
def test_a_file_arrives_as_it_was_in_pieces_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, contents: bytes, size: int
) -> None:
    root, other = tmp_path_factory.mktemp("from"), tmp_path_factory.mktemp("to")
    state = written(root, PATH, contents)
    incoming = Incoming(other, state)
    while True:
        incoming.add(read_piece(root, state, incoming.received_bytes, size=size))
        assert not (other / PATH).exists(), "it has its name before it is whole"
        if incoming.is_complete:
            break
    incoming.commit()
    assert (other / PATH).read_bytes() == contents
    assert (other / PATH).stat().st_mtime_ns == state.changed_ns
    assert not (other / PATH).stat().st_mode & 0o022, "others may write what is loaded as code"
    assert files_in(other) == [PATH]


def test_half_a_file_leaves_nothing_and_the_old_one_stays(sender: Path, receiver: Path) -> None:
    written(receiver, PATH, b"old")
    state = written(sender, PATH, b"x" * 10)
    incoming = Incoming(receiver, state)
    incoming.add(read_piece(sender, state, 0, size=4))
    with pytest.raises(ValueError, match="cut short"):
        incoming.commit()
    incoming.abort()
    assert files_in(receiver) == [PATH]
    assert (receiver / PATH).read_bytes() == b"old"


def test_damaged_and_surplus_pieces_are_refused(sender: Path, receiver: Path) -> None:
    state = written(sender, PATH, b"abc")
    piece = read_piece(sender, state, 0)
    damaged = replace(piece, contents=b"abd")
    incoming = Incoming(receiver, state)
    with pytest.raises(ValueError, match="damaged"):
        incoming.add(damaged)
    incoming.add(piece)
    with pytest.raises(ValueError, match="longer"):
        incoming.add(piece)
    incoming.abort()
    with pytest.raises(ValueError, match="damaged"):
        write_log(receiver, "trials/3/log.txt", damaged, at=0)


def test_a_file_that_changes_meanwhile_is_not_sent(sender: Path) -> None:
    state = written(sender, PATH, b"abc")
    (sender / "fresh").write_bytes(b"abc")
    os.utime(sender / "fresh", ns=(state.changed_ns, state.changed_ns))
    (sender / "fresh").replace(sender / PATH)  # the same to see, but another file
    with pytest.raises(FileChanged):
        read_piece(sender, state, 0)
    (sender / PATH).unlink()
    with pytest.raises(FileChanged):
        read_piece(sender, state, 0)


@pytest.mark.parametrize(
    "path",
    ["../a", "/etc/passwd", "trials/3/../4/x", "trials//3/x", "", ".", "trials/3/x\0", "a/" * 101],
)
def test_paths_that_lead_out_are_refused_everywhere(path: str, receiver: Path) -> None:
    state = FileState(path, 1, 0, 1)
    with pytest.raises(RefusedPath):
        checked(path)
    with pytest.raises(RefusedPath):
        read_piece(receiver, state, 0)
    with pytest.raises(RefusedPath):
        Incoming(receiver, state)
    with pytest.raises(RefusedPath):
        remove(receiver, path)
    with pytest.raises(RefusedPath):
        write_log(receiver, path, Piece.of(b""), at=0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(["..", ".", "", "trials", "3", "4", "a", "journal"]), max_size=6))
def test_what_a_trial_may_write_is_below_its_directory(parts: list[str]) -> None:
    path = "/".join(parts)
    below = os.path.normpath(path).startswith("trials/3/") and parts[2:3] != ["journal"]
    try:
        checked_of_trial(path, 3)
    except RefusedPath:
        return
    assert below


@pytest.mark.parametrize(
    "path", ["study.db", "trials/4/x", "trials/3", "trials/3/journal/1.events"]
)
def test_other_files_of_the_study_are_not_the_trials_own(path: str) -> None:
    with pytest.raises(RefusedPath):
        checked_of_trial(path, 3)


def test_links_on_the_way_lead_nowhere(sender: Path, receiver: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (receiver / "trials" / "3").mkdir(parents=True)
    (receiver / "trials" / "3" / "checkpoint").symlink_to(outside)
    state = written(sender, PATH)
    incoming = Incoming(receiver, state)
    incoming.add(read_piece(sender, state, 0))
    with pytest.raises(RefusedPath):
        incoming.commit()
    incoming.abort()
    with pytest.raises(RefusedPath):
        remove(receiver, PATH)
    log = receiver / "trials" / "3" / "log.txt"
    log.symlink_to(outside / "log")
    with pytest.raises(OSError, match="symbolic link"):
        write_log(receiver, "trials/3/log.txt", Piece.of(b"x"), at=0)
    assert files_in(outside) == []


def test_links_within_a_trials_folder_travel_and_no_others(sender: Path, receiver: Path) -> None:
    written(sender, "trials/3/checkpoint/step-9/model")
    folder = sender / "trials" / "3" / "checkpoint"
    (folder / "latest").symlink_to("step-9")
    (folder / "step-9" / "back").symlink_to("../step-9/model")
    for name, target in {"up": "../resume/5.ckpt", "far": "/etc/passwd"}.items():
        (folder / name).symlink_to(target)
    found = {each.path.rpartition("/")[2]: each for each in files_below(sender, "trials/3")}
    assert {*found} == {"model", "latest", "back"}
    make_link(receiver, found["latest"])
    assert str((receiver / found["latest"].path).readlink()) == "step-9"
    for target in ("/etc/passwd", "../../4/model", "../../../study.db"):
        with pytest.raises(RefusedPath):
            make_link(receiver, replace(found["latest"], link=target))


def test_a_removed_file_takes_its_empty_folders_with_it(receiver: Path) -> None:
    for path in (PATH, "trials/3/resume/5.ckpt", "trials/3/resume/6.ckpt"):
        written(receiver, path)
    for path in (PATH, PATH, "trials/3/resume/5.ckpt"):
        remove(receiver, path)
    assert files_in(receiver) == ["trials/3/resume/6.ckpt"]
    assert not (receiver / "trials/3/checkpoint").exists()
    assert not (receiver / INCOMING).exists()
