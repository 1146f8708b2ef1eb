"""The channel between a runner and an attempt."""

from __future__ import annotations

import contextlib
import socket

import pytest

from hptune.worker.forkserver.channel import Channel, UnreadableMessage


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
