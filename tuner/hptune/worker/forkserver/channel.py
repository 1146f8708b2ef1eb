"""The channel between a runner and an attempt: whole messages over a socket.

A message is one packet, which the kernel delivers whole or not at all. So the processes that a
trial forks may send over its channel too, and one that is killed, or writes what is no message,
damages no message of others. A message that is too large for a packet travels in a file in memory,
whose descriptor the packet carries.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import select
import socket
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

from ...errors import StudyError

_PACKET_BYTES = 2**16
"""The kernel accepts 200 kB and more in one packet, unless an administrator lowered that."""
_MOST_BYTES = 2**28
_IN_A_FILE = b"file"
"""The packet of a message that travels in a file."""


class UnreadableMessage(Exception):
    """What was received is no message."""


class NoFilesLeft(StudyError):
    """The process can open no more files."""


class Channel:
    """One end of a channel.

    Args:
        end: A socket that keeps packets apart.
    """

    def __init__(self, end: socket.socket) -> None:
        end.settimeout(None)  # the user's file may have set another default
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Return two connected ends."""
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    @classmethod
    def receive(cls, connection: Connection[Any, Any]) -> Channel:
        """Return the end that the process at the other end of a connection has sent.

        Raises:
            EOFError: The connection is closed.
            OSError: This process has no room for it; it is lost.
        """
        with _as_socket(connection) as stream:
            data, files, _, _ = socket.recv_fds(stream, 1, 1, socket.MSG_CMSG_CLOEXEC)
        if not data:
            raise EOFError
        if not files:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return cls(socket.socket(fileno=files[0]))

    def send_to(self, connection: Connection[Any, Any]) -> None:
        """Send this end to the process at the other end of a connection.

        `multiprocessing.reduction.send_handle` waits for a reply from Python 3.14 on, which another
        thread that receives from the connection would take.

        Raises:
            OSError: The connection is closed.
        """
        with _as_socket(connection) as stream:
            socket.send_fds(stream, [b"c"], [self.fileno()])

    def fileno(self) -> int:
        """Return the file descriptor, for `multiprocessing.connection.wait`."""
        return self._socket.fileno()

    def send(self, message: object) -> None:
        """Send a message whole; any thread, and any forked process, may do so.

        Raises:
            OSError: The other end is closed.
        """
        data = pickle.dumps(message)
        if len(data) < _PACKET_BYTES:
            self._socket.send(data)
            return
        with os.fdopen(os.memfd_create("hptune-message"), "wb") as file:
            file.write(data)
            file.flush()
            socket.send_fds(self._socket, [_IN_A_FILE], [file.fileno()])

    def poll(self, timeout_seconds: float | None = 0.0) -> bool:
        """Return whether `recv` would return at once; wait for that, forever if None."""
        waiting = select.poll()
        waiting.register(self._socket, select.POLLIN)
        return bool(waiting.poll(None if timeout_seconds is None else timeout_seconds * 1000))

    def recv(self) -> Any:
        """Return the next message; wait for it.

        Raises:
            EOFError: The other end is closed in all processes.
            UnreadableMessage: Something else was written to the channel.
            NoFilesLeft: The message came in a file, which this process has no room for; it is lost.
            OSError: The channel is closed here.
        """
        try:
            data, files = self._packet()
        except ConnectionResetError:
            # Told once, before the packets that are left: the other end has not read all of ours.
            data, files = self._packet()
        if data == _IN_A_FILE and not files:  # the system closes what it cannot hand over
            raise NoFilesLeft(f"its worker can open no more files ({os.strerror(errno.EMFILE)})")
        try:
            if files:
                data = _contents(files[0])
        except OSError as error:
            raise UnreadableMessage(str(error)) from error
        finally:
            for file in files:
                os.close(file)
        if not data:
            raise EOFError
        try:
            return pickle.loads(data)  # noqa: S301 - from a process of the same user
        except Exception as error:
            raise UnreadableMessage(f"{type(error).__name__}: {error}") from error

    def _packet(self) -> tuple[bytes, list[int]]:
        flags = socket.MSG_CMSG_CLOEXEC
        data, files, _, _ = socket.recv_fds(self._socket, _PACKET_BYTES, 1, flags)
        return data, files

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


@contextlib.contextmanager
def _as_socket(connection: Connection[Any, Any]) -> Iterator[socket.socket]:
    # No copy of the descriptor: there may be no room for one, when half of an order is sent.
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM, fileno=connection.fileno())
    try:
        stream.settimeout(None)  # the user's file may have set another default
        yield stream
    finally:
        stream.detach()


def _contents(file: int) -> bytes:
    size = os.fstat(file).st_size
    if size > _MOST_BYTES:
        raise UnreadableMessage(f"a message of {size} bytes; allowed are {_MOST_BYTES}")
    return os.pread(file, size, 0)
