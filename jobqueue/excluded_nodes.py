"""The nodes that a study's jobs exclude, and how a failing node is found."""

from __future__ import annotations

import threading
from collections.abc import Iterable

from .job_records import JobRecord


class ExcludedNodes:
    """The excluded nodes; may be used from any thread."""

    def __init__(self) -> None:
        self._nodes: frozenset[str] = frozenset()
        self._lock = threading.Lock()

    def add(self, node: str) -> bool:
        """Exclude a node; returns whether it was not excluded before."""
        with self._lock:
            is_new = node not in self._nodes
            self._nodes |= {node}
        return is_new

    def has_any(self, nodes: Iterable[str]) -> bool:
        """Return whether one of these nodes is excluded."""
        return not self._nodes.isdisjoint(nodes)

    def clear(self) -> bool:
        """Exclude no node any more; returns whether there was one."""
        with self._lock:
            had, self._nodes = bool(self._nodes), frozenset()
        return had

    def together_with(self, excluded: Iterable[str]) -> frozenset[str]:
        """Return all excluded nodes, for a submission that excludes these itself; empty if none."""
        return self._nodes.union(excluded) if self._nodes else frozenset()


def failing_node(ended: JobRecord, records: Iterable[JobRecord]) -> str:
    """Return the node at fault for a job that was not useful; empty if unknown.

    A node is at fault if jobs have been useful on other nodes only. It must be excluded, because a
    broken node is free again at once, and would take one job after the other. Of the several nodes
    of a job, the one at fault is unknown.
    """
    useful = {node for record in records if record.was_useful for node in record.job.nodes}
    nodes = ended.job.nodes
    return nodes[0] if len(nodes) == 1 and useful and nodes[0] not in useful else ""
