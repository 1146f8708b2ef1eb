"""Files between a master and workers that do not see its directory, without a network."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from real_runs import wait_for

from tuner.config.model_file import ObjectiveSource, SourceKind
from tuner.core.trial import AttemptId
from tuner.executors import file_exchange
from tuner.executors.file_exchange import FileExchange
from tuner.worker.dask.study_access import StudyAccess
from tuner.worker.transport import files, remote_study
from tuner.worker.transport.files import INCOMING, PIECE_BYTES, FileState
from tuner.worker.transport.notices import Change, FileNotice, FilesChanged, FilesWanted
from tuner.worker.transport.remote_study import FilesNotBrought, NotSent, RemoteStudy

FIRST, SECOND = AttemptId(3, 0), AttemptId(3, 1)
LIMIT_BYTES = 20_000_000


class Network:
    """A master's event loop, its exchange, and calls to the workers in it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "study"
        (self.root / "trials").mkdir(parents=True)
        (self.root / "code").mkdir()
        (self.root / "code" / "model.py").write_text("x = 1")
        self.folder = folder
        self.workers: dict[str, RemoteStudy] = {}
        self.running: set[tuple[str, int]] = set()
        self.calls: list[str] = []
        self.before_call: Callable[[str], None] = lambda _name: None
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        access = StudyAccess(
            str(self.root),
            "token",
            ObjectiveSource(SourceKind.FILE, "/elsewhere/model.py"),
            {"model.py": ""},
            ("code/model.py",),
            LIMIT_BYTES,
        )
        self.exchange = FileExchange(
            client=self, name="study", access=access, runs=lambda *key: key in self.running
        )

    async def run(
        self, function: Any, *arguments: Any, workers: list[str], **_: object
    ) -> dict[str, Any]:
        """As the method of Dask's client."""
        self.calls.append(function.__name__)
        self.before_call(function.__name__)
        plugin = SimpleNamespace(remote=self.workers[workers[0]])
        there = SimpleNamespace(plugins={"study": plugin})
        return {workers[0]: await function(*arguments, dask_worker=there)}

    def tell(self, notice: FileNotice) -> None:
        asyncio.run_coroutine_threadsafe(self.exchange.handle(notice), self.loop)

    def worker(self, name: str) -> RemoteStudy:
        path = self.folder / name
        path.mkdir()
        study = RemoteStudy(path, worker=name, limit_bytes=LIMIT_BYTES, tell=self.tell)
        self.workers[name] = study
        return study

    def begin(self, name: str, attempt: AttemptId) -> Path:
        """Begin an attempt on a worker; return its trial's directory there."""
        self.running.add((name, attempt.trial))
        self.workers[name].begin(attempt)
        return self.workers[name].path / "trials" / str(attempt.trial)

    def finish(self, name: str, attempt: AttemptId) -> NotSent | None:
        """End an attempt, and return what is not sent."""
        found: list[NotSent | None] = []
        self.workers[name].finish(attempt, found.append)
        wait_for(lambda: found, "the attempt's end", seconds=20)
        self.running.discard((name, attempt.trial))
        return found[0]

    @property
    def trial(self) -> Path:
        """The trial's directory at the master."""
        return self.root / "trials" / "3"

    def close(self) -> None:
        for each in self.workers.values():
            each.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()
        assert not (self.root / INCOMING).exists() or not [*(self.root / INCOMING).iterdir()]


@pytest.fixture
def network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Network]:
    monkeypatch.setattr(remote_study, "LOOK_SECONDS", 0.05)
    found = Network(tmp_path)
    yield found
    found.close()


def write(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)


def save(path: Path, contents: bytes) -> None:
    """Write a checkpoint, which is whole as soon as it has its name."""
    fresh = path.with_name(f".{path.name}.tmp")
    write(fresh, contents)
    fresh.replace(path)


def test_a_trial_moves_from_worker_to_worker_with_its_files(network: Network) -> None:
    one, two = network.worker("one"), network.worker("two")
    for each in (one, two):
        each.fetch_code()
        assert (each.path / "code" / "model.py").read_text() == "x = 1"
    here = network.begin("one", FIRST)
    large = os.urandom(2 * PIECE_BYTES + 77)
    write(here / "resume" / "5.ckpt", large)
    wait_for((network.trial / "resume" / "5.ckpt").exists, "the checkpoint, while it trains")
    write(here / "log.txt", b"first\n")
    for number in range(30):
        write(here / "checkpoint" / "parts" / f"{number}", b"%d" % number)
    (here / "checkpoint" / "latest").symlink_to("parts/29")
    (here / "resume" / "5.ckpt").unlink()
    write(here / "resume" / "6.ckpt", large)
    assert network.finish("one", FIRST) is None
    assert (network.trial / "log.txt").read_bytes() == b"first\n"
    assert [each.name for each in (network.trial / "resume").iterdir()] == ["6.ckpt"]
    assert not here.exists(), "the worker keeps files of a trial that is over"
    there = network.begin("two", SECOND)
    assert (there / "resume" / "6.ckpt").read_bytes() == large
    assert (there / "checkpoint" / "latest").read_bytes() == b"29"
    before = len(network.calls)
    write(there / "log.txt", b"second\n")
    assert network.finish("two", SECOND) is None
    assert (network.trial / "log.txt").read_bytes() == b"first\nsecond\n"
    assert network.calls[before:].count("read_files") == 1, "what was brought is sent back"


