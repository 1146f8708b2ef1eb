"""`Ranks`: the handle of one rank of a parallel trial, and its collective calls."""

from __future__ import annotations

import contextlib
import enum
import json
import struct
import time
from collections.abc import Callable, Sequence

from ...core.attempt import Halt
from ...core.meeting import Member, nodes_of
from ..ports import ReservedPorts
from .connections import Peer, RankLost, accept_peers, connect_to_first

CONNECT_SECONDS = 60.0
"""Longest time for all ranks to connect to rank 0, which listens since before they met."""

_AGREE_SECONDS = 0.05
"""Aim for the time between two messages of `agree`, each of which costs some 20 microseconds."""

_MOST_STEPS = 1000
"""Most steps between two messages of `agree`, should steps become slower."""

_LENGTH = struct.Struct("!I")


class _Call(enum.IntEnum):
    """The kind of a collective call."""

    AGREE = 1
    GATHER = 2
    BROADCAST = 3
    FINISH = 4


_SHOWN: dict[int, str] = {
    _Call.AGREE: "asked whether to stop (should_stop)",
    _Call.GATHER: "compared or collected data",
    _Call.BROADCAST: "exchanged data of rank 0",
    _Call.FINISH: "had finished its training",
}


class RanksOutOfStep(RuntimeError):
    """The ranks made different collective calls."""


