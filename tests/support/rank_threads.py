"""Ranks in threads of one process: for tests of their collective calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from hptune.core.meeting import Member
from hptune.training.parallel.ranks import Ranks
from hptune.training.ports import ReservedPorts

HERE = "127.0.0.1"


def together(world_size: int, call: Callable[[Ranks], Any], *, nodes: int = 1) -> list[Any]:
    """Call a function with each of the ranks, in threads; return the results or errors."""
    ports = [ReservedPorts(HERE) for _ in range(world_size)]
    each = world_size // nodes
    members = [Member(i, HERE, f"node{i // each}", p.ports) for i, p in enumerate(ports)]
    results: list[Any] = [None] * world_size

    def work(rank: int) -> None:
        ranks = Ranks.connect(rank, members, ports[rank], secret=b"s", timeout_seconds=200)
        try:
            results[rank] = call(ranks)
        except Exception as error:  # the result, for the test
            results[rank] = error
        finally:
            ranks.close()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(world_size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results
