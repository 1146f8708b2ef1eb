"""Counting the failures of nodes, so that jobs avoid those that fail again and again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from ..core.attempt import Attempt, Cause, Outcome
from ..core.messages import AttemptEnded, Event, WorkerLeft

MAX_NODE_FAILURES = 3
"""How many attempts in a row are killed on a node, or lost with their worker, until the node is
excluded."""


class NodeFailures:
    """Counts, by node, how many attempts in a row were killed there or lost with their worker.

    An attempt that succeeds clears its nodes. Failures of the trial itself (an exception, too much
    memory) and deliberate stops (a release) count against no node, nor does an attempt of several
    nodes: which of them failed is unknown.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def on_events(self, events: Sequence[Event], attempts: Iterable[Attempt]) -> list[str]:
        """Count what happened; returns the nodes that have failed too often.

        Args:
            events: What happened.
            attempts: The attempts that it changed.
        """
        killed = {
            event.attempt
            for event in events
            if isinstance(event, AttemptEnded) and event.ending.cause is Cause.KILLED
        }
        lost = {event.worker for event in events if isinstance(event, WorkerLeft)}
        failed = set()
        for attempt in attempts:
            if attempt.outcome in (Outcome.FINISHED, Outcome.PRUNED):
                for node in attempt.nodes:
                    self._counts.pop(node, None)
            elif (
                attempt.outcome in (Outcome.LOST, Outcome.ERRORED)
                and len(attempt.nodes) == 1
                and (attempt.id in killed or attempt.placement.worker in lost)
            ):
                failed.add(attempt.node)
        self._counts.update(failed)
        return sorted(node for node in failed if self._counts[node] >= MAX_NODE_FAILURES)
