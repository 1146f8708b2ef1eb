"""The connections between rank 0 and the other ranks: authenticated, messages of bytes.

A message is its length, the kind of the call that sent it, and its bytes. Nothing that comes from
the network is unpickled.
"""

from __future__ import annotations

import contextlib
import hmac
import os
import queue
import select
import socket
import struct
import threading
import time
from collections.abc import Callable

_HEADER = struct.Struct("!IB")
_NONCE_BYTES = 32
_RANK = struct.Struct("!I")
_GREETING_SECONDS = 60.0
"""Longest time for one greeting, so that a stranger who connects keeps no thread."""
_POLL_SECONDS = 0.2
_MOST_BYTES = 2**30


class RankLost(ConnectionError):
    """Another rank of the trial is gone."""


class Peer:
    """The connection to one other rank.

    Args:
        connected: A connected and authenticated socket.
        rank: The other end's rank.
    """

    def __init__(self, connected: socket.socket, rank: int) -> None:
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._socket = connected
        self.rank = rank

    def send(self, kind: int, data: bytes) -> None:
        """Send one message.

        Raises:
            RankLost: The other rank is gone.
        """
        try:
            self._socket.sendall(_HEADER.pack(len(data), kind) + data)
        except OSError as error:
            raise self.lost() from error

    def receive(self) -> tuple[int, bytes]:
        """Wait for the next message; return its kind and its bytes.

        Raises:
            RankLost: The other rank is gone.
        """
        try:
            length, kind = _HEADER.unpack(_read(self._socket, _HEADER.size))
            return kind, _read(self._socket, length)
        except (OSError, EOFError) as error:
            raise self.lost() from error

    @property
    def takes_more(self) -> bool:
        """Whether a short message can be sent at once; also if the send will fail."""
        found = select.poll()
        found.register(self._socket, select.POLLOUT)
        return bool(found.poll(0))

    @property
    def is_gone(self) -> bool:
        """Whether the other rank has closed the connection, as by the end of its process."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def lost(self) -> RankLost:
        """Return the error that the other rank is gone."""
        return RankLost(f"rank {self.rank} of this trial is gone")

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()


def accept_peers(
    listener: socket.socket,
    world_size: int,
    *,
    secret: bytes,
    timeout_seconds: float,
    check: Callable[[], None] = lambda: None,
) -> list[Peer]:
    """Return rank 0's connections to ranks 1 and up, in their order.

    Strangers are refused, and delay nobody.

    Args:
        listener: Listens for them; it is closed in the end.
        world_size: Number of ranks.
        secret: Known to the ranks of this attempt alone.
        timeout_seconds: The longest time to wait for all of them.
        check: Called while waiting; may raise to give up.

    Raises:
        RankLost: Not all ranks connected in time.
    """
    peers: dict[int, Peer] = {}
    found: queue.SimpleQueue[Peer] = queue.SimpleQueue()
    deadline = time.monotonic() + timeout_seconds
    listener.settimeout(_POLL_SECONDS)

    def greet(connected: socket.socket) -> None:
        try:
            found.put(Peer(connected, _greet_as_server(connected, secret)))
        except (OSError, EOFError, WrongSecret):
            connected.close()

    with contextlib.closing(listener):
        while len(peers) < world_size - 1:
            check()
            if time.monotonic() > deadline:
                missing = sorted(set(range(1, world_size)) - peers.keys())
                raise RankLost(
                    f"rank {missing[0]} of this trial did not connect to rank 0 within "
                    f"{timeout_seconds:g} s; a firewall between the nodes may be the cause"
                )
            with contextlib.suppress(TimeoutError):
                connected, _ = listener.accept()
                threading.Thread(target=greet, args=(connected,), daemon=True).start()
            with contextlib.suppress(queue.Empty):
                while True:
                    peer = found.get(timeout=0.02)
                    if 0 < peer.rank < world_size:
                        peers.setdefault(peer.rank, peer)
    return [peers[rank] for rank in range(1, world_size)]


def connect_to_first(
    address: tuple[str, int], rank: int, *, secret: bytes, timeout_seconds: float
) -> Peer:
    """Return the connection of a rank to rank 0, which listens already.

    Raises:
        RankLost: There is no way to rank 0, or it is another program.
    """
    try:
        connected = socket.create_connection(address, timeout_seconds)
    except OSError as error:
        raise RankLost(
            f"rank {rank} of this trial cannot reach rank 0 at {address[0]}:{address[1]} "
            f"({error.strerror or error}); a firewall between the nodes may be the cause"
        ) from error
    try:
        _greet_as_client(connected, rank, secret)
    except (OSError, EOFError, WrongSecret) as error:
        connected.close()
        raise RankLost(f"rank 0 of this trial does not answer rank {rank}: {error!r}") from error
    return Peer(connected, 0)


class WrongSecret(Exception):
    """The other end does not know the secret."""


def _digest(secret: bytes, who: bytes, *parts: bytes) -> bytes:
    return hmac.digest(secret, who + b"".join(parts), "sha256")


def _greet_as_server(connected: socket.socket, secret: bytes) -> int:
    """Check that the other end knows the secret, prove to know it too, and return its rank."""
    connected.settimeout(_GREETING_SECONDS)
    ours = os.urandom(_NONCE_BYTES)
    connected.sendall(ours)
    rank, theirs = _read(connected, _RANK.size), _read(connected, _NONCE_BYTES)
    proof = _read(connected, 32)
    if not hmac.compare_digest(proof, _digest(secret, b"rank", ours, rank, theirs)):
        raise WrongSecret
    connected.sendall(_digest(secret, b"first", ours, rank, theirs))
    return int(_RANK.unpack(rank)[0])


def _greet_as_client(connected: socket.socket, rank: int, secret: bytes) -> None:
    connected.settimeout(_GREETING_SECONDS)
    own, packed = os.urandom(_NONCE_BYTES), _RANK.pack(rank)
    theirs = _read(connected, _NONCE_BYTES)
    connected.sendall(packed + own + _digest(secret, b"rank", theirs, packed, own))
    proof = _read(connected, 32)
    if not hmac.compare_digest(proof, _digest(secret, b"first", theirs, packed, own)):
        raise WrongSecret


def _read(connected: socket.socket, length: int) -> bytes:
    if length > _MOST_BYTES:
        raise EOFError(f"a message of {length} bytes")
    data = bytearray()
    while len(data) < length:
        part = connected.recv(min(length - len(data), 2**20))
        if not part:
            raise EOFError("the connection is closed")
        data += part
    return bytes(data)
