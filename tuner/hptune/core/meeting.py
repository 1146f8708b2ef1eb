"""How the ranks of an attempt find each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .messages import AttemptStarted


@dataclass(frozen=True, slots=True)
class Member:
    """One rank of a trial as all its ranks know it.

    Attributes:
        rank: From 0. Ranks on one node are adjacent.
        host: The address at which the other ranks reach it.
        node: The name of its machine.
        ports: The port of hptune's connections between the ranks, and the one reserved for the
            framework.
    """

    rank: int
    host: str
    node: str
    ports: tuple[int, ...]

    @property
    def control(self) -> tuple[str, int]:
        """The address of hptune's own connections, of which rank 0's is used."""
        return self.host, self.ports[0]

    @property
    def address(self) -> str:
        """The address that is reserved for the framework's server, as `host:port`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.ports[1]}"


def nodes_of(members: Sequence[Member]) -> tuple[str, ...]:
    """Return the names of the nodes, in the order of the ranks.

    >>> nodes_of([Member(0, "::1", "a", (1, 2)), Member(1, "::1", "a", (3, 4))])
    ('a',)
    """
    return tuple(dict.fromkeys(member.node for member in members))


def log_name(rank: int = 0) -> str:
    """Return the name of the file with a rank's output, in the trial's directory.

    >>> log_name(), log_name(2)
    ('log.txt', 'log.rank2.txt')
    """
    return f"log.rank{rank}.txt" if rank else "log.txt"


@dataclass(frozen=True, slots=True)
class RankReady(AttemptStarted):
    """A rank's process is running, and waits to be told where the other ranks are.

    It goes from the rank to the executor, which answers when all ranks are ready.
    """

    member: Member
