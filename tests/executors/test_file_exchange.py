"""Files between a master and workers that do not see its directory: whom each waits for."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from file_network import FIRST, SECOND, Clock, Network, save, write
from hptune.core.attempt import AttemptId
from hptune.executors import file_exchange
from hptune.worker.transport import file_requests, files, remote_study
from hptune.worker.transport.files import PIECE_BYTES
from hptune.worker.transport.notices import FileNotice
from hptune.worker.transport.remote_study import NotSent
from real_runs import wait_for


def test_a_trial_moves_from_worker_to_worker_with_its_files(network: Network) -> None:
    one, two = network.worker("one"), network.worker("two")
    for each in (one, two):
        each.fetch_code()
        assert (each.path / "code" / "model.py").read_text() == "x = 1"
    here = network.begin("one", FIRST)
    large = os.urandom(2 * PIECE_BYTES + 77)
    save(here / "resume" / "5.ckpt", large)
    wait_for((network.trial / "resume" / "5.ckpt").exists, "the checkpoint, while it trains")
    write(here / "log.txt", b"first\n")
    for number in range(30):
        write(here / "checkpoint" / "parts" / f"{number}", b"%d" % number)
    (here / "checkpoint" / "latest").symlink_to("parts/29")
    (here / "resume" / "5.ckpt").unlink()
    save(here / "resume" / "6.ckpt", large)
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
    assert network.calls[before:].count("read") == 1, "what was brought is sent back"


def test_a_worker_whose_trial_runs_elsewhere_by_now_changes_nothing(network: Network) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    network.running.clear()
    save(here / "resume" / "5.ckpt", b"late")
    not_sent = network.finish("one", FIRST)
    assert not_sent is not None
    assert "does not run there" in not_sent.reason
    assert not network.trial.exists()


def test_a_lost_notice_is_repeated_and_a_master_that_is_gone_ends_the_wait(
    network: Network, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[FileNotice] = []
    tell, is_gone = network.tell, threading.Event()

    def first_is_lost(notice: FileNotice) -> None:
        told.append(notice)
        if len(told) > 1:
            tell(notice)
        if len(told) == 1 or is_gone.is_set():
            clock.ahead += file_requests.SILENT_SECONDS

    monkeypatch.setattr(network, "tell", first_is_lost)
    one = network.worker("one")
    one.fetch_code()
    assert len(told) == 2
    here = network.begin("one", FIRST)
    network.exchange.close()
    is_gone.set()
    save(here / "resume" / "5.ckpt", b"x")
    not_sent = network.finish("one", FIRST)
    assert not_sent is not None
    assert "does not take them" in not_sent.reason
    here = network.begin("one", FIRST)
    save(here / "resume" / "5.ckpt", b"x")
    one.abandon(FIRST)
    assert network.finish("one", FIRST) == NotSent("its master is gone")


def test_ranks_on_one_worker_share_the_trials_files(network: Network) -> None:
    network.worker("one")
    other = AttemptId(3, 0, 1)
    here = network.begin("one", FIRST)
    assert network.begin("one", other) == here
    write(here / "log.rank1.txt", b"of rank 1")
    network.running.add(("one", 3))
    assert network.finish("one", other) is None
    network.running.add(("one", 3))
    assert here.exists(), "rank 0 still runs there"
    write(here / "model.keras", b"x")
    assert network.finish("one", FIRST) is None
    assert {each.name for each in network.trial.iterdir()} == {"log.rank1.txt", "model.keras"}


def test_many_files_are_named_in_several_notices(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_study, "_MOST_CHANGES", 4)
    network.worker("one")
    here = network.begin("one", FIRST)
    for number in range(10):
        save(here / "resume" / f"{number}.ckpt", b"x")
    wait_for((network.trial / "resume" / "9.ckpt").exists, "the last file")
    for number in range(9):
        (here / "resume" / f"{number}.ckpt").unlink()
    assert network.finish("one", FIRST) is None
    assert [each.name for each in (network.trial / "resume").iterdir()] == ["9.ckpt"]
    assert network.calls.count("taken") >= 6


def test_rank_0_ends_when_its_files_are_sent_though_other_ranks_run(network: Network) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    network.begin("one", AttemptId(3, 0, 1))
    write(here / "log.rank1.txt", b"x")
    write(here / "model.keras", b"x")
    assert network.finish("one", FIRST) is None
    assert (network.trial / "model.keras").exists()


def test_a_slow_master_keeps_its_workers_waiting(
    network: Network, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_exchange, "_AT_WORK_SECONDS", 0.05)
    network.worker("one")
    here = network.begin("one", FIRST)
    commit = files.Incoming.commit

    def has_said(words: int) -> bool:
        return network.calls.count("touch") >= words

    def slow(incoming: files.Incoming) -> None:
        for _ in range(3):
            before = network.calls.count("touch")
            clock.ahead += 0.75 * file_requests.SILENT_SECONDS
            # The second of them was sent after that, and has arrived when the third is sent.
            wait_for(partial(has_said, before + 3), "the master's word")
        commit(incoming)

    monkeypatch.setattr(files.Incoming, "commit", slow)
    save(here / "resume" / "5.ckpt", b"x")
    assert network.finish("one", FIRST) is None
    assert network.calls.count("read") == 1
    network.begin("one", SECOND)
    assert network.calls.count("put") == 1


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
            go_on.wait(60)
        commit(incoming)

    monkeypatch.setattr(files.Incoming, "commit", slow)
    save(here / "resume" / "5.ckpt", b"late")
    wait_for(begun.is_set, "the file")
    network.running.clear()
    found: list[Path] = []
    other = threading.Thread(target=lambda: found.append(network.begin("two", SECOND)))
    other.start()
    other.join(0.3)
    assert not found, "it began while a file of the attempt before was written"
    go_on.set()
    other.join(60)
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
    network.join("a", "node1")
    network.join("b", "node2", sees_directory=True)
    asyncio.run_coroutine_threadsafe(network.exchange.ping(), loop).result(10)
    network.joined.clear()
    asyncio.run_coroutine_threadsafe(later[0](), loop).result(10)
    network.exchange.close()
    asyncio.run_coroutine_threadsafe(later[1](), loop).result(10)
    monkeypatch.undo()
    assert called == [["a"]]
    assert len(later) == 2, "it goes on after the end of the study"


def test_a_worker_that_does_not_answer_is_named(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    network.worker("one")
    here = network.begin("one", FIRST)
    run = network.run

    def hang(function: Any, name: str, method: str, *arguments: Any, **options: Any) -> Any:
        hangs = method == "read"
        monkeypatch.setattr(file_exchange, "_CALL_SECONDS", 0.05 if hangs else 60.0)
        if hangs:
            return asyncio.Event().wait()
        return run(function, name, method, *arguments, **options)

    monkeypatch.setattr(network, "run", hang)
    write(here / "model.keras", b"x")
    assert network.finish("one", FIRST) == NotSent("one did not answer within 0.05 s")


def test_the_way_of_the_files_is_told_once_and_when_it_changes(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange, now = network.exchange, [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    said: list[str] = []

    def later() -> list[str]:
        now[0] += 5.0
        return [*exchange.lines(), *exchange.lines()]

    def told() -> list[str]:
        return later() + later()

    network.join("a", "node1", sees_directory=True)
    said += told()
    network.join("b", "node2")
    assert exchange.lines() == [], "others may come in the next moment"
    said += told()
    del network.joined["a"]
    network.join("c", "node3")
    said += told()
    assert said == [
        "files: shared directory",
        "files: shared directory; over the connection for 1 worker on node2",
        "files: over the connection (2 workers on node2, node3)",
    ]
