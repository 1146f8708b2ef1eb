"""`Member`: one rank as all ranks know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
    return tuple(dict.fromkeys(each.node for each in members))
