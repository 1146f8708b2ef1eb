"""Files of workers as the master writes them: what it takes, refuses, and repeats."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path
from typing import Any

import pytest

from file_network import FIRST, LIMIT_BYTES, SECOND, Clock, Network, save, write
from hptune.executors import file_exchange
from hptune.worker.transport import file_requests, files, remote_study
from hptune.worker.transport.file_requests import FilesNotBrought
from hptune.worker.transport.files import INCOMING, PIECE_BYTES, FileState
from hptune.worker.transport.notices import Change, Changes, FilesChanged, FilesWanted
from hptune.worker.transport.remote_study import NotSent
from real_runs import wait_for


@pytest.mark.parametrize(
    ("trial", "path", "size"),
    [
        (3, "study.db", 1),
        (3, "trials/4/model.keras", 1),
        (3, "trials/3/../4/model.keras", 1),
        (3, "/etc/passwd", 1),
        (4, "trials/4/model.keras", 1),
        (3, "trials/3/model.keras", LIMIT_BYTES + 1),
    ],
)
def test_what_a_worker_may_not_write_is_not_even_read(
    network: Network, trial: int, path: str, size: int
) -> None:
    network.worker("one")
    network.begin("one", FIRST)
    change = Change(FileState(path, size, 0, 1))
    for notice in (
        FilesChanged("one", 99, trial, Changes((change,)), 1),
        FilesChanged("one", 99, trial, Changes((), (path,)), 1),
    ):
        if size > 1 and not notice.changes.changed:
            continue
        asyncio.run_coroutine_threadsafe(network.exchange.handle(notice), network.loop).result(10)
    assert "read" not in network.calls
    assert (network.root / "code" / "model.py").exists()


def test_a_worker_gets_no_files_of_a_trial_of_others(network: Network) -> None:
    write(network.trial / "resume" / "5.ckpt", b"x")
    network.worker("one")
    asked = network.exchange.handle(FilesWanted("one", 1, 3))
    asyncio.run_coroutine_threadsafe(asked, network.loop).result(10)
    assert network.calls == ["brought"]


def test_the_next_piece_is_read_while_one_is_written(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    network.before_call = lambda name: reads.append(name) if name == "read" else None
    add, most = files.Incoming.add, list[int]()

    def slow(incoming: files.Incoming, piece: files.Piece) -> None:
        written = incoming.received_bytes // PIECE_BYTES
        wait_for(lambda: len(reads) >= min(3, written + 2), "the next piece to be asked for")
        most.append(len(reads) - written)
        add(incoming, piece)

    monkeypatch.setattr(files.Incoming, "add", slow)
    network.worker("one")
    here = network.begin("one", FIRST)
    contents = os.urandom(2 * PIECE_BYTES + 1)
    save(here / "resume" / "5.ckpt", contents)
    assert network.finish("one", FIRST) is None
    assert (network.trial / "resume" / "5.ckpt").read_bytes() == contents
    assert max(most) == 2, "more than two pieces of a trial are in memory"


def test_a_sender_that_dies_in_the_middle_leaves_the_old_file(network: Network) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    save(here / "resume" / "5.ckpt", b"old")
    wait_for((network.trial / "resume" / "5.ckpt").exists, "the first checkpoint")
    reads = []

    def die(function: str) -> None:
        if function == "read":
            reads.append(function)
            if len(reads) >= 2:
                raise OSError(errno.ECONNRESET, "the worker is gone")

    network.before_call = die
    save(here / "resume" / "6.ckpt", os.urandom(2 * PIECE_BYTES + 9))
    wait_for(lambda: len(reads) >= 2, "the second piece")
    wait_for(lambda: not [*(network.root / INCOMING).iterdir()], "what was received to be gone")
    assert [each.name for each in (network.trial / "resume").iterdir()] == ["5.ckpt"]
    assert (network.trial / "resume" / "5.ckpt").read_bytes() == b"old"
    network.before_call = lambda _: None
    assert network.finish("one", FIRST) is None
    assert network.exchange._places._value == file_exchange._AT_ONCE, "a place is not given back"


def test_a_checkpoint_over_the_limit_stays_where_it_is_and_the_user_knows(
    network: Network,
) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    with (here / "model.keras").open("wb") as file:
        file.truncate(LIMIT_BYTES + 1)
    save(here / "resume" / "5.ckpt", b"small")
    assert network.finish("one", FIRST) is None
    assert [each.name for each in network.trial.iterdir()] == ["resume"]
    (line,) = [each for each in network.exchange.lines() if "model.keras" in each]
    assert "20 MB, more than --file-limit 20 MB" in line
    with (network.trial / "resume" / "6.ckpt").open("wb") as file:
        file.truncate(LIMIT_BYTES + 1)
    there = network.begin("one", SECOND)
    assert [each.name for each in (there / "resume").iterdir()] == ["5.ckpt"]
    assert any("6.ckpt" in each for each in network.exchange.lines())


def test_a_full_disk_is_told_apart_on_both_sides(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    network.worker("one")
    here = network.begin("one", FIRST)
    with monkeypatch.context() as patched:
        patched.setattr(files.Incoming, "add", full)
        write(here / "model.keras", b"x")
        assert network.finish("one", FIRST) == NotSent("No space left on device", is_full=True)
    write(network.trial / "resume" / "5.ckpt", b"x")
    with monkeypatch.context() as patched:
        patched.setattr(files.Incoming, "add", full)
        with pytest.raises(FilesNotBrought, match="No space left") as failed:
            network.begin("one", SECOND)
        assert failed.value.is_full
    assert (network.begin("one", SECOND) / "resume" / "5.ckpt").exists()


def test_a_file_that_nobody_may_read_holds_nothing_up(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    read = files.read_piece

    def forbidden(root: Path, state: FileState, offset: int) -> Any:
        if state.path.endswith("secret"):
            raise PermissionError(errno.EACCES, "no")
        return read(root, state, offset)

    monkeypatch.setattr(remote_study, "read_piece", forbidden)
    write(here / "checkpoint" / "secret", b"x")
    write(here / "model.keras", b"x")
    assert network.finish("one", FIRST) is None
    assert [each.name for each in network.trial.iterdir()] == ["model.keras"]


def test_a_file_that_changed_while_it_was_read_is_sent_in_the_end(network: Network) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    resume = here / "resume" / "5.ckpt"

    def change(function: str) -> None:
        if function == "read":
            write(resume, os.urandom(10))

    network.before_call = change
    write(resume, b"x")
    wait_for(lambda: network.calls.count("taken") >= 4, "some failures")
    started, calls = time.monotonic(), len(network.calls)
    wait_for(lambda: len(network.calls) >= calls + 8, "more failures")
    assert time.monotonic() - started > 0.1, "the master is asked again and again without a pause"
    network.before_call = lambda _: None
    assert network.finish("one", FIRST) is None
    assert len((network.trial / "resume" / "5.ckpt").read_bytes()) == 10


def test_a_part_of_a_log_is_written_once_though_the_answer_is_lost(
    network: Network, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_study, "LOG_SECONDS", 0.0)
    network.worker("one")
    write(network.trial / "log.txt", b"before\n")
    here = network.begin("one", FIRST)
    lost: list[str] = []

    def lose(function: str) -> None:
        if function == "taken" and len(lost) < 2:
            lost.append(function)
            clock.ahead += file_requests.SILENT_SECONDS
            raise OSError(errno.ECONNRESET, "the worker is gone")

    network.before_call = lose
    write(here / "log.txt", b"first\n")
    wait_for(lambda: lost, "an answer to be lost")
    write(here / "log.txt", b"first\nsecond\n")
    assert network.finish("one", FIRST) is None
    assert len(lost) == 2
    assert (network.trial / "log.txt").read_bytes() == b"before\nfirst\nsecond\n"
    here = network.begin("one", SECOND)
    write(here / "log.txt", b"third, which is long\n")
    wait_for(lambda: b"third" in (network.trial / "log.txt").read_bytes(), "the next attempt's log")
    write(here / "log.txt", b"third, cut\n")
    assert network.finish("one", SECOND) is None
    expected = b"before\nfirst\nsecond\nthird, cut\n"
    assert (network.trial / "log.txt").read_bytes() == expected


def test_a_file_that_cannot_be_written_holds_up_only_what_belongs_to_it(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = files.Incoming.commit

    def forbidden(incoming: files.Incoming) -> None:
        if incoming._state.path.endswith(("resume/6.ckpt", "checkpoint/data")):
            raise PermissionError(errno.EACCES, "no", incoming._state.path)
        commit(incoming)

    monkeypatch.setattr(files.Incoming, "commit", forbidden)
    network.worker("one")
    here = network.begin("one", FIRST)
    save(here / "resume" / "5.ckpt", b"x")
    wait_for((network.trial / "resume" / "5.ckpt").exists, "the first checkpoint")
    save(here / "resume" / "6.ckpt", b"x")
    (here / "resume" / "5.ckpt").unlink()
    for name in ("data", "index"):
        write(here / "checkpoint" / name, b"x")
    write(here / "model.keras", b"x")
    not_sent = network.finish("one", FIRST)
    assert not_sent == NotSent("Permission denied: trials/3/resume/6.ckpt")
    found = {str(each.relative_to(network.trial)) for each in network.trial.rglob("*.*")}
    assert found == {"resume/5.ckpt", "model.keras"}, "the last checkpoint is gone, say"
