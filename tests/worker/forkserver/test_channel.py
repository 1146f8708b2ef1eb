"""The channel between a runner and an attempt."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, TypeAlias

import pytest

from hptune.worker.forkserver.channel import Channel, NoFilesLeft, UnreadableMessage

Connections: TypeAlias = "tuple[Connection[Any, Any], Connection[Any, Any]]"


@pytest.fixture
def connections() -> Iterator[Connections]:
    one, other = Pipe()
    with one, other:
        yield one, other


@contextlib.contextmanager
def free_descriptors(count: int) -> Iterator[None]:
    """Let this process open at most this many files more, 0 or 1."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(60)
def test_an_end_is_sent_while_another_thread_receives(connections: Connections) -> None:
    ours, theirs = connections
    reading, writing = Channel.pair()
    answer = ThreadPoolExecutor().submit(ours.recv)  # ends with the connections
    with contextlib.closing(reading):
        writing.send_to(ours)
        writing.close()
        with contextlib.closing(Channel.receive(theirs)) as received:
            received.send("hello")
        theirs.send("answer")
        assert reading.recv() == "hello"
        assert answer.result(60) == "answer"


def test_an_end_that_finds_no_free_descriptor(connections: Connections) -> None:
    ours, theirs = connections
    for channel in Channel.pair():
        with free_descriptors(0):  # a sender needs none
            channel.send_to(ours)
        channel.close()
    with free_descriptors(0), pytest.raises(OSError, match="Too many open files"):
        Channel.receive(theirs)
    Channel.receive(theirs).close()
    ours.close()
    with pytest.raises(EOFError):
        Channel.receive(theirs)


def test_what_is_no_message_leaves_the_others_whole() -> None:
    reading, writing = Channel.pair()
    with contextlib.closing(reading), contextlib.closing(writing):
        writing.send("small")
        with socket.socket(fileno=writing.fileno()) as raw:
            raw.send(b"nothing")
            raw.send(b"")
            raw.detach()
        writing.send("large" * 100_000)
        assert reading.recv() == "small"
        with pytest.raises(UnreadableMessage):
            reading.recv()
        with pytest.raises(EOFError):
            reading.recv()
        assert reading.recv() == "large" * 100_000
        assert not reading.poll()


def test_messages_arrive_from_an_end_that_did_not_read_all() -> None:
    reading, writing = Channel.pair()
    with contextlib.closing(reading):
        reading.send("never read")
        writing.send("last")
        writing.close()
        assert reading.poll()
        assert reading.recv() == "last"
        with pytest.raises(EOFError):
            reading.recv()


def test_a_large_message_that_finds_no_free_descriptor_is_not_taken_for_the_trials_fault() -> None:
    reading, writing = Channel.pair()
    with contextlib.closing(reading), contextlib.closing(writing):
        writing.send("large" * 100_000)
        writing.send("small")
        with free_descriptors(0), pytest.raises(NoFilesLeft, match="can open no more files"):
            reading.recv()
        assert reading.recv() == "small"
