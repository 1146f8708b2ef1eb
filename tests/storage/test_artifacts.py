"""The directory `best/`: the best trial's model, and no other files."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from hptune.core.goals import Goals
from hptune.core.trial import Direction, Goal, Trial, TrialState
from hptune.errors import StorageFullError
from hptune.storage.artifacts import StudyFiles
from hptune.storage.directory import StudyDirectory

GOALS = Goals((Goal("val_loss", Direction.MIN),))
TWO = Goals((Goal("val_loss", Direction.MIN), Goal("other", Direction.MIN)))


def trial(directory: StudyDirectory, number: int, *files: str, nan: bool = False) -> Trial:
    for name in files:
        path = directory.trial(number) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"of trial {number}")
    metrics = {"val_loss": 0.5, "other": float("nan") if nan else 1.0}
    return Trial(number, {"x": 1}, "random", TrialState.COMPLETE, 0.5, 3, metrics)


def kept(directory: StudyDirectory) -> dict[str, str]:
    found = {
        f"{at}/{name}".removeprefix("./"): Path(directory.best, at, name).read_text()
        for at, names in (
            (os.path.relpath(at, directory.best), names)
            for at, _, names in os.walk(directory.best, followlinks=True)
        )
        for name in names
        if not at.rpartition("/")[-1].startswith(".checkpoint")
        and (name != "best.json" or at == ".")
    }
    assert json.loads(found.pop("best.json"))["metric"] == "val_loss"
    return found


KINDS = ["model.keras", "model.weights.h5", "checkpoint/weights.pt"]


@pytest.mark.parametrize("first", KINDS)
@pytest.mark.parametrize("then", KINDS)
def test_a_better_trial_takes_the_place(directory: StudyDirectory, first: str, then: str) -> None:
    files = StudyFiles(directory, GOALS)
    files.keep_best([trial(directory, 0, first)])
    assert kept(directory) == {first: "of trial 0"}
    files.keep_best([trial(directory, 1, then)])
    assert kept(directory) == {then: "of trial 1"}
    assert files.best_number() == 1
    assert files.model_path() == directory.best / Path(then).parts[0]


@pytest.mark.parametrize("first", KINDS)
def test_a_better_trial_without_a_model_leaves_no_others(
    directory: StudyDirectory, first: str
) -> None:
    files = StudyFiles(directory, GOALS)
    files.keep_best([trial(directory, 0, first)])
    files.keep_best([trial(directory, 1)])
    assert (kept(directory), files.model_path()) == ({}, None)


def test_nothing_half_put_is_left_of_a_front(directory: StudyDirectory) -> None:
    goals = Goals((Goal("val_loss", Direction.MIN), Goal("other", Direction.MIN)))
    files = StudyFiles(directory, goals)
    for _ in range(2):
        files.keep_best([trial(directory, 0, "model.keras"), trial(directory, 1, "model.keras")])
    assert not [*directory.best.rglob("*.new")]


def test_a_checkpoint_is_whole_at_any_instant(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any instant there is one trial's whole checkpoint, and at the end nothing else."""
    files = StudyFiles(directory, GOALS)
    names = [f"checkpoint/{part}" for part in "abc"]
    files.keep_best([trial(directory, 0, *names)])
    seen: set[str] = set()

    def look(*_: object) -> None:
        found = {(directory.best / name).read_text() for name in names}
        assert len(found) == 1, found
        seen.update(found)

    def watched(module: object, name: str) -> None:
        real = getattr(module, name)

        def call(*given: object, **named: object) -> object:
            look()
            done = real(*given, **named)
            look()
            return done

        monkeypatch.setattr(module, name, call)

    with monkeypatch.context():
        for module, name in ((shutil, "copyfileobj"), (shutil, "rmtree"), (os, "symlink"),
                             (Path, "replace"), (Path, "unlink"), (Path, "rename")):  # fmt: skip
            watched(module, name)
        for number in (1, 2, 3):
            files.keep_best([trial(directory, number, *names)])
        monkeypatch.undo()
    assert seen == {f"of trial {number}" for number in range(4)}
    assert len([*directory.best.glob(".checkpoint-*")]) == 1
    files.keep_best([trial(directory, 4, "model.keras")])
    assert sorted(path.name for path in directory.best.iterdir()) == ["best.json", "model.keras"]


