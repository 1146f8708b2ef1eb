"""What writes for readers that do not read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from tuner.reporting.terminal.background_writer import InBackground
from tuner.reporting.terminal.plain import Lines


class Reader:
    """Lets one action through at a time, and keeps what was written."""

    def __init__(self) -> None:
        self.written: list[str] = []
        self._reads = threading.Semaphore(0)
        self.scribe = InBackground(
            lambda lost: self.written.append(f"{lost} lost"), most=3, patience_seconds=0.2
        )

    def write(self, word: str) -> None:
        self.scribe.write(lambda: self._put(word))

    def draw(self, word: str) -> None:
        self.scribe.draw(lambda: self._put(word))

    def read(self, count: int = 1) -> None:
        self._reads.release(count)

    def _put(self, word: str) -> None:
        self._reads.acquire()
        self.written.append(word)


@pytest.fixture
def reader() -> Iterator[Reader]:
    reader = Reader()
    yield reader
    reader.read(1000)
    assert reader.scribe.finish()


def test_what_stays_is_written_in_order_and_of_frames_only_the_newest(reader: Reader) -> None:
    reader.write("a")
    for number in range(1000):
        reader.draw(f"frame {number}")
    reader.write("b")
    assert not reader.scribe.finish()
    reader.read(100)
    assert reader.scribe.finish()
    assert reader.written == ["a", "b", "frame 999"]


def test_nobody_waits_for_a_reader_and_what_is_left_out_is_counted(reader: Reader) -> None:
    for number in range(10):
        reader.write(str(number))
    reader.read(100)
    assert reader.scribe.finish()
    # The first one leaves the queue before, while or after the others come: so there is room for
    # three, and for one more of them.
    *kept, lost = reader.written
    assert kept[:3] == ["0", "1", "2"]
    assert len(kept) in (3, 4)
    assert lost == f"{10 - len(kept)} lost"


def test_a_slow_reader_is_waited_for_as_long_as_anything_is_read(reader: Reader) -> None:
    for word in "abc":
        reader.write(word)
    timers = [threading.Timer(0.12 * (i + 1), reader.read) for i in range(3)]
    for timer in timers:
        timer.start()
    assert reader.scribe.finish()  # 0.36 s, which is more than its patience
    assert reader.written == ["a", "b", "c"]


def test_a_pipe_that_nobody_reads_gets_the_lines_when_somebody_does() -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream, os.fdopen(reads) as reader:
        lines = Lines(stream, patience_seconds=0.1)
        told = [f"line {number} " + "." * 1000 for number in range(200)]
        for line in told:
            lines.write(line)
        assert not lines.finish()
        assert [reader.readline().rstrip("\n") for _ in told] == told
        assert lines.finish()
