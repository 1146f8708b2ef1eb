"""The nodes on which no jobs of a study may run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping

from .commands import Slurm
from .errors import SubmissionError


class ExcludedNodes:
    """The nodes; `add` and `take_found` may be called from any thread.

    Args:
        slurm: Runs Slurm's commands.
        notify: Takes a line for the user.
    """

    def __init__(self, slurm: Slurm, notify: Callable[[str], None]) -> None:
        self._slurm = slurm
        self._notify = notify
        self._lock = threading.Lock()
        self._nodes: frozenset[str] = frozenset()
        self._found: dict[str, str] = {}
        self._of_pending: frozenset[str] = frozenset()

    def add(self, node: str, why: str, *, is_found: bool = False) -> None:
        """Exclude a node.

        Args:
            node: Its name in Slurm.
            why: The reason, for the user.
            is_found: Whether its jobs, and not its attempts, have failed.
        """
        with self._lock:
            if node in self._nodes:
                return
            self._nodes |= {node}
            if is_found:
                self._found[node] = why
        self._notify(f"node {node} is excluded from now on (--exclude={node}): {why}")

    def take_found(self) -> Mapping[str, str]:
        """Return the nodes that were found since the last call, and why they are excluded."""
        with self._lock:
            found, self._found = self._found, {}
        return found

    def __contains__(self, node: str) -> bool:
        return node in self._nodes

    def any_of(self, nodes: Iterable[str]) -> bool:
        """Return whether one of these is excluded."""
        return not self._nodes.isdisjoint(nodes)

    def clear(self) -> bool:
        """Exclude no node any more; returns whether one was excluded."""
        with self._lock:
            had, self._nodes = bool(self._nodes), frozenset()
        return had

    def option(self, given: Iterable[str]) -> tuple[str, ...]:
        """Return the nodes for the option of a job, which replaces that of its script.

        Args:
            given: Those that the script excludes.
        """
        nodes = self._nodes
        return tuple(sorted(nodes.union(given))) if nodes else ()

    def apply(self, pending: Mapping[str, Iterable[str]]) -> None:
        """Have Slurm start the pending jobs on no excluded node, unless it knows that already.

        Args:
            pending: The ids of the jobs that were submitted before, and the nodes that their
                scripts exclude.
        """
        nodes = self._nodes
        if nodes == self._of_pending:
            return
        for job, given in pending.items():
            # A job that has started there meanwhile is cancelled at the next poll.
            with contextlib.suppress(SubmissionError):
                self._slurm.exclude(job, nodes.union(given))
        self._of_pending = nodes
