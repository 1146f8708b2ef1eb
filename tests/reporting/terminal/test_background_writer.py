"""A background writer whose output is not read."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from typing import TextIO

import pytest

from tuner.reporting.terminal.background_writer import BackgroundWriter

PIPE_BYTES = 65536
FILLER = "." * PIPE_BYTES + "\n"
"""Fills the pipe, so that what follows waits."""


class Pipe:
    """A writer to a pipe, which is not read until `read` is called."""

    def __init__(self, stream: TextIO, reader: TextIO, patience_seconds: float = 0.2) -> None:
        self.reader = reader
        self.writer = BackgroundWriter(
            stream, most_characters=100_000, patience_seconds=patience_seconds
        )

    def read(self, lines: int) -> list[str]:
        return [self.reader.readline().rstrip("\n") for _ in range(lines)]


@pytest.fixture
def pipe(request: pytest.FixtureRequest) -> Iterator[Pipe]:
    reads, writes = os.pipe()
    with os.fdopen(writes, "w") as stream, os.fdopen(reads) as reader:
        pipe = Pipe(stream, reader, *getattr(request, "param", ()))
        yield pipe
        assert pipe.writer.finish()


def test_text_that_nobody_reads_waits_and_comes_in_order(pipe: Pipe) -> None:
    lines = [f"line {number} " + "." * 1000 for number in range(90)]
    for line in lines:
        pipe.writer.write(line + "\n")
    assert not pipe.writer.finish()
    assert pipe.writer.is_behind
    assert pipe.read(90) == lines
    assert pipe.writer.finish()
    assert not pipe.writer.is_behind


def test_text_over_the_limit_is_dropped_and_counted(pipe: Pipe) -> None:
    pipe.writer.write(FILLER)
    assert not pipe.writer.finish()
    lines = ["." * 999] * 200
    for line in lines:
        pipe.writer.write(line + "\n")
    assert not pipe.writer.finish()
    _, *kept, count = pipe.read(102)
    assert kept == lines[:100]
    assert count == "(100 lines were dropped: they were not read in time)"


@pytest.mark.parametrize("pipe", [(1.5,)], indirect=True)
def test_a_slow_reader_is_waited_for_while_it_reads(pipe: Pipe) -> None:
    for _ in range(4):
        pipe.writer.write("." * 20_000 + "\n")
    got: list[str] = []

    def read_slowly() -> None:
        for _ in range(6):
            time.sleep(0.3)  # 1.8 s in all, which is more than the writer's patience
            got.append(os.read(pipe.reader.fileno(), 15_000).decode())

    reading = threading.Thread(target=read_slowly)
    reading.start()
    assert pipe.writer.finish()
    reading.join()
    assert sum(map(len, got)) > 80_000 - PIPE_BYTES


def test_errors_end_the_output_and_not_the_writer() -> None:
    reads, writes = os.pipe()
    os.close(reads)
    with os.fdopen(writes, "w") as stream:
        writer = BackgroundWriter(stream)
        for _ in range(3):
            writer.write("a line\n")
            assert writer.finish()
