"""An attempt whose worker has not imported the framework yet."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_runs import wait_for

from tuner.config.model_file import check_path
from tuner.core.goals import Goals
from tuner.core.messages import AttemptEnded, Event
from tuner.core.resources import Placement
from tuner.core.trial import AttemptId, Direction, Goal, Halt
from tuner.worker.orders import AttemptOrder, StudyBrief
from tuner.worker.runner import AttemptRunner

SLOW = """
import pathlib, time
pathlib.Path({began!r}).touch()
time.sleep(300)

def objective(hp, trial):
    return 1.0
"""
ATTEMPT = AttemptId(0, 0)


class Slow:
    """A runner whose file takes long to be imported, and the order for an attempt."""

    def __init__(self, folder: Path) -> None:
        self.began, file = folder / "began", folder / "model.py"
        file.write_text(SLOW.format(began=str(self.began)))
        source = check_path(file)
        brief = StudyBrief(
            name="test",
            directory=str(folder / "study"),
            working_directory=str(folder),
            source=source,
            goals=Goals((Goal("objective", Direction.MAX),)),
        )
        self.order = AttemptOrder(brief, ATTEMPT, {}, (), Placement("worker", (0,)), 7, ())
        self.events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self.runner = AttemptRunner(source, self.events.put)
        self.thread = threading.Thread(target=self.runner.start, args=(self.order,))

    def start(self) -> None:
        """Have the runner start the attempt, and return when it waits for the import."""
        self.thread.start()
        wait_for(self.began.exists, "the import")


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
        made.thread.join(10)
        assert not made.thread.is_alive()


def test_it_stops_at_once_and_ends_once(starting: Slow) -> None:
    starting.runner.stop(ATTEMPT, Halt.STOP)
    ended = starting.events.get(timeout=5)
    assert isinstance(ended, AttemptEnded)
    assert (ended.attempt, ended.ending.cause) == (ATTEMPT, Halt.STOP.cause)
    starting.runner.stop(ATTEMPT, Halt.RELEASE)
    starting.runner.close()
    starting.thread.join(10)
    assert starting.events.empty()


def test_a_runner_that_closes_does_not_wait_for_the_import(starting: Slow) -> None:
    closing = threading.Thread(target=starting.runner.close)
    closing.start()
    closing.join(10)
    assert not closing.is_alive()
    starting.thread.join(10)
    assert starting.events.empty()


def test_one_that_was_told_to_stop_before_is_not_begun(slow: Slow) -> None:
    """Orders may overtake each other; the runner then does not wait for the import either."""
    slow.runner.stop(ATTEMPT, Halt.RELEASE)
    slow.runner.start(slow.order)
    ended = slow.events.get(timeout=5)
    assert isinstance(ended, AttemptEnded)
    assert (ended.attempt, ended.ending.cause) == (ATTEMPT, Halt.RELEASE.cause)
    assert slow.events.empty()
    assert not slow.began.exists()
