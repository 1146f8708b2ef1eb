"""The nodes that a study's jobs keep away from, and how that is record of a job's end."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from .job_records import JobRecord


class ExcludedNodes:
    """The nodes to keep away from; may be used from any thread."""

    def __init__(self) -> None:
        self._nodes: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def add(self, node: str) -> bool:
        """Avoid one more; whether that is new."""
        with self._lock:
            is_new = node not in self._nodes
            self._nodes |= {node}
        return is_new

    def has_any(self, nodes: Iterable[str]) -> bool:
        """Whether one of these is avoided."""
        return not self._nodes.isdisjoint(nodes)

    def clear(self) -> bool:
        """Avoid none any more, where nothing else may be left; whether there was one."""
        with self._lock:
            had, self._nodes = bool(self._nodes), frozenset()
        return had

    def together_with(self, excluded: Iterable[str]) -> frozenset[str]:
        """What a submission excludes that excludes these already: nothing new, or all of them."""
        return self._nodes.union(excluded) if self._nodes else frozenset()


def failing_node(ended: JobRecord, records: Iterable[JobRecord]) -> str:
    """The node that is to blame for a job that was of no use; empty where that is not clear.

    It is, where jobs have been of use on other nodes only: a broken node is free again at once, and
    would take one job after the other. Of several nodes, nobody knows which one it was.
    """
    useful = {node for record in records if record.was_useful for node in record.job.nodes}
    nodes = ended.job.nodes
    return nodes[0] if len(nodes) == 1 and useful and nodes[0] not in useful else ""