def test_a_checkpoint_replaces_one_from_when_no_link_could_be_made(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = StudyFiles(directory, GOALS)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    with monkeypatch.context() as full:
        full.setattr(Path, "symlink_to", refuse)
        files.keep_best([trial(directory, 0, "checkpoint/weights.pt")])
    assert not (directory.best / "checkpoint").is_symlink()
    files.keep_best([trial(directory, 1, "checkpoint/weights.pt")])
    assert kept(directory) == {"checkpoint/weights.pt": "of trial 1"}


def test_a_checkpoint_that_somebody_reads_on_nfs_is_replaced(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There, a removed file that is open keeps its directory from being empty."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))

    for goals in (GOALS, TWO):
        files = StudyFiles(directory, goals)
        with monkeypatch.context() as reading:
            reading.setattr(os, "rmdir", refuse)
            for number in range(4):
                files.keep_best([trial(directory, number, "checkpoint/weights.pt")])
                assert kept(directory)["checkpoint/weights.pt"] == f"of trial {number}"
                assert [*files.models()] == [number]
        files.keep_best([trial(directory, 4, "checkpoint/weights.pt")])
        assert [*files.models()] == [4]
        assert len([*directory.best.glob(".checkpoint-*")]) == 1


def test_no_room_for_a_checkpoint(directory: StudyDirectory) -> None:
    files = StudyFiles(directory, GOALS)
    files.keep_best([trial(directory, 0, "checkpoint/weights.pt")])
    better = trial(directory, 1, "checkpoint/weights.pt")
    (directory.trial(1) / "checkpoint" / "weights.pt").write_bytes(bytes(100_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(StorageFullError, match="cannot be used: File too large"):
            files.keep_best([better])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (files.best_number(), kept(directory)["checkpoint/weights.pt"]) == (0, "of trial 0")
    files.keep_best([better])
    assert files.best_number() == 1


@pytest.mark.parametrize("links", [True, False], ids=["hard links", "no hard links"])
def test_a_model_is_on_disk_before_the_trials_own_copy_goes(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    own, synced = directory.trial(0) / "model.keras", list[tuple[int, bool]]()

    def refuse(*_: object) -> None:
        raise PermissionError

    def sync(file: int) -> None:
        synced.append((os.fstat(file).st_ino, own.exists()))

    monkeypatch.setattr(os, "fsync", sync)
    if not links:
        monkeypatch.setattr(os, "link", refuse)
    StudyFiles(directory, GOALS).keep_best([trial(directory, 0, "model.keras")])
    assert not own.exists()
    assert ((directory.best / "model.keras").stat().st_ino, True) in synced


def test_no_room_for_a_model_leaves_no_part_of_it(
    directory: StudyDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refuse)
    best = trial(directory, 0, "model.keras")
    (directory.trial(0) / "model.keras").write_bytes(bytes(100_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(StorageFullError):
            StudyFiles(directory, GOALS).keep_best([best])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not [*directory.best.iterdir()]


@pytest.mark.parametrize("kind", KINDS)
def test_it_may_be_said_again_after_the_files_were_moved(
    directory: StudyDirectory, kind: str
) -> None:
    files = StudyFiles(directory, GOALS)
    best = trial(directory, 4, kind)
    for _ in range(2):
        files.keep_best([best])
        assert kept(directory) == {kind: "of trial 4"}
    files.discard(4)
    files.keep_best([best])
    assert kept(directory) == {kind: "of trial 4"}


def test_the_summary_is_json_whatever_was_measured(directory: StudyDirectory) -> None:
    StudyFiles(directory, GOALS).keep_best([trial(directory, 0, nan=True)])
    text = (directory.best / "best.json").read_text()
    assert "NaN" not in text
    assert json.loads(text)["metrics"] == {"val_loss": 0.5, "other": None}


def test_the_sweep_takes_what_a_dead_master_left(directory: StudyDirectory) -> None:
    for number in (0, 1, 10):
        trial(directory, number, *KINDS, "log.txt")
    (directory.trials / "²" / "resume").mkdir(parents=True)  # a digit, and no number
    StudyFiles(directory, GOALS).sweep({1, 10})
    left = {path.relative_to(directory.trials) for path in directory.trials.rglob("*.*")}
    whole = {Path("0") / name for name in (*KINDS, "log.txt")}
    assert left == whole | {Path("1/log.txt"), Path("10/log.txt")}


def test_odd_files_of_a_trial_end_no_study(
    directory: StudyDirectory, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = StudyFiles(directory, GOALS)
    best = trial(directory, 0, "checkpoint/weights.pt", "checkpoint/sub/more.pt")
    folder = directory.trial(0) / "checkpoint"
    (folder / "dangling").symlink_to("/nonexistent")
    (folder / "latest").symlink_to("weights.pt")
    (folder / "system").symlink_to("/usr/lib", target_is_directory=True)
    os.mkfifo(folder / "pipe")
    os.mkfifo(directory.trial(0) / "model.keras")
    monkeypatch.chdir(folder)  # the path of a socket must be short
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
    program = folder / "run.sh"
    program.write_text("exit")
    program.chmod(0o700)
    _make_directories(folder, 1200)  # more than Python's limit of recursion

    files.keep_best([best])
    copy = directory.best / "checkpoint"
    assert (copy / "weights.pt").read_text() == (copy / "latest").read_text() == "of trial 0"
    assert (copy / "sub" / "more.pt").is_file()
    assert (copy / "run.sh").stat().st_mode & 0o100
    links = {path.name: str(path.readlink()) for path in copy.iterdir() if path.is_symlink()}
    assert links == {"dangling": "/nonexistent", "latest": "weights.pt", "system": "/usr/lib"}
    assert not {"pipe", "socket"} & {path.name for path in copy.iterdir()}
    assert files.model_path() == copy
    assert "3 entries are not kept in best/" in caplog.text

    files.discard(0)
    outside = trial(directory, 1)
    shutil.rmtree(directory.trial(1), ignore_errors=True)
    directory.trial(1).mkdir()
    (directory.trial(1) / "checkpoint").symlink_to("/usr/lib", target_is_directory=True)
    files.keep_best([replace(outside, params={"x": "\udc80"})])
    assert kept(directory) == {}
    assert json.loads((directory.best / "best.json").read_text())["hyperparameters"] == {
        "x": "\udc80"
    }
    subprocess.run(["rm", "-rf", folder], check=True)  # Python before 3.13 could not


def _make_directories(folder: Path, levels: int) -> None:
    """Make nested directories whose path is longer than the kernel accepts in one call."""
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(levels):
            Path("d").mkdir()
            os.chdir("d")
    finally:
        os.fchdir(here)
        os.close(here)


# --- several objectives -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_each_trial_of_the_front_has_a_shelf(directory: StudyDirectory, kind: str) -> None:
    files = StudyFiles(directory, TWO)
    one, two = trial(directory, 1, kind), trial(directory, 2, kind)
    for _ in range(2):  # it may be said again
        files.keep_best([one])
    files.keep_best([two, one])
    assert kept(directory) == {
        kind: "of trial 2",
        f"1/{kind}": "of trial 1",
        f"2/{kind}": "of trial 2",
    }
    assert files.best_number() == 2
    assert files.model_path() == directory.best / Path(kind).parts[0]
    assert files.model_path(1) == directory.best / "1" / Path(kind).parts[0]
    assert sorted(files.models()) == [1, 2]
    files.discard(2)
    files.keep_best([one])
    assert kept(directory) == {kind: "of trial 1", f"1/{kind}": "of trial 1"}
    assert files.model_path(2) is None


@pytest.mark.parametrize("kind", KINDS)
def test_what_an_attempt_leaves_that_trains_on_is_not_taken_for_the_old_result(
    directory: StudyDirectory, kind: str
) -> None:
    files = StudyFiles(directory, TWO)
    one, two = trial(directory, 1, kind), trial(directory, 2, kind)
    files.keep_best([one])
    (directory.trial(1) / kind).write_text("of one that trained on")
    files.keep_best([two, one])
    assert kept(directory)[f"1/{kind}"] == "of trial 1"
    better = replace(one, value=0.4, metrics={"val_loss": 0.4, "other": 1.0})
    files.keep_best([better, two])
    assert kept(directory)[f"1/{kind}"] == "of one that trained on"
    is_objectives_own = kind.startswith("checkpoint")
    assert (directory.trial(1) / kind).exists() == is_objectives_own
    # The best of all and the first of its shelf, it trains on once more.
    (directory.trial(1) / kind).write_text("the last")
    files.keep_best([replace(better, value=0.3, metrics={"val_loss": 0.3, "other": 1.0}), two])
    assert kept(directory) == {
        kind: "the last",
        f"1/{kind}": "the last",
        f"2/{kind}": "of trial 2",
    }
