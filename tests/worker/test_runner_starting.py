"""An attempt whose worker has not imported the framework yet."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import queue
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from attempt_orders import ATTEMPT, order_of
from hptune.core.attempt import AttemptId, Cause, Halt
from hptune.core.messages import AttemptEnded, AttemptStarted, Event
from hptune.worker.forkserver.channel import Channel
from hptune.worker.forkserver.client import ForkServer
from hptune.worker.orders import AttemptLimits
from hptune.worker.runner import AttemptRunner
from real_runs import wait_for

SLOW = """
import pathlib, time
pathlib.Path({began!r}).touch()
time.sleep(300)

def objective(hp, trial):
    return 1.0
"""

WAITS = """
import pathlib, time

def objective(hp, trial):
    while not pathlib.Path({done!r}).exists():
        time.sleep(0.05)
    return 1.0
"""


class Slow:
    """A runner whose file takes long to be imported, and the order for an attempt."""

    def __init__(self, folder: Path) -> None:
        self.began, file = folder / "began", folder / "model.py"
        file.write_text(SLOW.format(began=str(self.began)))
        self.order = order_of(file)
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.runner = AttemptRunner(self.order.brief.source, self.events.put)

    def start(self) -> None:
        """Have the runner start the attempt, and return when it waits for the import."""
        self.runner.start(self.order)
        wait_for(self.began.exists, "the import")

    def ends(self) -> None:
        """Wait until the runner waits no more for the import."""
        wait_for(
            lambda: not any(each.name.startswith("hptune-fork") for each in threading.enumerate()),
            "the end of the start",
        )


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    made = Slow(tmp_path)
    try:
        yield made
    finally:
        made.runner.close()


@pytest.fixture
def starting(tmp_path: Path) -> Iterator[Slow]:
    made = Slow(tmp_path)
    made.start()
    try:
        yield made
    finally:
        made.runner.close()
        made.ends()


def test_it_stops_at_once_and_ends_once(starting: Slow) -> None:
    starting.runner.stop(ATTEMPT, Halt.STOP)
    ended = starting.events.get(timeout=200)
    assert isinstance(ended, AttemptEnded)
    assert (ended.attempt, ended.ending.cause) == (ATTEMPT, Halt.STOP.cause)
    starting.runner.stop(ATTEMPT, Halt.RELEASE)
    starting.runner.close()
    starting.ends()
    assert starting.events.empty()


def test_a_runner_that_closes_does_not_wait_for_the_import(starting: Slow) -> None:
    closing = threading.Thread(target=starting.runner.close)
    closing.start()
    closing.join(60)
    assert not closing.is_alive()
    starting.ends()
    assert starting.events.empty()


def test_one_that_was_told_to_stop_before_is_not_begun(slow: Slow) -> None:
    """Orders may overtake each other; the runner then does not wait for the import either."""
    slow.runner.stop(ATTEMPT, Halt.RELEASE)
    slow.runner.start(slow.order)
    ended = slow.events.get(timeout=200)
    assert isinstance(ended, AttemptEnded)
    assert (ended.attempt, ended.ending.cause) == (ATTEMPT, Halt.RELEASE.cause)
    assert slow.events.empty()
    assert not slow.began.exists()


def test_an_order_to_stop_does_not_wait_for_the_file_system_of_the_journal(
    tmp_path: Path, warm: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, answers = threading.Event(), threading.Event()

    def hangs(*_: object) -> None:
        asked.set()
        assert answers.wait(200)

    monkeypatch.setattr("hptune.worker.runner.AttemptJournal", hangs)
    (tmp_path / "model.py").write_text(WAITS.format(done=str(tmp_path / "done")))
    order = order_of(tmp_path / "model.py")
    limits = AttemptLimits(master_grace_seconds=600.0)
    order = replace(order, brief=replace(order.brief, limits=limits))
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    runner = AttemptRunner(order.brief.source, events.put, fork_server_address=warm.address)
    with contextlib.closing(runner):
        runner.start(order)
        assert asked.wait(60)
        stopping = threading.Thread(target=runner.stop, args=(ATTEMPT,))
        stopping.start()
        try:
            ended = events.get(timeout=60)
        finally:
            answers.set()
            stopping.join(60)
        assert isinstance(ended, AttemptEnded)
        assert ended.ending.cause is Cause.STOPPED


def test_one_that_finds_no_free_descriptor_ends_alone(
    tmp_path: Path, warm: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, done = tmp_path / "model.py", tmp_path / "done"
    file.write_text(WAITS.format(done=str(done)))
    order = order_of(file)
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    runner = AttemptRunner(order.brief.source, events.put, fork_server_address=warm.address)
    monkeypatch.setattr("hptune.worker.runner.NO_FILES_SECONDS", 0.0)
    with contextlib.closing(runner):
        runner.start(order)
        assert isinstance(events.get(timeout=200), AttemptStarted)
        with monkeypatch.context() as full:
            full.setattr(Channel, "pair", no_more_files)
            runner.start(replace(order, start=replace(order.start, attempt=AttemptId(1, 0))))
            lost = events.get(timeout=200)
        assert isinstance(lost, AttemptEnded)
        assert (lost.attempt.trial, lost.ending.cause) == (1, Cause.WORKER_LOST)
        assert "Too many open files" in lost.ending.reason
        done.touch()
        while not isinstance(ended := events.get(timeout=200), AttemptEnded):
            pass
        assert (ended.attempt, ended.ending.cause) == (ATTEMPT, Cause.RETURNED)


def test_an_error_that_nobody_expects_ends_it(
    tmp_path: Path, warm: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text("def objective(hp, trial):\n    return 1.0\n")
    order = order_of(tmp_path / "model.py")
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def fails(*_: object) -> None:
        raise ValueError("what is this?")

    monkeypatch.setattr("hptune.worker.runner.Client.fork", fails)
    runner = AttemptRunner(order.brief.source, events.put, fork_server_address=warm.address)
    with contextlib.closing(runner):
        runner.start(order)
        ended = events.get(timeout=20)
    assert isinstance(ended, AttemptEnded)
    assert ended.ending.cause is Cause.WORKER_LOST
    assert "what is this?" in ended.ending.reason


def test_one_starts_when_others_have_closed_files(
    tmp_path: Path, warm: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "model.py").write_text("def objective(hp, trial):\n    return 1.0\n")
    order = order_of(tmp_path / "model.py")
    events: queue.SimpleQueue[Event] = queue.SimpleQueue()
    pair, tries = Channel.pair, itertools.count()

    def full_twice() -> tuple[Channel, Channel]:
        if next(tries) < 2:
            no_more_files()
        return pair()

    monkeypatch.setattr(Channel, "pair", full_twice)
    runner = AttemptRunner(order.brief.source, events.put, fork_server_address=warm.address)
    with contextlib.closing(runner):
        runner.start(order)
        while not isinstance(ended := events.get(timeout=200), AttemptEnded):
            pass
    assert ended.ending.cause is Cause.RETURNED


def no_more_files() -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
