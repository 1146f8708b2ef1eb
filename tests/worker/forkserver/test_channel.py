"""The channel between a runner and an attempt."""

from __future__ import annotations

import contextlib
import os
import resource
import socket

import pytest

from hptune.worker.forkserver.channel import Channel, NoFilesLeft, UnreadableMessage


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
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            with pytest.raises(NoFilesLeft, match="can open no more files"):
                reading.recv()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert reading.recv() == "small"