def test_a_worker_whose_trial_runs_elsewhere_by_now_changes_nothing(network: Network) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    network.running.clear()
    write(here / "resume" / "5.ckpt", b"late")
    not_sent = network.finish("one", FIRST)
    assert not_sent is not None
    assert "does not run there" in not_sent.reason
    assert not network.trial.exists()


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
        FilesChanged("one", 99, trial, (change,)),
        FilesChanged("one", 99, trial, (), (path,)),
    ):
        if size > 1 and not notice.changed:
            continue
        asyncio.run_coroutine_threadsafe(network.exchange.handle(notice), network.loop).result(10)
    assert "read_files" not in network.calls
    assert (network.root / "code" / "model.py").exists()


def test_a_worker_gets_no_files_of_a_trial_of_others(network: Network) -> None:
    write(network.trial / "resume" / "5.ckpt", b"x")
    network.worker("one")
    asked = network.exchange.handle(FilesWanted("one", 1, 3))
    asyncio.run_coroutine_threadsafe(asked, network.loop).result(10)
    assert network.calls == ["files_brought"]


def test_the_next_piece_is_read_while_one_is_written(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    network.before_call = lambda name: reads.append(name) if name == "read_files" else None
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
    write(here / "resume" / "5.ckpt", b"old")
    wait_for((network.trial / "resume" / "5.ckpt").exists, "the first checkpoint")
    reads = []

    def die(function: str) -> None:
        if function == "read_files":
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
    write(here / "resume" / "5.ckpt", b"small")
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


def test_a_lost_notice_is_repeated_and_a_master_that_is_gone_ends_the_wait(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_study, "SILENT_SECONDS", 0.2)
    one = network.worker("one")
    lost: list[FileNotice] = []
    tell = one._tell
    one._tell = lambda notice: tell(notice) if lost else lost.append(notice)
    one.fetch_code()
    assert len(lost) == 1
    here = network.begin("one", FIRST)
    network.exchange.close()
    write(here / "resume" / "5.ckpt", b"x")
    not_sent = network.finish("one", FIRST)
    assert not_sent is not None
    assert "does not take them" in not_sent.reason
    here = network.begin("one", FIRST)
    write(here / "resume" / "5.ckpt", b"x")
    one.abandon(FIRST)
    assert network.finish("one", FIRST) == NotSent("its master is gone")


def test_ranks_on_one_worker_share_the_trials_files(network: Network) -> None:
    network.worker("one")
    other = AttemptId(3, 0, 1)
    here = network.begin("one", FIRST)
    assert network.begin("one", other) == here
    write(here / "log.rank1.txt", b"of rank 1")
    assert network.workers["one"].is_used_by(other)
    network.running.add(("one", 3))
    assert network.finish("one", other) is None
    network.running.add(("one", 3))
    assert here.exists(), "rank 0 still runs there"
    write(here / "model.keras", b"x")
    assert network.finish("one", FIRST) is None
    assert {each.name for each in network.trial.iterdir()} == {"log.rank1.txt", "model.keras"}


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
        if function == "read_files":
            write(resume, os.urandom(10))

    network.before_call = change
    write(resume, b"x")
    wait_for(lambda: network.calls.count("files_taken") >= 4, "some failures")
    started, calls = time.monotonic(), len(network.calls)
    wait_for(lambda: len(network.calls) >= calls + 8, "more failures")
    assert time.monotonic() - started > 0.1, "the master is asked again and again without a pause"
    network.before_call = lambda _: None
    assert network.finish("one", FIRST) is None
    assert len((network.trial / "resume" / "5.ckpt").read_bytes()) == 10


def test_a_part_of_a_log_is_written_once_though_the_answer_is_lost(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_study, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(remote_study, "LOG_SECONDS", 0.0)
    network.worker("one")
    write(network.trial / "log.txt", b"before\n")
    here = network.begin("one", FIRST)
    lost: list[str] = []

    def lose(function: str) -> None:
        if function == "files_taken" and len(lost) < 2:
            lost.append(function)
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
    write(here / "resume" / "5.ckpt", b"x")
    wait_for((network.trial / "resume" / "5.ckpt").exists, "the first checkpoint")
    write(here / "resume" / "6.ckpt", b"x")
    (here / "resume" / "5.ckpt").unlink()
    for name in ("data", "index"):
        write(here / "checkpoint" / name, b"x")
    write(here / "model.keras", b"x")
    not_sent = network.finish("one", FIRST)
    assert not_sent == NotSent("Permission denied: trials/3/resume/6.ckpt")
    found = {str(each.relative_to(network.trial)) for each in network.trial.rglob("*.*")}
    assert found == {"resume/5.ckpt", "model.keras"}, "the last checkpoint is gone, say"


def test_many_files_are_named_in_several_notices(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_study, "_MOST_CHANGES", 4)
    network.worker("one")
    here = network.begin("one", FIRST)
    for number in range(10):
        write(here / "resume" / f"{number}.ckpt", b"x")
    wait_for((network.trial / "resume" / "9.ckpt").exists, "the last file")
    for number in range(9):
        (here / "resume" / f"{number}.ckpt").unlink()
    assert network.finish("one", FIRST) is None
    assert [each.name for each in (network.trial / "resume").iterdir()] == ["9.ckpt"]
    assert network.calls.count("files_taken") >= 6


def test_rank_0_ends_when_its_files_are_sent_though_other_ranks_run(network: Network) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    network.begin("one", AttemptId(3, 0, 1))
    write(here / "log.rank1.txt", b"x")
    write(here / "model.keras", b"x")
    assert network.finish("one", FIRST) is None
    assert (network.trial / "model.keras").exists()


def test_a_slow_master_keeps_its_workers_waiting(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_study, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(file_exchange, "_AT_WORK_SECONDS", 0.05)
    network.worker("one")
    here = network.begin("one", FIRST)
    commit = files.Incoming.commit

    def slow(incoming: files.Incoming) -> None:
        time.sleep(0.5)
        commit(incoming)

    monkeypatch.setattr(files.Incoming, "commit", slow)
    write(here / "resume" / "5.ckpt", b"x")
    assert network.finish("one", FIRST) is None
    assert network.calls.count("read_files") == 1
    network.begin("one", SECOND)
    assert network.calls.count("put_files") == 1


def test_the_next_attempt_waits_for_a_late_file_of_the_one_before(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.worker("one")
    network.worker("two")
    here = network.begin("one", FIRST)
    commit, begun, go_on = files.Incoming.commit, threading.Event(), threading.Event()

    def slow(incoming: files.Incoming) -> None:
        if incoming._root == network.root and not begun.is_set():
            begun.set()
            go_on.wait(20)
        commit(incoming)

    monkeypatch.setattr(files.Incoming, "commit", slow)
    write(here / "resume" / "5.ckpt", b"late")
    wait_for(begun.is_set, "the file")
    network.running.clear()
    found: list[Path] = []
    other = threading.Thread(target=lambda: found.append(network.begin("two", SECOND)))
    other.start()
    other.join(0.3)
    assert not found, "it began while a file of the attempt before was written"
    go_on.set()
    other.join(20)
    assert (found[0] / "resume" / "5.ckpt").read_bytes() == b"late"


def test_every_call_of_the_master_shows_that_it_lives(network: Network) -> None:
    one = network.worker("one")
    for call in (
        lambda: one.brought(1, ""),
        lambda: one.taken(1, [], None),
        lambda: one.read(1, []),
        lambda: one.put(1, []),
    ):
        time.sleep(0.02)
        before = one.silent_seconds
        call()
        assert one.silent_seconds < before


def test_a_worker_that_hangs_keeps_the_masters_word_from_no_other(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_exchange, "PING_SECONDS", 0.05)
    called: list[list[str]] = []

    async def hang(*_: object, workers: list[str], **__: object) -> None:
        called.append(workers)
        await asyncio.Event().wait()

    monkeypatch.setattr(network, "run", hang)
    later: list[Callable[[], Any]] = []
    loop = network.loop
    clients = SimpleNamespace(call_later=lambda _, ping: later.append(ping))
    monkeypatch.setattr(network, "loop", clients)
    for _ in range(2):
        network.exchange.joined("a", "node1", sees_directory=False)
        network.exchange.left("a")
    network.exchange.joined("a", "node1", sees_directory=False)
    assert len(later) == 1, "a worker that comes and goes starts a series of calls each time"
    asyncio.run_coroutine_threadsafe(later[0](), loop).result(10)
    monkeypatch.undo()
    assert called == [["a"]]
    assert len(later) == 2


def test_a_worker_that_does_not_answer_is_named(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_exchange, "_CALL_SECONDS", 0.05)
    network.worker("one")
    here = network.begin("one", FIRST)
    run = network.run

    async def hang(function: Any, *arguments: Any, **options: Any) -> dict[str, Any]:
        if function.__name__ == "read_files":
            await asyncio.Event().wait()
        return await run(function, *arguments, **options)

    monkeypatch.setattr(network, "run", hang)
    write(here / "model.keras", b"x")
    assert network.finish("one", FIRST) == NotSent("one did not answer within 0.05 s")


def test_the_way_of_the_files_is_told_once_and_when_it_changes(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, now = network.exchange, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    network.loop.call_later = lambda *_: None  # type: ignore[method-assign,assignment]
    said: list[str] = []

    def later() -> list[str]:
        now[0] += 5.0
        return [*exchange.lines()]

    exchange.joined("a", "node1", sees_directory=True)
    said += later() + later()
    exchange.joined("b", "node2", sees_directory=False)
    said += later() + later()
    exchange.left("a")
    exchange.joined("c", "node3", sees_directory=False)
    said += later()
    assert said == [
        "files: shared directory",
        "files: shared directory; over the connection for 1 worker on node2",
        "files: over the connection (2 workers on node2, node3)",
    ]