class Ranks:
    """One rank of a trial of several processes.

    `agree`, `gather` and `broadcast` are collective: every rank calls them, from one
    thread, the same ones in the same order. They go over hptune's own connections to rank 0.

    A trace of two ranks; rank 0 is told to stop while it computes its second step::

        rank 0: agree(None)       -> None          rank 1: agree(None) -> None
        rank 0: agree(Halt.PRUNE) -> Halt.PRUNE    rank 1: agree(None) -> Halt.PRUNE

    Attributes:
        rank: From 0.
        world_size: Number of ranks.
        local_rank: The rank among those on this node, from 0.
        local_world_size: Number of ranks on this node.
        node_rank: This node among the trial's, from 0.
        members: All ranks, rank 0 first.
        cpus: Ids of the cores of this rank.
        gpus: The names of this rank's GPUs.
    """

    def __init__(
        self,
        rank: int,
        members: Sequence[Member],
        peers: Sequence[Peer],
        ports: ReservedPorts,
        *,
        cpus: tuple[int, ...] = (),
        gpus: tuple[str, ...] = (),
    ) -> None:
        own = members[rank]
        on_node = [member.rank for member in members if member.node == own.node]
        self.rank = rank
        self.world_size = len(members)
        self.local_rank = on_node.index(rank)
        self.local_world_size = len(on_node)
        self.node_rank = nodes_of(members).index(own.node)
        self.members = tuple(members)
        self.cpus = cpus
        self.gpus = gpus
        self._peers = tuple(peers)
        self._ports = ports
        self._agreed: Halt | None = None
        self._has_asked = False
        self._steps_left = 0
        self._interval = 1
        self._agreed_at = time.monotonic()

    @classmethod
    def connect(
        cls,
        rank: int,
        members: Sequence[Member],
        ports: ReservedPorts,
        *,
        secret: bytes,
        cpus: tuple[int, ...] = (),
        gpus: tuple[str, ...] = (),
        timeout_seconds: float = CONNECT_SECONDS,
        check: Callable[[], None] = lambda: None,
    ) -> Ranks:
        """Return the handle of a rank, connected to the others. Every rank calls it.

        Args:
            rank: This process's rank.
            members: All ranks, rank 0 first; `members[rank].ports` are those of `ports`.
            ports: What this rank has reserved before it told the others.
            secret: Known to the ranks of this attempt alone.
            cpus: Ids of the cores of this rank.
            gpus: This rank's GPUs.
            timeout_seconds: The longest time to wait for the others.
            check: Called while waiting; may raise to give up.

        Raises:
            RankLost: Another rank did not connect in time, or is gone.
        """
        if rank == 0:
            peers = accept_peers(
                ports.listener,
                len(members),
                secret=secret,
                timeout_seconds=timeout_seconds,
                check=check,
            )
        else:
            ports.listener.close()
            first = connect_to_first(
                members[0].control, rank, secret=secret, timeout_seconds=timeout_seconds
            )
            peers = [first]
        return cls(rank, members, peers, ports, cpus=cpus, gpus=gpus)

    @property
    def address(self) -> str:
        """Where rank 0's framework server listens, as `host:port`."""
        return self.members[0].address

    def release_port(self) -> None:
        """Give up the port reserved for the framework, right before its server binds it.

        A server that sets SO_REUSEADDR (torch's store, gRPC) can bind it before, too.
        """
        self._ports.release()

    def close(self) -> None:
        """Close the connections and give up the ports."""
        for peer in self._peers:
            peer.close()
        self._ports.close()

    # --- collective calls -----------------------------------------------------------------------

    def agree(self, halt: Halt | None = None) -> Halt | None:
        """Return why all ranks stop after this step; None if they continue.

        Rank 0's order counts. Its message also says after how many calls the next one comes, so
        most calls cost nothing. Once it is not None it stays so.

        Rank 0 may ask alone, and tell the others in its own way: no other rank asks then.

        Args:
            halt: What this rank was told.

        Raises:
            RankLost: Another rank is gone.
            RanksOutOfStep: Another rank made another collective call.
        """
        if self._agreed is not None:
            return self._agreed
        if self._steps_left:
            self._steps_left -= 1
            return None
        if self.rank == 0:
            order: str | None = halt
            self._interval = self._next_interval()
            message = json.dumps([order, self._interval]).encode()
            for peer in self._peers:
                if peer.takes_more:  # it is full of what a rank has not read that never asks
                    peer.send(_Call.AGREE, message)
        else:
            self._has_asked = True
            order, self._interval = json.loads(self._receive(self._peers[0], _Call.AGREE))
        self._steps_left = self._interval - 1
        self._agreed = None if order is None else Halt(order)
        return self._agreed

    def _next_interval(self) -> int:
        now = time.monotonic()
        step_seconds = (now - self._agreed_at) / self._interval
        self._agreed_at = now
        # It grows slowly: the first steps are not like the others.
        wanted = _AGREE_SECONDS / max(step_seconds, 1e-9)
        return max(1, min(int(wanted), 2 * self._interval, _MOST_STEPS))

    def gather(self, data: bytes) -> list[bytes]:
        """Return on every rank what each of them gave, rank 0's first. For small data."""
        if self.rank:
            self._peers[0].send(_Call.GATHER, data)
            return _unpacked(self._receive(self._peers[0], _Call.GATHER))
        given = [data, *(self._receive(peer, _Call.GATHER) for peer in self._peers)]
        packed = b"".join(_LENGTH.pack(len(each)) + each for each in given)
        for peer in self._peers:
            peer.send(_Call.GATHER, packed)
        return given

    def broadcast(self, data: bytes = b"") -> bytes:
        """Return what rank 0 gave; what the others gave is ignored."""
        if self.rank:
            return self._receive(self._peers[0], _Call.BROADCAST)
        for peer in self._peers:
            peer.send(_Call.BROADCAST, data)
        return data

    def finish(self) -> None:
        """Tell the others that rank 0 has finished; on the others, wait for that.

        Raises:
            RankLost: Another rank has ended before, so it had failed.
            RanksOutOfStep: Rank 0 trains on.
        """
        if self.rank:
            self._receive(self._peers[0], _Call.FINISH, skips_asking=not self._has_asked)
            return
        if gone := next((peer for peer in self._peers if peer.is_gone), None):
            raise gone.lost()
        for peer in self._peers:
            # A rank that is gone from now on does no harm: there is a result.
            with contextlib.suppress(RankLost):
                peer.send(_Call.FINISH, b"")

    def _receive(self, peer: Peer, call: _Call, *, skips_asking: bool = False) -> bytes:
        kind, data = peer.receive()
        while skips_asking and kind == _Call.AGREE:
            kind, data = peer.receive()
        if kind != call:
            found = _SHOWN.get(kind, f"sent {kind}")
            raise RanksOutOfStep(
                f"rank {self.rank} {_SHOWN[call]} when rank {peer.rank} {found}: every rank must "
                "make the same steps, and call should_stop at the same points"
            )
        return data


def _unpacked(packed: bytes) -> list[bytes]:
    parts, at = [], 0
    while at < len(packed):
        length = _LENGTH.unpack_from(packed, at)[0]
        at += _LENGTH.size
        parts.append(packed[at : at + length])
        at += length
    return parts


__all__ = ["CONNECT_SECONDS", "RankLost", "Ranks", "RanksOutOfStep"]
