"""A background writer whose output is not read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest

from hptune.reporting.terminal import background_writer
from hptune.reporting.terminal.background_writer import BackgroundWriter
from real_runs import wait_for

PIPE_BYTES = 65536
FILLER = "." * PIPE_BYTES + "\n"
"""Fills the pipe, so that what follows waits."""

SHORT_SECONDS = 0.2
LONG_SECONDS = 120.0
"""Patience with a writer that has a reader: its thread may get no processor for a while."""


class Pipe:
    """A writer to a pipe, which is not read until `read` is called."""

    def __init__(self, stream: TextIO, reader: TextIO) -> None:
        self.reader = reader
        self.writer = BackgroundWriter(stream, most_characters=100_000)

    def finish(self, *, patience_seconds: float) -> bool:
        self.writer._patience_seconds = patience_seconds
        return self.writer.finish()

    def wait_until_taken(self) -> None:
        """Wait until the writer's thread has taken all text that waits, to write it."""
        wait_for(lambda: not self.writer._waiting, "the thread that writes")

    def read(self, lines: int) -> list[str]:
        return [self.reader.readline().rstrip("\n") for _ in range(lines)]


class Clock:
    """Stands in for the module `time`; it shows what the test says."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream, os.fdopen(reads) as reader:
        pipe = Pipe(stream, reader)
        yield pipe
        assert pipe.finish(patience_seconds=LONG_SECONDS)


def test_text_that_nobody_reads_waits_and_comes_in_order(pipe: Pipe) -> None:
    lines = [f"line {number} " + "." * 1000 for number in range(90)]
    for line in lines:
        pipe.writer.write(line + "\n")
    assert not pipe.finish(patience_seconds=SHORT_SECONDS)
    assert pipe.writer.is_behind
    assert pipe.read(90) == lines
    assert pipe.finish(patience_seconds=LONG_SECONDS)
    assert not pipe.writer.is_behind


def test_text_over_the_limit_is_dropped_and_counted(pipe: Pipe) -> None:
    pipe.writer.write(FILLER)
    pipe.wait_until_taken()
    assert not pipe.finish(patience_seconds=SHORT_SECONDS)
    lines = ["." * 999] * 200
    for line in lines:
        pipe.writer.write(line + "\n")
    assert not pipe.finish(patience_seconds=SHORT_SECONDS)
    _, *kept, count = pipe.read(102)
    assert kept == lines[:100]
    assert count == "(100 lines were dropped: they were not read in time)"


def test_a_slow_reader_is_waited_for_while_it_reads(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(background_writer, "time", clock)
    for _ in range(4):
        pipe.writer.write("." * 20_000 + "\n")
    got: list[str] = []

    def read_slowly() -> None:
        for _ in range(6):  # 6 s in all, which is more than the writer's patience
            clock.now += 1.0
            got.append(os.read(pipe.reader.fileno(), 15_000).decode())
            wait_for(
                lambda: pipe.writer._progressed_at == clock.now or not pipe.writer.is_behind,
                "what goes into the place that was read",
            )

    reading = threading.Thread(target=read_slowly)
    reading.start()
    assert pipe.finish(patience_seconds=1.5)
    reading.join()
    assert sum(map(len, got)) > 80_000 - PIPE_BYTES


def test_a_stream_that_another_program_made_non_blocking_loses_nothing(pipe: Pipe) -> None:
    assert pipe.writer._file is not None
    os.set_blocking(pipe.writer._file, False)
    lines = ["." * 999] * 90
    for line in lines:
        pipe.writer.write(line + "\n")
    pipe.wait_until_taken()
    assert pipe.read(90) == lines


def test_errors_end_the_output_and_not_the_writer() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as stream:
        writer = BackgroundWriter(stream, patience_seconds=LONG_SECONDS)
        for _ in range(3):
            writer.write("a line\n")
            assert writer.finish()
